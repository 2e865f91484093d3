//! What classes and claims say.

use kube_provisioner::bucket::{Access, Authentication, DeletionPolicy, Versioning};
use s3_client::lifecycle::Lifecycle;
use s3_client::policy::Policy;
use s3_client::tags::Tags;
use serde::Deserialize;

use crate::region::Region;
use crate::role::OidcProvider;

/// Keys of `additionalConfig` that are looked up among those that were applied.
pub(crate) const BUCKET_POLICY: &str = "bucketPolicy";
pub(crate) const BUCKET_TAGS: &str = "bucketTags";

/// The parameters of a class, among them those of the provisioner of 2019.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parameters {
    pub(crate) region: Option<RegionName>,
    /// Whether it is AWS, where its address does not say so.
    pub(crate) store: Option<StoreKind>,
    /// S3's address, where it is not the region's own.
    pub(crate) endpoint: Option<String>,
    /// IAM's address, where it is not the partition's own.
    pub(crate) iam_endpoint: Option<String>,
    /// The role whose account the buckets are in. The administrator's key or the provisioner's own takes it.
    pub(crate) admin_role_arn: Option<String>,
    pub(crate) external_id: Option<String>,
    pub(crate) access_mode: Access,
    /// Whether claims get keys.
    pub(crate) authentication: Authentication,
    /// For claims that name none.
    pub(crate) service_account: Option<String>,
    pub(crate) oidc_provider_arn: Option<OidcProvider>,
    /// Whether a bucket with objects is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
    /// Of 2019.
    pub(crate) create_bucket_user: CreateBucketUser,
    pub(crate) permissions_boundary: Option<String>,
    /// Without a word it is blocked where the store can do that.
    pub(crate) block_public_access: Option<bool>,
    /// The key that objects are encrypted with; without one, S3's own.
    pub(crate) kms_key_id: Option<String>,
    pub(crate) versioning: bool,
    pub(crate) lifecycle: Option<Lifecycle>,
    pub(crate) object_lock: Option<ObjectLock>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            region: None,
            store: None,
            endpoint: None,
            iam_endpoint: None,
            admin_role_arn: None,
            external_id: None,
            access_mode: Access::default(),
            authentication: Authentication::default(),
            service_account: None,
            oidc_provider_arn: None,
            deletion_policy: DeletionPolicy::default(),
            create_bucket_user: CreateBucketUser,
            permissions_boundary: None,
            block_public_access: None,
            kms_key_id: None,
            versioning: false,
            lifecycle: None,
            object_lock: None,
        }
    }
}

impl Parameters {
    /// The key of KMS that the bucket is encrypted with.
    pub(crate) fn kms_key(&self) -> Option<&str> {
        self.kms_key_id.as_deref().filter(|key| !key.is_empty())
    }
}

/// AWS itself, or another store that speaks its dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Aws,
    SeaweedFs,
    Other,
}

/// A claim's `additionalConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    pub(crate) access_mode: Option<Access>,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) service_account: Option<String>,
    pub(crate) bucket_lifecycle: Option<Lifecycle>,
    pub(crate) bucket_policy: Option<Policy>,
    pub(crate) bucket_tags: Option<Tags>,
    pub(crate) bucket_versioning: Option<Versioning>,
}

impl Config {
    /// The keys that are about the bucket and not about the claim's own user, and whether they are set.
    pub(crate) fn bucket_settings(&self) -> [(&'static str, bool); 4] {
        [
            ("bucketLifecycle", self.bucket_lifecycle.is_some()),
            (BUCKET_POLICY, self.bucket_policy.is_some()),
            (BUCKET_TAGS, self.bucket_tags.is_some()),
            ("bucketVersioning", self.bucket_versioning.is_some()),
        ]
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RegionName(pub(crate) Region);

impl TryFrom<String> for RegionName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Region::new(&text).map(Self).ok_or_else(|| format!("{text:?} is no region, such as eu-central-1"))
    }
}

/// `createBucketUser` of the provisioner of 2019. Without a user, its claims got the administrator's key.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct CreateBucketUser;

impl TryFrom<String> for CreateBucketUser {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "no" => {
                Err("claims would get the administrator's key: every claim has a user of its own, so leave it out"
                    .into())
            }
            _ => Ok(Self),
        }
    }
}

/// How long new versions cannot be deleted: `governance:30d` or `compliance:30d`.
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
            || format!("{text:?} is no lock: expected governance:DAYSd or compliance:DAYSd, such as governance:30d");
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
    use super::*;

    #[test]
    fn locks() {
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
    fn nobody_gets_the_administrators_key() {
        assert!(CreateBucketUser::try_from("no".to_owned()).is_err());
        assert!(CreateBucketUser::try_from("yes".to_owned()).is_ok());
    }
}
