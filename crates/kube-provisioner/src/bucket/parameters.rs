//! Types for parameters that the classes and claims of most backends share.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::account::ClaimName;
use crate::error::{DeleteError, ProvisionError};
use crate::quantity::Quantity;

/// A user's access to the objects of a bucket, as a parameter: `read-write`, `read-only` or `write-only`.
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
/// assert!(parameters.access_mode.restricted_to(None).is_ok_and(|access| !access.can_write()));
/// assert!(parameters.access_mode.restricted_to(Some(Access::ReadWrite)).is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// Returns the access of a claim that requests `asked`, if it requests anything, under a class that allows this
    /// one.
    ///
    /// # Errors
    /// If the claim requests more.
    pub fn restricted_to(self, asked: Option<Self>) -> Result<Self, ProvisionError> {
        match asked {
            None => Ok(self),
            Some(asked) if self == Self::ReadWrite || self == asked => Ok(asked),
            Some(_) => {
                Err(ProvisionError::retry("accessMode in additionalConfig allows more than the class: remove it"))
            }
        }
    }

    /// Returns true if objects may be read.
    pub fn can_read(self) -> bool {
        self != Self::WriteOnly
    }

    /// Returns true if objects may be written.
    pub fn can_write(self) -> bool {
        self != Self::ReadOnly
    }
}

/// The way in which the pods of a claim identify themselves to the backend, as a parameter: `Key` or `ServiceAccount`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Authentication {
    /// With the key in the claim's Secret.
    #[default]
    Key,
    /// With the token of a service account. There is no key.
    ServiceAccount,
}

impl Authentication {
    /// Returns the service account for a claim, or `None` if the claim receives a key. A claim may opt out of a key if
    /// its class uses keys, but not the other way round. The claim's name for the account takes precedence over the
    /// class's.
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
    /// If the claim requests what the class does not allow, or if neither names a service account.
    pub fn service_account(
        (class, of_class): (Self, Option<&str>),
        (asked, of_claim): (Option<Self>, Option<&str>),
        claim: &ClaimName,
    ) -> Result<Option<ServiceAccount>, ProvisionError> {
        match (class, asked) {
            (Self::ServiceAccount, Some(Self::Key)) => Err(ProvisionError::retry(
                "authentication in additionalConfig requests a key, and the class issues none: remove it",
            )),
            (Self::Key, None | Some(Self::Key)) if of_claim.is_some() => Err(ProvisionError::retry(
                "serviceAccount in additionalConfig has no effect without authentication: set it to ServiceAccount, or leave \
                 serviceAccount out",
            )),
            (Self::Key, None | Some(Self::Key)) => Ok(None),
            _ if claim.namespace.is_empty() => Err(ProvisionError::invalid(
                "access without a key needs the namespace of the service account, which COSI does not provide: remove \
                 authentication",
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

/// A service account. Displayed as its user name in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccount {
    /// The namespace, which is the same as the claim's.
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
            Err(ProvisionError::retry(format!("serviceAccount: {name:?} is not the name of a service account")))
        }
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The versioning of a bucket's objects, as a parameter: `Enabled` or `Suspended`, as in S3's API. In S3 a bucket
/// cannot return to its initial state without either, so a claim that sets neither leaves its bucket unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Versioning {
    /// An overwritten or deleted object is kept as a version.
    Enabled,
    /// No further versions are created, and existing ones are kept.
    Suspended,
}

/// A quota of bytes or objects, as a parameter: a quantity such as `1000` or `2Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(i64);

impl Limit {
    /// Returns the number, which is positive.
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
            // Some backends count in kibibytes, rounded up.
            large if large > i64::MAX as u64 - 1023 => Err(format!("{text:?} is more than any store holds")),
            limit => Ok(Self(limit as i64)),
        }
    }
}

/// The policy for the objects of a bucket when its claim is deleted, as a parameter: `Delete` or `DeleteIfEmpty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum DeletionPolicy {
    /// The objects are deleted with the bucket.
    #[default]
    Delete,
    /// A bucket that contains objects is kept until a user has deleted them.
    DeleteIfEmpty,
}

impl DeletionPolicy {
    /// Returns the error for a bucket that is kept because it contains objects.
    pub fn not_empty(bucket: &str) -> DeleteError {
        DeleteError::in_use(format!(
            "the bucket {bucket} contains objects, and its class deletes only empty buckets (deletionPolicy): delete \
             the objects with the claim's access, if it permits deletion, or as an administrator"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits() {
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
