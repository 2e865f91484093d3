//! How stores differ that speak S3 and IAM, and how each proves whose a bucket is.
//!
//! The tags of a bucket say whose it is, and only the provisioner writes them: the claim's uid, and the cluster's id. Nothing that a
//! tenant or an administrator writes by the way proves anything, such as a bucket's name.
//!
//! Two claims may want one name at the same time, also claims of different clusters on one account, and in us-east-1 S3 answers
//! 200 to a request for a bucket that the account has. So the name is reserved first: the claim's user is named after the bucket,
//! and IAM makes a user of one name once in an account. Buckets of other accounts are no danger, since S3 refuses them everywhere.
//! An administrator reserves nothing.
//!
//! * AWS takes the tags together with the bucket, so a bucket without them was made by somebody else, whatever S3 has answered.
//! * SeaweedFS leaves the tags of users and of buckets out when it makes them. A user's name says whose it is, from the first moment:
//!   it has the claim's uid and the cluster's id, both of which only the provisioner joins so. Tags that are set after the user was
//!   made would say nothing of a user whose maker was killed in between. A bucket keeps the ACL that it was made with, so that names
//!   the claim's user, before there are tags. SeaweedFS makes a bucket once, however many ask at a time, so no name has to be
//!   reserved. The grant lets the user read the ACL, which it may not do all the same: no user but an administrator may. Nor can a
//!   late request make a bucket for a user that is gone.
//! * Other stores leave the tags of a bucket out. There a bucket without tags is the claim's only if an attempt is under way (the user
//!   exists: it goes as soon as the store refuses the bucket), if it is empty (the user has no rights before the tags are there), and
//!   if it has what a new bucket of ours has from the first moment: a rule for the ownership of objects that no store gives by
//!   itself, and that changes as soon as the bucket has its tags, or the claim's uid in its name. Tags of another claim are no
//!   different there, while the name is reserved: moto shows those of a bucket of this name that is gone.

use std::collections::BTreeMap;

use kube_provisioner::bucket::{ClaimName, Objection, Owner};
use s3_client::{Error, NewBucket};
use serde::Deserialize;

use crate::account::{Account, sha256_hex};
use crate::bucket::is_empty;
use crate::failure::Failure;
use crate::region::Region;
use crate::store::Store;

/// What a new bucket has until its tags are there, on other stores.
const NEW: &str = "BucketOwnerPreferred";
/// What AWS gives to every new bucket.
const OBJECT_OWNERSHIP: &str = "BucketOwnerEnforced";

/// AWS itself, or another store that speaks its dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dialect {
    Aws,
    SeaweedFs,
    Other,
}

/// Who has made a bucket without tags, while an attempt for it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    TheAttempt,
    SomebodyElse,
    /// The store does not say it.
    Unknown,
}

impl Dialect {
    /// The name of a claim's user, where that alone proves whose the user is.
    pub(crate) fn user_name(self, claim: &ClaimName, cluster_id: &str) -> Option<String> {
        (self == Self::SeaweedFs).then(|| user_name(claim, cluster_id))
    }

    /// Refuses what the store answers that it does, and does not.
    pub(crate) fn check(self, public_block: Option<bool>, without_key: bool) -> Result<(), Objection> {
        let text = match self {
            Self::SeaweedFs if without_key => {
                "on SeaweedFS nothing would prove whose a new role is: leave authentication and serviceAccount out, or use another store"
            }
            Self::SeaweedFs if public_block == Some(true) => {
                "SeaweedFS blocks public ACLs, but no bucket policies that make a bucket public: remove blockPublicAccess from the \
                 StorageClass, or use another store"
            }
            _ => return Ok(()),
        };
        Err(Objection::Refused(text.to_owned()))
    }

    /// Whether the store keeps what belongs to a new user or a new bucket, such as its tags and a permissions boundary. Others leave
    /// out what they do not know, without an error.
    pub(crate) fn is_complete(self) -> bool {
        self == Self::Aws
    }

    /// Whether new users may have lost their tags, which would have proved whose they are.
    pub(crate) fn may_lose_tags_of_users(self) -> bool {
        self == Self::Other
    }

    /// Whether the error says that the store has no such feature.
    pub(crate) fn lacks_feature(self, error: &Error) -> bool {
        self != Self::Aws && [400, 405, 501].map(Some).contains(&error.status())
    }

    /// Whether the error says that the IAM of the store has no such operation.
    pub(crate) fn lacks_operation(self, error: &Error) -> bool {
        let unknown = ["InvalidAction", "NotImplemented"].contains(&error.code()) || error.status() == Some(501);
        self != Self::Aws && unknown
    }

    /// Whether the bucket is in another region. Elsewhere than on AWS the class may name a region that the whole store does not have.
    pub(crate) fn is_of_another_region(self, error: &Error) -> bool {
        error.code() == "PermanentRedirect" || self == Self::Aws && error.code() == "AuthorizationHeaderMalformed"
    }

    /// Whether a bucket can only have been made by the one whom S3 has answered so: in us-east-1, and in stores that are like it, S3
    /// answers the same where the account has the bucket already.
    pub(crate) fn makes_a_bucket_once(self, region: &Region) -> bool {
        match self {
            Self::Aws => region.location_constraint().is_some(),
            Self::SeaweedFs => true,
            Self::Other => false,
        }
    }

    /// Whether a bucket of an earlier attempt may be there after this refusal to create it.
    pub(crate) fn may_exist(self, code: &str) -> bool {
        // The last one is also about a user whom this server of SeaweedFS does not know yet.
        let on_seaweedfs = self == Self::SeaweedFs && ["BucketAlreadyExists", "InvalidRequest"].contains(&code);
        on_seaweedfs || ["BucketAlreadyOwnedByYou", "OperationAborted"].contains(&code)
    }

    /// Whether the refusal says that the account has the bucket.
    pub(crate) fn is_own(self, code: &str) -> bool {
        code == "BucketAlreadyOwnedByYou" || self == Self::SeaweedFs && code == "BucketAlreadyExists"
    }

    /// The request for a bucket, with the proof of whose it is, and then the one to make if the store refuses that.
    pub(crate) fn new_bucket<'a>(
        self,
        plain: NewBucket<'a>,
        tags: &'a BTreeMap<String, String>,
        user: &'a str,
    ) -> (NewBucket<'a>, Option<NewBucket<'a>>) {
        match self {
            // AWS asks for another right where a rule is named.
            Self::Aws => (NewBucket { tags: Some(tags), ..plain }, None),
            Self::SeaweedFs => (NewBucket { acl_reader: Some(user), ..plain }, None),
            Self::Other => (NewBucket { tags: Some(tags), ownership: Some(NEW), ..plain }, Some(plain)),
        }
    }

    /// The rule for the ownership of objects that replaces the one of a new bucket.
    pub(crate) fn settled_ownership(self) -> Option<&'static str> {
        (self == Self::Other).then_some(OBJECT_OWNERSHIP)
    }

    /// Whether the store's block of public access leaves bucket policies out.
    pub(crate) fn blocks_only_acls(self) -> bool {
        self == Self::SeaweedFs
    }

    /// Who has made a bucket whose tags are `owner`'s, while an attempt of this account for it is under way.
    pub(crate) async fn maker(
        self,
        store: &Store,
        name: &str,
        owner: Owner,
        account: &Account,
    ) -> Result<Maker, Failure> {
        match self {
            Self::Aws if store.recent.has(name) => {
                return Err(Failure::not_shown_yet(format!("tags of the bucket {name}")));
            }
            Self::Aws => return Ok(Maker::SomebodyElse),
            // Whoever was let into it is to decide.
            Self::SeaweedFs if owner == Owner::Other => return Ok(Maker::SomebodyElse),
            _ => {}
        }
        // So is whoever has written into it.
        if !is_empty(store, name).await? {
            return Ok(Maker::SomebodyElse);
        }
        let is_ours = match self {
            Self::SeaweedFs => {
                let readers = store.s3.bucket_acl_readers(name).await;
                let doing = format!("read the ACL of the bucket {name}");
                readers.map_err(Failure::of(doing, "s3:GetBucketAcl"))?.contains(&account.name)
            }
            _ if account.is_named_in(name) => true,
            _ => match store.s3.bucket_ownership(name).await {
                Ok(rule) => rule.as_deref() == Some(NEW),
                Err(error) if error.is_refusal() => return Ok(Maker::Unknown),
                Err(error) => {
                    let doing = format!("read the object ownership of the bucket {name}");
                    return Err(Failure::of(doing, "s3:GetBucketOwnershipControls")(error));
                }
            },
        };
        Ok(if is_ours { Maker::TheAttempt } else { Maker::SomebodyElse })
    }
}

/// The name of a claim's user on SeaweedFS, and nobody else's.
pub(crate) fn user_name(claim: &ClaimName, cluster_id: &str) -> String {
    const DIGITS: usize = 16;
    format!("obc-{}-{}", claim.uid, &sha256_hex(cluster_id.as_bytes())[..DIGITS])
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
