//! Owners and users of buckets, as the provisioner's methods receive them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::parameters::Access;
use crate::error::ProvisionError;
use crate::protocol::{BUCKET_CLAIM_NAME, EXISTING_BUCKETS};

/// The namespace, name and uid that identify a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClaimName {
    /// The namespace. Empty for a bucket or an account of the Container Object Storage Interface (COSI), which does not
    /// pass the namespace.
    pub namespace: String,
    /// The name; for COSI, the name of the bucket or the account itself.
    pub name: String,
    /// The uid. Empty if an object of another provisioner does not contain it. For COSI, a string that is unique among
    /// all assets.
    pub uid: String,
}

/// The prefixes in the uids of COSI's buckets and accounts. The uid of a claim contains no dot.
const OF_BUCKET: &str = "b.";
const OF_ACCESS: &str = "a.";

impl ClaimName {
    /// Returns the [name of the account](Account::name).
    pub(crate) fn user(&self) -> String {
        let Self { namespace, name, uid } = self;
        match (namespace.is_empty(), uid.strip_prefix(OF_BUCKET), uid.strip_prefix(OF_ACCESS)) {
            (true, Some(bucket), _) => format!("obc-bucket.{bucket}"),
            (true, _, Some(access)) => format!("obc-access.{access}"),
            _ => format!("obc-{namespace}-{name}-{uid}"),
        }
    }

    /// Returns the name, if this is a COSI account.
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

/// An identity that owns a bucket, or that has access to some buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Account {
    /// The name of its user in the backend. It is the same in every attempt, and never used for another account.
    pub name: String,
    /// The claim that the account belongs to. After a restore it keeps the uid that the claim had when the account was
    /// created.
    pub claim: ClaimName,
}

impl Account {
    /// Returns the account of an ObjectBucketClaim, or of a COSI bucket or account.
    pub fn of(claim: ClaimName) -> Self {
        Self { name: claim.user(), claim }
    }

    /// Returns the owner of the COSI bucket with this name.
    #[cfg(feature = "cosi")]
    pub(crate) fn of_cosi_bucket(name: &str) -> Self {
        Self::of_cosi(OF_BUCKET, name)
    }

    /// Returns the COSI account with this name.
    #[cfg(feature = "cosi")]
    pub(crate) fn of_cosi_access(name: &str) -> Self {
        Self::of_cosi(OF_ACCESS, name)
    }

    #[cfg(feature = "cosi")]
    fn of_cosi(kind: &str, name: &str) -> Self {
        Self::of(ClaimName { namespace: String::new(), name: name.to_owned(), uid: format!("{kind}{name}") })
    }
}

/// The owner of a bucket or a user in the backend, according to its tags or labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The claim in question.
    Claim,
    /// Another claim, or another cluster.
    Other,
    /// No tag or label names a claim.
    Unknown,
}

/// A bucket to which an account has, or had, access.
///
/// In tests:
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
    /// The maximum access of the account. Class and claim may allow less, if the provisioner has parameters for that.
    pub access: Access,
    /// The account that the bucket was created for: this account, or the account of another claim in the namespace.
    /// `None` if the class names the bucket.
    pub owner: Option<Account>,
    /// The last value of [`Bucket::state`](super::Bucket::state); empty if the class names the bucket.
    pub state: BTreeMap<String, String>,
}

impl BucketAccess {
    /// Grants full access to a bucket that was created for this owner, or to an existing one if there is no owner.
    pub fn new(name: impl Into<String>, owner: Option<Account>) -> Self {
        Self { name: name.into(), access: Access::default(), owner, state: BTreeMap::new() }
    }

    /// Returns the account's access under a class that allows `class` and a claim that requests `asked`, if it requests
    /// anything.
    ///
    /// # Errors
    /// If the claim requests more than the class allows, or if [`access`](Self::access) is restricted to a mode that
    /// they do not allow.
    pub fn allowed(&self, class: Access, asked: Option<Access>) -> Result<Access, ProvisionError> {
        let allowed = class.restricted_to(asked)?;
        if self.access == Access::default() { Ok(allowed) } else { allowed.restricted_to(Some(self.access)) }
    }

    /// Returns true if the bucket was created for this account.
    pub fn belongs_to(&self, account: &Account) -> bool {
        self.owner.as_ref() == Some(account)
    }

    /// Returns the error of a grant for a bucket that does not exist. Its claim or an administrator may create it.
    pub fn missing(&self) -> ProvisionError {
        let bucket = &self.name;
        match &self.owner {
            None => {
                ProvisionError::retry(format!("the bucket {bucket} does not exist: create it, or name another one"))
            }
            Some(owner) if is_of_cosi(owner) => ProvisionError::invalid(self.wrong_owner_message()),
            Some(Account { claim, .. }) => ProvisionError::retry(format!(
                "the bucket {bucket} of the claim {claim} does not exist: create {claim} again, or name another claim in \
                 {BUCKET_CLAIM_NAME}"
            )),
        }
    }

    /// Returns the error message of a grant for a bucket that was not created for its recorded owner, or was replaced
    /// since.
    pub fn wrong_owner_message(&self) -> String {
        let bucket = &self.name;
        match &self.owner {
            Some(owner) if !is_of_cosi(owner) => format!(
                "the bucket {bucket} of the claim {claim} was replaced by another one: create {claim} again, or name another claim \
                 in {BUCKET_CLAIM_NAME}",
                claim = owner.claim
            ),
            _ => format!(
                "the bucket {bucket} does not exist, or was not created by this COSI driver: for access to a bucket \
                 that exists, set {EXISTING_BUCKETS} to \"true\" in the BucketAccessClass"
            ),
        }
    }
}

/// COSI does not pass the namespace of any object to a driver.
fn is_of_cosi(owner: &Account) -> bool {
    owner.claim.namespace.is_empty()
}
