//! Ownership of buckets. The proof must be something that neither tenants nor other installations can write. A bucket
//! belongs to a claim if the claim's own user owns it, whose name contains the claim's uid. If the claim names the
//! owner, the proof is the bucket's marker: the gateway assigns it, and the ObjectBucket and the mark of the claim's
//! own user record it.

use std::collections::BTreeMap;

use super::account::Account;
use super::{BUCKET_MARKER, CEPH_USER};
use crate::admin::BucketInfo;
use crate::users::Mark;

/// The relation of a bucket to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketOwnership {
    Claim,
    /// The claim's own user has created the bucket, but it does not yet belong to the owner whom the claim names.
    PendingTransfer,
    /// The bucket was created for the claim, but belongs to an owner whom the claim no longer names.
    OfFormerOwner,
    Other,
}

/// The facts about a claim that prove ownership.
pub(super) struct Evidence<'a> {
    /// The user who owns the claim's bucket.
    pub(super) owner: &'a Account,
    /// The user who is created for the claim.
    pub(super) own: Option<&'a Account>,
    /// The mark of that user, if it exists.
    pub(super) mark: Option<&'a Mark>,
    /// The state that the ObjectBucket records.
    pub(super) state: &'a BTreeMap<String, String>,
}

impl Evidence<'_> {
    pub(super) fn ownership(&self, live: &BucketInfo) -> BucketOwnership {
        let Self { owner, own, state, .. } = self;
        let own = own.map(|own| own.id.as_str());
        match live.owner == owner.id {
            true if owner.generated || self.is_recorded(live) || self.was_transferred(live) => BucketOwnership::Claim,
            true => BucketOwnership::Other,
            false if self.was_transferred(live) && state.is_empty() => BucketOwnership::OfFormerOwner,
            // If the claim began with its own user, that user keeps the bucket.
            false if own == Some(&live.owner) && !owner.generated && state.get(CEPH_USER) != Some(&live.owner) => {
                BucketOwnership::PendingTransfer
            }
            false => BucketOwnership::Other,
        }
    }

    fn is_recorded(&self, live: &BucketInfo) -> bool {
        match self.state.get(BUCKET_MARKER) {
            Some(marker) => *marker == live.marker,
            // Records of earlier versions and of Rook do not identify the bucket.
            None => !self.state.is_empty(),
        }
    }

    fn was_transferred(&self, live: &BucketInfo) -> bool {
        let transferred_bucket = self.mark.and_then(|mark| mark.transferred_bucket.as_ref());
        transferred_bucket.is_some_and(|transferred_bucket| {
            transferred_bucket.marker == live.marker && transferred_bucket.owner == live.owner
        })
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::bucket::{self, ClaimName};

    use super::*;
    use crate::quota::Quota;
    use crate::users::TransferredBucket;

    fn ownership(
        live_owner: &str,
        bucket_owner: Option<&str>,
        noted: Option<&str>,
        state: &[(&str, &str)],
    ) -> BucketOwnership {
        let claim = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: "u-1".into() };
        let claim = bucket::Account::of(claim);
        let state = state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (owner, own) =
            (Account::of(&claim, &state, bucket_owner, "c").unwrap(), Account::own(&claim, "c").unwrap());
        let transferred_bucket = noted.map(|marker| TransferredBucket { marker: marker.into(), owner: "alice".into() });
        let mark = Mark { cluster: "c".into(), transferred_bucket };
        let quota = Quota::NONE;
        let (id, marker) = ("i".into(), "m".into());
        let live =
            BucketInfo { id, marker, owner: live_owner.into(), bucket_quota: quota, placement_rule: String::new() };
        Evidence { owner: &owner, own: Some(&own), mark: Some(&mark), state: &state }.ownership(&live)
    }

    #[test]
    fn determines_bucket_ownership() {
        const OWN: &str = "obc-shop-photos-u-1";
        let of_alice = [("cephUser", "alice"), ("bucketOwner", "alice")];
        let with_marker = |marker| [of_alice[0], of_alice[1], ("bucketMarker", marker)];
        for (live, bucket_owner, noted, state, expected) in [
            (OWN, None, None, &[][..], BucketOwnership::Claim),
            (OWN, None, None, &[("cephUser", OWN)], BucketOwnership::Claim),
            ("obc-shop-photos", None, None, &[("cephUser", "obc-shop-photos")], BucketOwnership::Claim),
            ("alice", None, None, &[], BucketOwnership::Other),
            ("alice", None, None, &[("cephUser", OWN)], BucketOwnership::Other),
            // The user of a claim with the same name in another cluster.
            ("obc-shop-photos-u-2", None, None, &[], BucketOwnership::Other),
            ("alice", Some("alice"), None, &[], BucketOwnership::Other),
            ("alice", Some("alice"), Some("m"), &[], BucketOwnership::Claim),
            // Another bucket was created later with the same name.
            ("alice", Some("alice"), Some("former"), &[], BucketOwnership::Other),
            ("alice", Some("alice"), None, &with_marker("m"), BucketOwnership::Claim),
            ("alice", None, None, &with_marker("former"), BucketOwnership::Other),
            ("alice", None, Some("m"), &with_marker("former"), BucketOwnership::Claim),
            ("alice", Some("alice"), None, &of_alice, BucketOwnership::Claim),
            (OWN, Some("alice"), None, &[], BucketOwnership::PendingTransfer),
            (OWN, Some("alice"), None, &with_marker("former"), BucketOwnership::PendingTransfer),
            // The claim began without an owner.
            (OWN, Some("alice"), None, &[("cephUser", OWN)], BucketOwnership::Other),
            ("alice", None, Some("m"), &[], BucketOwnership::OfFormerOwner),
            ("alice", Some("bob"), Some("m"), &[], BucketOwnership::OfFormerOwner),
            ("bob", Some("bob"), Some("m"), &[], BucketOwnership::Other),
            // An administrator has transferred the bucket.
            ("bob", None, Some("m"), &with_marker("m"), BucketOwnership::Other),
        ] {
            assert_eq!(
                ownership(live, bucket_owner, noted, state),
                expected,
                "{live} {bucket_owner:?} {noted:?} {state:?}"
            );
        }
    }
}
