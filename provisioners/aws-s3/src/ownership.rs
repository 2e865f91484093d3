//! Whose a bucket is.
//!
//! Its tags say so, and only the provisioner writes them: the claim's uid, and the cluster's id. Nothing that a tenant or an
//! administrator writes by the way proves anything, such as a bucket's name.
//!
//! Two claims may want one name at the same time, also claims of different clusters on one account, and in us-east-1 S3 answers
//! 200 to a request for a bucket that the account has. So the name is reserved first: the claim's user is named after the bucket,
//! and IAM makes a user of one name once in an account. Buckets of other accounts are no danger, since S3 refuses them everywhere.
//!
//! An administrator reserves nothing. AWS takes the tags together with the bucket, so a bucket without them was made by somebody
//! else, whatever S3 has answered. Other stores leave the tags out. There a bucket without tags is the claim's only if an attempt
//! is under way (the user exists: it goes as soon as the store refuses the bucket), if it is empty (the user has no rights before
//! the tags are there), and if it has what a new bucket of ours has from the first moment: a rule for the ownership of objects that
//! no store gives by itself, and that changes as soon as the bucket has its tags, or the claim's uid in its name. Tags of another claim are no different
//! there, while the name is reserved: moto shows those of a bucket of this name that is gone. SeaweedFS has a proof of its own.

use std::collections::BTreeMap;

use kube_provisioner::protocol::CLUSTER_ID;

use crate::account::CLAIM_UID;
use crate::bucket::is_empty;
use crate::failure::Failure;
use crate::store::Store;

/// What a new bucket has until its tags are there, where the store is not AWS.
pub(crate) const NEW: &str = "BucketOwnerPreferred";
/// What AWS gives to every new bucket.
pub(crate) const OBJECT_OWNERSHIP: &str = "BucketOwnerEnforced";

/// Whose a bucket is, by its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Claim,
    Other,
    /// It has no such tags.
    Unknown,
}

/// Tags without a cluster's id are from before clusters had ids in tags.
pub(crate) fn owner(tags: &BTreeMap<String, String>, claim_uid: &str, cluster_id: &str) -> Owner {
    let of_cluster = tags.get(CLUSTER_ID).is_none_or(|id| id == cluster_id);
    match tags.get(CLAIM_UID) {
        None if of_cluster => Owner::Unknown,
        Some(uid) if !uid.is_empty() && uid == claim_uid && of_cluster => Owner::Claim,
        _ => Owner::Other,
    }
}

/// Who has made a bucket without tags, while an attempt for it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    TheAttempt,
    SomebodyElse,
    /// The store does not say it.
    Unknown,
}

pub(crate) async fn maker(store: &Store, name: &str, claim_uid: &str) -> Result<Maker, Failure> {
    if store.is_aws() {
        if store.recent.has(name) {
            return Err(Failure::not_shown_yet(format!("tags of the bucket {name}")));
        }
        return Ok(Maker::SomebodyElse);
    }
    if !is_empty(store, name).await? {
        return Ok(Maker::SomebodyElse);
    }
    if !claim_uid.is_empty() && name.ends_with(claim_uid) {
        return Ok(Maker::TheAttempt);
    }
    Ok(match store.s3.bucket_ownership(name).await {
        Ok(Some(rule)) if rule == NEW => Maker::TheAttempt,
        Ok(_) => Maker::SomebodyElse,
        Err(error) if error.is_refusal() => Maker::Unknown,
        Err(error) => {
            let doing = format!("read the object ownership of the bucket {name}");
            return Err(Failure::of(doing, "s3:GetBucketOwnershipControls")(error));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_the_claims_if_its_tags_name_claim_and_cluster() {
        let of = |uid: &str, cluster: Option<&str>| {
            let mut tags = BTreeMap::from([(CLAIM_UID.to_owned(), uid.to_owned())]);
            tags.extend(cluster.map(|cluster| (CLUSTER_ID.to_owned(), cluster.to_owned())));
            owner(&tags, "u", "c")
        };
        assert_eq!(of("u", Some("c")), Owner::Claim);
        assert_eq!(of("u", None), Owner::Claim, "from before");
        assert_eq!([of("u", Some("d")), of("v", Some("c")), of("v", None), of("", None)], [Owner::Other; 4]);
        assert_eq!(owner(&BTreeMap::new(), "u", "c"), Owner::Unknown);
        let only_cluster = BTreeMap::from([(CLUSTER_ID.to_owned(), "d".to_owned())]);
        assert_eq!(owner(&only_cluster, "u", "c"), Owner::Other);
    }
}
