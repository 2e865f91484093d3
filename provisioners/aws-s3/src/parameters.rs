//! Class parameters and the `additionalConfig` of claims.

use std::collections::BTreeMap;
use std::str::FromStr;

use kube_provisioner::bucket::{Access, Authentication, DeletionPolicy, Endpoint, Versioning};
use kube_provisioner::parameters::unless_empty;
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::tags::Tags;
use serde::Deserialize;

use crate::dialect::Dialect;
use crate::region::Region;
use crate::role::OidcProvider;

/// Keys of `additionalConfig` that are looked up in the applied configuration.
pub(crate) const BUCKET_LIFECYCLE: &str = "bucketLifecycle";
pub(crate) const BUCKET_POLICY: &str = "bucketPolicy";
pub(crate) const BUCKET_TAGS: &str = "bucketTags";
/// The keys that configure the bucket, not the claim's own user.
pub(crate) const SETTINGS: [&str; 5] =
    [BUCKET_LIFECYCLE, "bucketObjectLock", BUCKET_POLICY, BUCKET_TAGS, "bucketVersioning"];

/// The class parameters, including the parameters of the provisioner of 2019.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    pub(crate) region: Option<Region>,
    /// The kind of store, if the endpoint does not show it.
    pub(crate) store: Option<Dialect>,
    /// The S3 endpoint, if it is not the region's default.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) endpoint: Option<Endpoint>,
    /// The IAM endpoint, if it is not the partition's default.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) iam_endpoint: Option<Endpoint>,
    /// The role in the account that contains the buckets. The provisioner assumes it with the administrator's key or
    /// with its own credentials.
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) admin_role_arn: Option<IamArn>,
    pub(crate) external_id: Option<String>,
    pub(crate) access_mode: Access,
    /// Selects access keys or IAM roles for claims.
    pub(crate) authentication: Authentication,
    /// The service account for claims that do not name one.
    pub(crate) service_account: Option<String>,
    pub(crate) oidc_provider_arn: Option<OidcProvider>,
    /// Defines whether a bucket that contains objects is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
    /// A parameter of the provisioner of 2019.
    pub(crate) create_bucket_user: CreateBucketUser,
    #[serde(deserialize_with = "unless_empty")]
    pub(crate) permissions_boundary: Option<IamArn>,
    /// By default, public access is blocked if the store supports that.
    pub(crate) block_public_access: Option<bool>,
    /// The key that encrypts objects; the default is S3's own key.
    pub(crate) kms_key_id: Option<String>,
    pub(crate) versioning: bool,
    pub(crate) lifecycle: Option<Lifecycle>,
    pub(crate) object_lock: Option<ObjectLock>,
    /// Tags for all created buckets, users and roles.
    pub(crate) tags: Option<Tags>,
}

impl Parameters {
    /// Returns the tags that the class and the claim request. An AWS policy can require tags in the request that
    /// creates a bucket, a user or a role.
    pub(crate) fn asked_tags(&self, config: &Config) -> BTreeMap<String, String> {
        let asked = self.tags.iter().chain(&config.bucket_tags).flat_map(Tags::as_map);
        asked.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns the object lock, which prevents the deletion of new object versions for some time.
    pub(crate) fn lock(&self, config: &Config) -> Option<ObjectLock> {
        config.bucket_object_lock.or(self.object_lock)
    }

    /// Returns the KMS key that encrypts the bucket.
    pub(crate) fn kms_key(&self) -> Option<&str> {
        self.kms_key_id.as_deref().filter(|key| !key.is_empty())
    }
}

/// A claim's `additionalConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    pub(crate) access_mode: Option<Access>,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) service_account: Option<String>,
    pub(crate) bucket_lifecycle: Option<Lifecycle>,
    pub(crate) bucket_object_lock: Option<ObjectLock>,
    pub(crate) bucket_policy: Option<Policy>,
    pub(crate) bucket_tags: Option<Tags>,
    pub(crate) bucket_versioning: Option<Versioning>,
}

/// The ARN of an IAM role or policy.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-arns>
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IamArn(pub(crate) String);

impl FromStr for IamArn {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let is_arn = match parts[..] {
            ["arn", partition, "iam", "", account, resource] => {
                let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
                let kind = resource.strip_prefix("role/").or(resource.strip_prefix("policy/"));
                !partition.is_empty()
                    && !account.is_empty()
                    && kind.is_some_and(|name| !name.is_empty())
                    && is_plain(text)
            }
            _ => false,
        };
        is_arn
            .then(|| Self(text.to_owned()))
            .ok_or("expected an ARN of IAM, such as arn:aws:iam::ACCOUNT:role/NAME or arn:aws:iam::ACCOUNT:policy/NAME")
    }
}

kube_provisioner::deserialize_from_str!(IamArn);

/// `createBucketUser` of the provisioner of 2019. If it was `no`, claims received the administrator's key.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct CreateBucketUser;

impl TryFrom<String> for CreateBucketUser {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "no" => {
                Err("claims would receive the administrator's key: every claim has its own user, so remove it".into())
            }
            _ => Ok(Self),
        }
    }
}

/// The period during which new versions cannot be deleted, as in `governance:30d` or `compliance:30d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ObjectLock {
    pub(crate) mode: LockMode,
    pub(crate) days: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum LockMode {
    Governance,
    Compliance,
}

impl LockMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }
}

impl TryFrom<String> for ObjectLock {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let malformed =
            || format!("{text:?} is not a lock: expected governance:DAYSd or compliance:DAYSd, such as governance:30d");
        let (mode, time) = text.split_once(':').ok_or_else(malformed)?;
        let days = time.strip_suffix('d').and_then(|days| days.parse().ok()).filter(|days| (1..=36_500).contains(days));
        let mode = match mode {
            "governance" => LockMode::Governance,
            "compliance" => LockMode::Compliance,
            _ => return Err(malformed()),
        };
        Ok(Self { mode, days: days.ok_or_else(malformed)? })
    }
}

#[cfg(test)]
mod tests {
    use kube_provisioner::parameters::from_map;

    use super::*;

    #[test]
    fn parses_object_locks() {
        let lock = |text: &str| ObjectLock::try_from(text.to_owned());
        assert_eq!(lock("governance:30d"), Ok(ObjectLock { mode: LockMode::Governance, days: 30 }));
        assert_eq!(lock("compliance:1d"), Ok(ObjectLock { mode: LockMode::Compliance, days: 1 }));
        for text in
            ["", "governance", "governance:0d", "governance:-1d", "governance:30", "legal:30d", "compliance:1e9d"]
        {
            assert!(lock(text).is_err(), "{text}");
        }
    }

    #[test]
    fn claims_add_tags_and_override_the_object_lock() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let class: Parameters =
            from_map(&of(&[("tags", "team=a,stage=test"), ("objectLock", "governance:1d")])).unwrap();
        let claim: Config = from_map(&of(&[("bucketTags", "team=b"), ("bucketObjectLock", "compliance:2d")])).unwrap();
        assert_eq!(class.asked_tags(&claim), of(&[("team", "b"), ("stage", "test")]));
        assert_eq!(class.asked_tags(&Config::default()), of(&[("team", "a"), ("stage", "test")]));
        assert_eq!(class.lock(&Config::default()), Some(ObjectLock { mode: LockMode::Governance, days: 1 }));
        assert_eq!(class.lock(&claim), Some(ObjectLock { mode: LockMode::Compliance, days: 2 }));
    }

    #[test]
    fn rejects_classes_with_invalid_values() {
        let class = |key: &str, value: &str| {
            let texts = [(key.to_owned(), value.to_owned())].into();
            from_map::<Parameters>(&texts).map_err(|error| error.to_string())
        };
        for (key, value, problem) in [
            ("region", "Frankfurt", "expected a region, such as eu-central-1"),
            ("endpoint", "store:9000", "expected an endpoint"),
            ("endpoint", "http://store/s3/", "has no path"),
            ("iamEndpoint", "http://store/iam", "has no path"),
            ("adminRoleArn", "admin", "expected an ARN of IAM"),
            ("adminRoleArn", "arn:aws:s3:::bucket", "expected an ARN of IAM"),
            ("permissionsBoundary", "arn:aws:iam::1:policy/", "expected an ARN of IAM"),
            ("permissionsBoundary", "arn:aws:iam::1:user/me", "expected an ARN of IAM"),
            ("oidcProviderArn", "arn:aws:iam::1:role/x", "is not an OIDC provider"),
        ] {
            let error = class(key, value).unwrap_err();
            assert!(error.starts_with(&format!("parameter {key:?}: ")) && error.contains(problem), "{error}");
        }
        for (key, value) in [
            ("endpoint", ""),
            ("iamEndpoint", ""),
            ("adminRoleArn", ""),
            ("permissionsBoundary", ""),
            ("endpoint", "http://store:9000/"),
            ("adminRoleArn", "arn:aws-cn:iam::123456789012:role/path/admin"),
            ("permissionsBoundary", "arn:aws:iam::aws:policy/AdministratorAccess"),
        ] {
            class(key, value).unwrap();
        }
    }

    #[test]
    fn rejects_classes_that_expose_the_administrators_key() {
        assert!(CreateBucketUser::try_from("no".to_owned()).is_err());
        assert!(CreateBucketUser::try_from("yes".to_owned()).is_ok());
    }
}
