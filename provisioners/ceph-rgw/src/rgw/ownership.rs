//! Whose a bucket is. A claim's bucket is proved by what neither tenants nor other installations can write: that the claim's
//! own user owns it, whose name holds the claim's uid; or, where the claim names the owner, by the bucket's marker, which the
//! gateway gives and which stands in the ObjectBucket and in the mark of the claim's own user.

use std::collections::BTreeMap;

use super::account::Account;
use super::{BUCKET_MARKER, CEPH_USER};
use crate::admin::BucketInfo;
use crate::users::Mark;

/// Whose a bucket is, for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Claim,
    /// The claim's own user has made it, and the owner whom the claim names does not have it yet.
    ToHandOver,
    /// It is the claim's, and belongs to an owner whom the claim named and names no more.
    OfFormerOwner,
    Others,
}

/// What is known of a claim.
pub(super) struct Evidence<'a> {
    /// Who owns the claim's bucket.
    pub(super) owner: &'a Account,
    /// The user who is made for the claim.
    pub(super) own: Option<&'a Account>,
    /// What that user says, if it is there.
    pub(super) mark: Option<&'a Mark>,
    /// What the ObjectBucket says.
    pub(super) state: &'a BTreeMap<String, String>,
}

impl Evidence<'_> {
    pub(super) fn whose(&self, live: &BucketInfo) -> Whose {
        let Self { owner, own, state, .. } = self;
        let own = own.map(|own| own.id.as_str());
        match live.owner == owner.id {
            true if owner.generated || self.is_recorded(live) || self.was_handed_over(live) => Whose::Claim,
            true => Whose::Others,
            false if self.was_handed_over(live) && state.is_empty() => Whose::OfFormerOwner,
            // A user with whom the claim has begun keeps the bucket.
            false if own == Some(&live.owner) && !owner.generated && state.get(CEPH_USER) != Some(&live.owner) => {
                Whose::ToHandOver
            }
            false => Whose::Others,
        }
    }

    fn is_recorded(&self, live: &BucketInfo) -> bool {
        match self.state.get(BUCKET_MARKER) {
            Some(marker) => *marker == live.marker,
            // Records from before, and those of Rook, say that there is a bucket and not which.
            None => !self.state.is_empty(),
        }
    }

    fn was_handed_over(&self, live: &BucketInfo) -> bool {
        let handed_over = self.mark.and_then(|mark| mark.handed_over.as_ref());
        handed_over.is_some_and(|handed_over| handed_over.marker == live.marker && handed_over.owner == live.owner)
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::bucket::{self, ClaimName};

    use super::*;
    use crate::quota::Quota;
    use crate::users::HandedOver;

    fn whose(live_owner: &str, bucket_owner: Option<&str>, noted: Option<&str>, state: &[(&str, &str)]) -> Whose {
        let claim = ClaimName { namespace: "shop".into(), name: "photos".into(), uid: "u-1".into() };
        let claim = bucket::Account::of(claim);
        let state = state.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (owner, own) =
            (Account::of(&claim, &state, bucket_owner, "c").unwrap(), Account::own(&claim, "c").unwrap());
        let handed_over = noted.map(|marker| HandedOver { marker: marker.into(), owner: "alice".into() });
        let mark = Mark { cluster: "c".into(), handed_over };
        let quota = Quota::of(None, None);
        let (id, marker) = ("i".into(), "m".into());
        let live =
            BucketInfo { id, marker, owner: live_owner.into(), bucket_quota: quota, placement_rule: String::new() };
        Evidence { owner: &owner, own: Some(&own), mark: Some(&mark), state: &state }.whose(&live)
    }

    #[test]
    fn buckets_of_claims_and_of_others() {
        const OWN: &str = "obc-shop-photos-u-1";
        let of_alice = [("cephUser", "alice"), ("bucketOwner", "alice")];
        let with_marker = |marker| [of_alice[0], of_alice[1], ("bucketMarker", marker)];
        for (live, bucket_owner, noted, state, expected) in [
            (OWN, None, None, &[][..], Whose::Claim),
            (OWN, None, None, &[("cephUser", OWN)], Whose::Claim),
            ("obc-shop-photos", None, None, &[("cephUser", "obc-shop-photos")], Whose::Claim),
            ("alice", None, None, &[], Whose::Others),
            ("alice", None, None, &[("cephUser", OWN)], Whose::Others),
            // Another cluster's claim of the same name.
            ("obc-shop-photos-u-2", None, None, &[], Whose::Others),
            ("alice", Some("alice"), None, &[], Whose::Others),
            ("alice", Some("alice"), Some("m"), &[], Whose::Claim),
            // A bucket of the same name that was made later.
            ("alice", Some("alice"), Some("former"), &[], Whose::Others),
            ("alice", Some("alice"), None, &with_marker("m"), Whose::Claim),
            ("alice", None, None, &with_marker("former"), Whose::Others),
            ("alice", None, Some("m"), &with_marker("former"), Whose::Claim),
            ("alice", Some("alice"), None, &of_alice, Whose::Claim),
            (OWN, Some("alice"), None, &[], Whose::ToHandOver),
            (OWN, Some("alice"), None, &with_marker("former"), Whose::ToHandOver),
            // The claim began without an owner.
            (OWN, Some("alice"), None, &[("cephUser", OWN)], Whose::Others),
            ("alice", None, Some("m"), &[], Whose::OfFormerOwner),
            ("alice", Some("bob"), Some("m"), &[], Whose::OfFormerOwner),
            ("bob", Some("bob"), Some("m"), &[], Whose::Others),
            // An administrator has given it away.
            ("bob", None, Some("m"), &with_marker("m"), Whose::Others),
        ] {
            assert_eq!(
                whose(live, bucket_owner, noted, state),
                expected,
                "{live} {bucket_owner:?} {noted:?} {state:?}"
            );
        }
    }
}
