//! Differences between stores that implement S3 and IAM, and how each of them proves who owns a bucket.
//!
//! A bucket's tags identify its owner by the claim's uid and the cluster's id. Only the provisioner writes them. Texts
//! that a tenant or an administrator writes for another purpose, such as a bucket's name, prove nothing.
//!
//! Two claims can request the same name at the same time, even from different clusters that share an account. In
//! `us-east-1`, S3 answers 200 to the creation of a bucket that the account already owns. The provisioner therefore
//! reserves the name first: it names the claim's user after the bucket, and IAM creates only one user of that name in
//! an account. Buckets in other accounts are safe, since every region refuses to create them again. A bucket that an
//! administrator creates has no such reservation.
//!
//! * AWS accepts the tags in the request that creates the bucket. A bucket without them therefore has another creator,
//!   whatever S3 answered.
//! * SeaweedFS ignores tags in the requests that create users and buckets.
//!   * A user's name identifies the owner from the start: it contains the claim's uid and the cluster's id in a form
//!     that only the provisioner uses. Tags that are set later would be missing if the process were killed in between.
//!   * A bucket keeps the ACL from its creation, so the ACL names the claim's user until the bucket has tags. The ACL
//!     grants this user permission to read the ACL, but SeaweedFS allows that only to administrators.
//!   * Of several concurrent requests, only one creates the bucket, so the provisioner need not reserve the name. A
//!     late request cannot create a bucket for a user that no longer exists.
//! * Other stores ignore the tags of a new bucket. A bucket without tags belongs to the claim only if it meets all of
//!   these conditions:
//!   * An attempt is in progress: the user exists, and is deleted as soon as the store refuses the bucket.
//!   * The bucket is empty, since the user has no permissions until the bucket has tags.
//!   * Its name contains the claim's uid, or it has the object ownership rule of a new bucket. No store sets this rule
//!     by default, and the provisioner replaces it as soon as the bucket has tags.
//!
//!   While the name is reserved, the tags of another claim have the same meaning as missing tags: moto reports the tags
//!   of a deleted bucket with the same name.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{ClaimName, Owner, RequestFailure};
use s3_client::{Error, NewBucket};
use serde::Deserialize;

use crate::account::{Account, sha256_hex};
use crate::bucket::is_empty;
use crate::failure::Failure;
use crate::region::Region;
use crate::store::Store;

/// The object ownership rule of a new bucket on other stores, until the bucket has tags.
const NEW: &str = "BucketOwnerPreferred";
/// The object ownership rule that AWS sets for every new bucket.
const OBJECT_OWNERSHIP: &str = "BucketOwnerEnforced";

/// AWS, or another store with the same API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dialect {
    Aws,
    SeaweedFs,
    Other,
}

/// The creator of a bucket without tags, while an attempt to create it is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creator {
    ThisAttempt,
    Other,
    /// The store does not provide the information.
    Unknown,
}

impl Dialect {
    /// Returns the name of a claim's user if the name is the proof of ownership.
    pub(crate) fn user_name(self, claim: &ClaimName, cluster_id: &str) -> Option<String> {
        (self == Self::SeaweedFs).then(|| user_name(claim, cluster_id))
    }

    /// Refuses features that the store accepts in requests, but does not implement completely.
    pub(crate) fn check(self, public_block: Option<bool>, without_key: bool) -> Result<(), RequestFailure> {
        let text = match self {
            Self::SeaweedFs if without_key => {
                "on SeaweedFS the owner of a new role could not be proved: remove authentication and serviceAccount, or use another store"
            }
            Self::SeaweedFs if public_block == Some(true) => {
                "SeaweedFS blocks public ACLs, but not bucket policies that make a bucket public: remove blockPublicAccess from the \
                 StorageClass, or use another store"
            }
            _ => return Ok(()),
        };
        Err(RequestFailure::Refused(text.to_owned()))
    }

    /// Returns true if the store applies every property of a new user or bucket, such as tags and a permissions
    /// boundary. Other stores silently ignore the properties that they do not support.
    pub(crate) fn supports_all_properties(self) -> bool {
        self == Self::Aws
    }

    /// Returns true if the store may ignore the tags of new users, which would prove who owns the users.
    pub(crate) fn may_lose_tags_of_users(self) -> bool {
        self == Self::Other
    }

    /// Returns true if the error means that the store does not support the feature.
    pub(crate) fn lacks_feature(self, error: &Error) -> bool {
        self != Self::Aws && [400, 405, 501].map(Some).contains(&error.status())
    }

    /// Returns true if the error means that the store's IAM does not support the operation.
    pub(crate) fn lacks_operation(self, error: &Error) -> bool {
        let unknown = ["InvalidAction", "NotImplemented"].contains(&error.code()) || error.status() == Some(501);
        self != Self::Aws && unknown
    }

    /// Returns true if the error means that the bucket is in another region. On stores other than AWS,
    /// `AuthorizationHeaderMalformed` can also mean that the store does not support the class's region at all.
    pub(crate) fn is_of_another_region(self, error: &Error) -> bool {
        error.code() == "PermanentRedirect" || self == Self::Aws && error.code() == "AuthorizationHeaderMalformed"
    }

    /// Returns true if a successful answer proves that the request created the bucket. In `us-east-1`, and in stores
    /// that imitate it, S3 gives the same answer if the account already owns the bucket.
    pub(crate) fn success_proves_creation(self, region: &Region) -> bool {
        match self {
            Self::Aws => region.location_constraint().is_some(),
            Self::SeaweedFs => true,
            Self::Other => false,
        }
    }

    /// Returns true if, despite this refusal, a bucket from an earlier attempt may exist.
    pub(crate) fn may_exist(self, code: &str) -> bool {
        // InvalidRequest can also mean that this SeaweedFS server does not know the user yet.
        let on_seaweedfs = self == Self::SeaweedFs && ["BucketAlreadyExists", "InvalidRequest"].contains(&code);
        on_seaweedfs || ["BucketAlreadyOwnedByYou", "OperationAborted"].contains(&code)
    }

    /// Returns true if the refusal means that the account already owns the bucket.
    pub(crate) fn is_own(self, code: &str) -> bool {
        code == "BucketAlreadyOwnedByYou" || self == Self::SeaweedFs && code == "BucketAlreadyExists"
    }

    /// Returns the request that creates a bucket with a proof of ownership, and the request to send if the store
    /// refuses the first one.
    pub(crate) fn new_bucket<'a>(
        self,
        plain: NewBucket<'a>,
        tags: &'a BTreeMap<String, String>,
        user: &'a str,
    ) -> (NewBucket<'a>, Option<NewBucket<'a>>) {
        match self {
            // On AWS, an ownership rule in the request would need an additional permission.
            Self::Aws => (NewBucket { tags: Some(tags), ..plain }, None),
            Self::SeaweedFs => (NewBucket { acl_reader: Some(user), ..plain }, None),
            Self::Other => (NewBucket { tags: Some(tags), ownership: Some(NEW), ..plain }, Some(plain)),
        }
    }

    /// Returns the object ownership rule that replaces the rule of a new bucket.
    pub(crate) fn settled_ownership(self) -> Option<&'static str> {
        (self == Self::Other).then_some(OBJECT_OWNERSHIP)
    }

    /// Returns true if the store blocks public ACLs, but not public bucket policies.
    pub(crate) fn blocks_only_acls(self) -> bool {
        self == Self::SeaweedFs
    }

    /// Determines who created a bucket with the tags of `owner`, while this account's attempt to create it is in
    /// progress.
    pub(crate) async fn creator(
        self,
        store: &Store,
        name: &str,
        owner: Owner,
        account: &Account,
    ) -> Result<Creator, Failure> {
        match self {
            Self::Aws if store.recent.has(name) => {
                return Err(Failure::NotShownYet(format!("tags of the bucket {name}")));
            }
            Self::Aws => return Ok(Creator::Other),
            // The tags name another owner.
            Self::SeaweedFs if owner == Owner::Other => return Ok(Creator::Other),
            _ => {}
        }
        // The user of the attempt cannot write before the bucket has tags, so another client wrote to the bucket.
        if !is_empty(store, name).await? {
            return Ok(Creator::Other);
        }
        let is_ours = match self {
            Self::SeaweedFs => {
                let readers = store.s3.bucket_acl_readers(name).await;
                let doing = format!("read the ACL of the bucket {name}");
                readers.map_err(Failure::of(doing, "s3:GetBucketAcl"))?.contains(&account.name)
            }
            _ if account.name_proves_ownership_of(name) => true,
            _ => match store.s3.bucket_ownership(name).await {
                Ok(rule) => rule.as_deref() == Some(NEW),
                Err(error) if error.is_refusal() => return Ok(Creator::Unknown),
                Err(error) => {
                    let doing = format!("read the object ownership of the bucket {name}");
                    return Err(Failure::of(doing, "s3:GetBucketOwnershipControls")(error));
                }
            },
        };
        Ok(if is_ours { Creator::ThisAttempt } else { Creator::Other })
    }
}

/// Returns the name of a claim's user on SeaweedFS, which is unique to the claim.
pub(crate) fn user_name(claim: &ClaimName, cluster_id: &str) -> String {
    const DIGITS: usize = 16;
    format!("obc-{}-{}", claim.uid, &sha256_hex(cluster_id.as_bytes())[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_differ_between_claims_and_clusters() {
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
