//! Whose users and buckets are on SeaweedFS, which leaves the tags of both out when it makes them.
//!
//! A user's name says whose it is, from the first moment: it has the claim's uid and the cluster's id, both of which only the
//! provisioner joins so. Tags that are set after the user was made would say nothing of a user whose maker was killed in between.
//!
//! A bucket keeps the ACL that it was made with, so that names the claim's user, before there are tags. SeaweedFS makes a bucket
//! once, however many ask at a time, so no name has to be reserved. The grant lets the user read the ACL, which it may not do all
//! the same: no user but an administrator may. Nor can a late request make a bucket for a user that is gone.

use kube_provisioner::bucket::ClaimName;

use crate::account::sha256_hex;
use crate::bucket::is_empty;
use crate::failure::Failure;
use crate::ownership::{Maker, Owner};
use crate::parameters::StoreKind;
use crate::store::Store;

/// The answers to a creation after which a bucket of an earlier attempt may be there. The last one is that about a user whom
/// this server of S3 does not know yet.
pub(crate) const MAY_EXIST: [&str; 3] = ["BucketAlreadyExists", "BucketAlreadyOwnedByYou", "InvalidRequest"];

/// The name of a claim's user, and nobody else's.
pub(crate) fn user_name(claim: &ClaimName, cluster_id: &str) -> String {
    const DIGITS: usize = 16;
    format!("obc-{}-{}", claim.uid, &sha256_hex(cluster_id.as_bytes())[..DIGITS])
}

/// Who has made a bucket whose tags are `owner`'s, while an attempt for it is under way.
pub(crate) async fn maker(store: &Store, name: &str, owner: Owner, user: &str) -> Result<Maker, Failure> {
    // Whoever was let into it, or has written into it, is to decide.
    if owner == Owner::Other || !is_empty(store, name).await? {
        return Ok(Maker::SomebodyElse);
    }
    let readers = store.s3.bucket_acl_readers(name).await;
    let readers = readers.map_err(Failure::of(format!("read the ACL of the bucket {name}"), "s3:GetBucketAcl"))?;
    Ok(if readers.iter().any(|id| id == user) { Maker::TheAttempt } else { Maker::SomebodyElse })
}

/// What is asked for and SeaweedFS does not do, though it answers that it does.
pub(crate) fn lacks(store: &Store, public_block: Option<bool>, without_key: bool) -> Option<String> {
    let text = match () {
        () if store.kind() != StoreKind::SeaweedFs => return None,
        () if without_key => {
            "on SeaweedFS nothing would prove whose a new role is: leave authentication and serviceAccount out, or use another store"
        }
        () if public_block == Some(true) => {
            "SeaweedFS blocks public ACLs, but no bucket policies that make a bucket public: remove blockPublicAccess from the \
             StorageClass, or use another store"
        }
        () => return None,
    };
    Some(text.to_owned())
}

/// Asks a store that nobody has named, before anything is made there: how users are named depends on it.
///
/// # Errors
/// Unless the store itself has answered, whatever it has said.
pub(crate) async fn learn(store: &Store, bucket: &str) -> Result<(), Failure> {
    if store.kind() != StoreKind::Other || !store.s3.software().is_empty() {
        return Ok(());
    }
    match store.s3.bucket_tagging(bucket).await {
        Err(error) if error.status().is_none_or(|status| status == 429 || status >= 500) => {
            Err(Failure::of(format!("read the tags of the bucket {bucket}"), "s3:GetBucketTagging")(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_of_one_claim_in_one_cluster() {
        let uid = "00000000-0000-4000-8000-000000000001";
        let of = |uid: &str, cluster: &str| {
            let claim = ClaimName { namespace: "team-a".to_owned(), name: "photos".to_owned(), uid: uid.to_owned() };
            user_name(&claim, cluster)
        };
        let name = of(uid, "cluster-a");
        assert!(name.len() <= 64 && name.contains(uid), "{name}");
        assert_ne!(name, of(uid, "cluster-b"));
        assert_ne!(name, of("00000000-0000-4000-8000-000000000002", "cluster-a"));
    }
}
