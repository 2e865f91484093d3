//! Who has buckets and who may use them, as an author's methods get them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::parameters::Access;
use crate::error::ProvisionError;
use crate::protocol::{BUCKET_CLAIM_NAME, EXISTING_BUCKETS};

/// Namespace, name and uid of a claim: all that identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimName {
    /// The namespace. Empty for a bucket or an account of the Container Object Storage Interface (COSI), which does not tell it.
    pub namespace: String,
    /// The name; of COSI that of the bucket or the account itself.
    pub name: String,
    /// The uid. Empty if an object of another provisioner does not have it. Of COSI a text that no other asset has.
    pub uid: String,
}

/// What the uids of COSI's buckets and of its accounts begin with. The uid of a claim has no dot.
const OF_BUCKET: &str = "b.";
const OF_ACCESS: &str = "a.";

impl ClaimName {
    /// The [name of the account](Account::name).
    pub(crate) fn user(&self) -> String {
        let Self { namespace, name, uid } = self;
        match (namespace.is_empty(), uid.strip_prefix(OF_BUCKET), uid.strip_prefix(OF_ACCESS)) {
            (true, Some(bucket), _) => format!("obc-bucket.{bucket}"),
            (true, _, Some(access)) => format!("obc-access.{access}"),
            _ => format!("obc-{namespace}-{name}-{uid}"),
        }
    }

    /// The name of an account of COSI.
    pub(crate) fn cosi_account(&self) -> Option<&str> {
        self.uid.strip_prefix(OF_ACCESS).filter(|_| self.namespace.is_empty())
    }
}

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// One who has a bucket, or who is let into some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Account {
    /// A name for its user in the backend. It is the same in every attempt, and no other account ever has it.
    pub name: String,
    /// The claim that it is for. After a restore it keeps the uid that the claim had when the account was made.
    pub claim: ClaimName,
}

impl Account {
    /// That of an ObjectBucketClaim, or of a bucket or an account of COSI.
    pub fn of(claim: ClaimName) -> Self {
        Self { name: claim.user(), claim }
    }

    /// The owner of the bucket of COSI with this name.
    #[cfg(feature = "cosi")]
    pub(crate) fn of_cosi_bucket(name: &str) -> Self {
        Self::of_cosi(OF_BUCKET, name)
    }

    /// The account of COSI with this name.
    #[cfg(feature = "cosi")]
    pub(crate) fn of_cosi_access(name: &str) -> Self {
        Self::of_cosi(OF_ACCESS, name)
    }

    #[cfg(feature = "cosi")]
    fn of_cosi(kind: &str, name: &str) -> Self {
        Self::of(ClaimName { namespace: String::new(), name: name.to_owned(), uid: format!("{kind}{name}") })
    }
}

/// Whose a bucket or a user in the backend is, by its tags or labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The claim's.
    Claim,
    /// Another claim's, or another cluster's.
    Other,
    /// No tag or label names a claim.
    Unknown,
}

/// A bucket that an account is let into, or was.
///
/// One for an author's own tests:
///
/// ```
/// # use kube_provisioner::bucket::{BucketAccess, GrantRequest};
/// let mut request = GrantRequest::new("photos", (), ());
/// assert!(request.bucket().belongs_to(&request.account));
/// request.buckets = vec![BucketAccess::new("films", None)];
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketAccess {
    /// The bucket's name.
    pub name: String,
    /// What the account may do at most. Class and claim may allow less, if the author has parameters for that.
    pub access: Access,
    /// For whom it was made: the account itself, or the one of another claim of the namespace. `None` where the class names the
    /// bucket.
    pub owner: Option<Account>,
    /// What [`Bucket::state`](super::Bucket::state) was the last time; empty where the class names the bucket.
    pub state: BTreeMap<String, String>,
}

impl BucketAccess {
    /// Full access to a bucket that was made for this one, or exists by itself.
    pub fn new(name: impl Into<String>, owner: Option<Account>) -> Self {
        Self { name: name.into(), access: Access::default(), owner, state: BTreeMap::new() }
    }

    /// What the account may do, by a class that allows this and a claim that asks for `asked`, or for nothing by itself.
    ///
    /// # Errors
    /// When one of them asks for more than the other allows.
    pub fn allowed(&self, class: Access, asked: Option<Access>) -> Result<Access, ProvisionError> {
        let allowed = class.restricted_to(asked)?;
        if self.access == Access::default() { Ok(allowed) } else { allowed.restricted_to(Some(self.access)) }
    }

    /// Whether it was made for this account.
    pub fn belongs_to(&self, account: &Account) -> bool {
        self.owner.as_ref() == Some(account)
    }

    /// The error of a grant for a bucket that does not exist. Its claim or an administrator may create it.
    pub fn missing(&self) -> ProvisionError {
        let bucket = &self.name;
        match &self.owner {
            None => ProvisionError::retry(format!(
                "the bucket {bucket} does not exist: make it, or change bucketName in the StorageClass"
            )),
            Some(owner) if is_of_cosi(owner) => ProvisionError::invalid(self.is_not_its_owners()),
            Some(Account { claim, .. }) => ProvisionError::retry(format!(
                "the bucket {bucket} of the claim {claim} does not exist: create {claim} again, or name another claim in \
                 {BUCKET_CLAIM_NAME}"
            )),
        }
    }

    /// The error of a grant for a bucket that was not made for its recorded owner, or was replaced since.
    pub fn is_not_its_owners(&self) -> String {
        let bucket = &self.name;
        match &self.owner {
            Some(owner) if !is_of_cosi(owner) => format!(
                "the bucket {bucket} of the claim {claim} was replaced by another one: create {claim} again, or name another claim \
                 in {BUCKET_CLAIM_NAME}",
                claim = owner.claim
            ),
            _ => format!(
                "the bucket {bucket} does not exist, or was not made by this COSI driver: for access to a bucket that exists, set \
                 {EXISTING_BUCKETS} to \"true\" in the BucketAccessClass"
            ),
        }
    }
}

/// COSI does not tell a driver the namespace of anything.
fn is_of_cosi(owner: &Account) -> bool {
    owner.claim.namespace.is_empty()
}
