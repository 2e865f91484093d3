//! What classes and claims of most backends say, as types for an author's parameters.

use std::fmt;

use serde::Deserialize;

use super::account::ClaimName;
use crate::error::{DeleteError, ProvisionError};
use crate::quantity::Quantity;

/// What a user may do with the objects of a bucket, for an author's parameters. `read-write`, `read-only` or `write-only`.
///
/// ```
/// use kube_provisioner::bucket::Access;
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Parameters {
///     #[serde(default)]
///     access_mode: Access,
/// }
///
/// let class = [("accessMode".to_owned(), "read-only".to_owned())].into();
/// let parameters: Parameters = kube_provisioner::parameters::from_map(&class).unwrap();
/// assert!(parameters.access_mode.restricted_to(None).is_ok_and(|access| !access.writes()));
/// assert!(parameters.access_mode.restricted_to(Some(Access::ReadWrite)).is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reads, writes and deletes objects.
    #[default]
    ReadWrite,
    /// Lists and reads objects.
    ReadOnly,
    /// Writes objects.
    WriteOnly,
}

impl Access {
    /// What a claim may do whose class allows this and that asks for `asked`, or for nothing by itself.
    ///
    /// # Errors
    /// When the claim asks for more.
    pub fn restricted_to(self, asked: Option<Self>) -> Result<Self, ProvisionError> {
        match asked {
            None => Ok(self),
            Some(asked) if self == Self::ReadWrite || self == asked => Ok(asked),
            Some(_) => Err(ProvisionError::retry(
                "accessMode in additionalConfig allows what the class does not: leave it out",
            )),
        }
    }

    /// Whether objects may be read.
    pub fn reads(self) -> bool {
        self != Self::WriteOnly
    }

    /// Whether objects may be written.
    pub fn writes(self) -> bool {
        self != Self::ReadOnly
    }
}

/// How the pods of a claim identify themselves to the backend, for an author's parameters. `Key` or `ServiceAccount`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Authentication {
    /// By the key in the claim's Secret.
    #[default]
    Key,
    /// By the token of a service account. There is no key.
    ServiceAccount,
}

impl Authentication {
    /// The service account for a claim; `None` if it gets a key. A class with keys may have claims that ask for none, but not the
    /// other way round. The name is that of the claim or else of the class.
    ///
    /// ```
    /// use kube_provisioner::bucket::{Authentication, BucketRequest};
    ///
    /// let claim = BucketRequest::new("photos", (), ()).owner.claim;
    /// let (class, asked) = ((Authentication::Key, None), (Some(Authentication::ServiceAccount), Some("web")));
    /// let account = Authentication::service_account(class, asked, &claim).unwrap().unwrap();
    /// assert_eq!(account.to_string(), "system:serviceaccount:test:web");
    /// ```
    ///
    /// # Errors
    /// When the claim asks for what the class does not allow, or no service account is named.
    pub fn service_account(
        (class, of_class): (Self, Option<&str>),
        (asked, of_claim): (Option<Self>, Option<&str>),
        claim: &ClaimName,
    ) -> Result<Option<ServiceAccount>, ProvisionError> {
        match (class, asked) {
            (Self::ServiceAccount, Some(Self::Key)) => Err(ProvisionError::retry(
                "authentication in additionalConfig asks for a key, and the class gives none: leave it out",
            )),
            (Self::Key, None | Some(Self::Key)) if of_claim.is_some() => Err(ProvisionError::retry(
                "serviceAccount in additionalConfig has no effect without authentication: set it to ServiceAccount, or leave \
                 serviceAccount out",
            )),
            (Self::Key, None | Some(Self::Key)) => Ok(None),
            _ if claim.namespace.is_empty() => Err(ProvisionError::invalid(
                "access without a key needs the namespace of the service account, which COSI does not tell: leave \
                 authentication out",
            )),
            _ => {
                let name = of_claim.or(of_class).ok_or_else(|| {
                    ProvisionError::retry(
                        "no service account is named: set serviceAccount in the claim's additionalConfig to the one of \
                         its pods",
                    )
                })?;
                ServiceAccount::new(&claim.namespace, name).map(Some)
            }
        }
    }
}

/// A service account. Its text is the name that the API server gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccount {
    /// The namespace, which is the claim's.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ServiceAccount {
    fn new(namespace: &str, name: &str) -> Result<Self, ProvisionError> {
        let is_plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.".contains(&letter);
        if (1..=253).contains(&name.len()) && name.bytes().all(is_plain) {
            Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
        } else {
            Err(ProvisionError::retry(format!("serviceAccount: {name:?} is no name of a service account")))
        }
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Whether a bucket keeps the versions of its objects, for an author's parameters. `Enabled` or `Suspended`, as in S3's API. S3 has no
/// way back to a bucket without either, so a claim that asks for nothing leaves its bucket as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Versioning {
    /// An overwritten or deleted object stays as a version.
    Enabled,
    /// No further versions are made, and those that exist stay.
    Suspended,
}

/// A quota of bytes or objects, for an author's parameters: a quantity such as `1000` or `2Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(i64);

impl Limit {
    /// The number, which is positive.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let limit = text.parse::<Quantity>().and_then(|quantity| quantity.bytes());
        match limit.map_err(|error| error.to_string())? {
            0 => Err("a limit of 0 would refuse every object: leave it out for no limit".to_owned()),
            // Some backends count in kibibytes, and round up.
            large if large > i64::MAX as u64 - 1023 => Err(format!("{text:?} is more than any store holds")),
            limit => Ok(Self(limit as i64)),
        }
    }
}

/// How the deletion of a claim treats the objects of its bucket, for an author's parameters. `Delete` or `DeleteIfEmpty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum DeletionPolicy {
    /// They go with the bucket.
    #[default]
    Delete,
    /// A bucket with objects stays until somebody has deleted them.
    DeleteIfEmpty,
}

impl DeletionPolicy {
    /// Why a bucket that holds objects is not deleted.
    pub fn not_empty(bucket: &str) -> DeleteError {
        DeleteError::retry(format!(
            "the bucket {bucket} holds objects, and its class deletes empty buckets only (deletionPolicy): delete them, with \
             the keys of the claim's Secret for example"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let limit = |text: &str| Limit::try_from(text.to_owned());
        assert_eq!(limit("2"), Ok(Limit(2)));
        assert_eq!(limit("2G"), Ok(Limit(2_000_000_000)));
        assert_eq!(limit("4Ki"), Ok(Limit(4096)));
        for (text, part) in [
            ("abc", "not a quantity"),
            ("-1", "negative"),
            ("0", "leave it out"),
            ("1e30", "more than any store holds"),
            ("8Ei", "more than any store holds"),
            ("", "not a quantity"),
        ] {
            let error = limit(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
