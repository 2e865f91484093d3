//! Policy, lifecycle, tags and other settings of a bucket.

use std::collections::BTreeMap;

use aws_sdk_s3::types::{
    BucketVersioningStatus, DefaultRetention, ObjectLockConfiguration, ObjectLockEnabled, ObjectLockRetentionMode,
    ObjectLockRule, PublicAccessBlockConfiguration, ServerSideEncryption, ServerSideEncryptionByDefault,
    ServerSideEncryptionConfiguration, ServerSideEncryptionRule, Tagging, VersioningConfiguration,
};

use super::{incomplete, tags};
use crate::client::Client;
use crate::error::Error;
use crate::lifecycle::Lifecycle;
use crate::policy::Policy;

impl Client {
    /// Returns a bucket's policy; empty if there is none.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails, or [`Error::Policy`] if the policy cannot be parsed.
    pub async fn bucket_policy(&self, name: &str) -> Result<Policy, Error> {
        let answer = self.sdk.get_bucket_policy().bucket(name).send().await;
        let text = self.none_if_code(&["NoSuchBucketPolicy"], answer)?.and_then(|answer| answer.policy);
        Ok(text.map_or_else(|| Ok(Policy::default()), |text| Policy::parse(&text))?)
    }

    /// Sets a bucket's policy. A policy without statements is deleted, because S3 has no empty policies.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `MalformedPolicy`, if the request fails.
    pub async fn put_bucket_policy(&self, name: &str, policy: &Policy) -> Result<(), Error> {
        if policy.is_empty() {
            return self.delete_bucket_policy(name).await;
        }
        self.read(self.sdk.put_bucket_policy().bucket(name).policy(policy.to_string()).send().await).map(drop)
    }

    /// Deletes a bucket's policy. Succeeds if there is none.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_bucket_policy(&self, name: &str) -> Result<(), Error> {
        self.none_if_code(&["NoSuchBucketPolicy"], self.sdk.delete_bucket_policy().bucket(name).send().await).map(drop)
    }

    /// Returns a bucket's lifecycle; empty if there is none.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn bucket_lifecycle(&self, name: &str) -> Result<Lifecycle, Error> {
        let answer = self.sdk.get_bucket_lifecycle_configuration().bucket(name).send().await;
        let answer = self.none_if_code(&["NoSuchLifecycleConfiguration"], answer)?;
        Ok(Lifecycle { rules: answer.and_then(|answer| answer.rules).unwrap_or_default() })
    }

    /// Sets a bucket's lifecycle. A lifecycle without rules is deleted.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `MalformedXML` or `InvalidArgument`, if the request fails.
    pub async fn put_bucket_lifecycle(&self, name: &str, lifecycle: &Lifecycle) -> Result<(), Error> {
        if lifecycle.is_empty() {
            let deleted = self.sdk.delete_bucket_lifecycle().bucket(name).send().await;
            return self.none_if_code(&["NoSuchLifecycleConfiguration"], deleted).map(drop);
        }
        let put = self.sdk.put_bucket_lifecycle_configuration().bucket(name);
        self.read(put.lifecycle_configuration(lifecycle.configuration()?).send().await).map(drop)
    }

    /// Returns a bucket's tags.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn bucket_tagging(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let answer = self.sdk.get_bucket_tagging().bucket(name).send().await;
        let answer = self.none_if_code(&["NoSuchTagSet", "NoSuchTagSetError"], answer)?;
        let tags = answer.map(|answer| answer.tag_set).unwrap_or_default();
        Ok(tags.into_iter().map(|tag| (tag.key, tag.value)).collect())
    }

    /// Replaces all tags of a bucket.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn put_bucket_tagging(&self, name: &str, wanted: &BTreeMap<String, String>) -> Result<(), Error> {
        let tagging = Tagging::builder().set_tag_set(Some(tags(wanted)?)).build().map_err(incomplete)?;
        self.read(self.sdk.put_bucket_tagging().bucket(name).tagging(tagging).send().await).map(drop)
    }

    /// Returns true if a bucket keeps the versions of its objects; `None` if versioning was never configured.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn bucket_versioning(&self, name: &str) -> Result<Option<bool>, Error> {
        let answer = self.read(self.sdk.get_bucket_versioning().bucket(name).send().await)?;
        Ok(answer.status.map(|status| status == BucketVersioningStatus::Enabled))
    }

    /// Enables or suspends versioning of a bucket.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn put_bucket_versioning(&self, name: &str, enabled: bool) -> Result<(), Error> {
        let status = if enabled { BucketVersioningStatus::Enabled } else { BucketVersioningStatus::Suspended };
        let wanted = VersioningConfiguration::builder().status(status).build();
        let put = self.sdk.put_bucket_versioning().bucket(name).versioning_configuration(wanted);
        self.read(put.send().await).map(drop)
    }

    /// Blocks all public access to a bucket and its objects, whatever policies and ACLs allow.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn put_public_access_block(&self, name: &str) -> Result<(), Error> {
        let blocks = PublicAccessBlockConfiguration::builder()
            .block_public_acls(true)
            .ignore_public_acls(true)
            .block_public_policy(true)
            .restrict_public_buckets(true)
            .build();
        let put = self.sdk.put_public_access_block().bucket(name).public_access_block_configuration(blocks);
        self.read(put.send().await).map(drop)
    }

    /// Allows policies and ACLs of a bucket to make it public. AWS blocks that in every new bucket.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_public_access_block(&self, name: &str) -> Result<(), Error> {
        let deleted = self.sdk.delete_public_access_block().bucket(name).send().await;
        self.none_if_code(&["NoSuchPublicAccessBlockConfiguration"], deleted).map(drop)
    }

    /// Makes a bucket encrypt new objects with this KMS key.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn put_bucket_encryption(&self, name: &str, kms_key: &str) -> Result<(), Error> {
        let by_default = ServerSideEncryptionByDefault::builder();
        let by_default = by_default.sse_algorithm(ServerSideEncryption::AwsKms).kms_master_key_id(kms_key);
        let by_default = by_default.build().map_err(incomplete)?;
        // A bucket key allows one KMS request for many objects.
        let rule = ServerSideEncryptionRule::builder().bucket_key_enabled(true);
        let rule = rule.apply_server_side_encryption_by_default(by_default).build();
        let rules = ServerSideEncryptionConfiguration::builder().rules(rule).build().map_err(incomplete)?;
        let put = self.sdk.put_bucket_encryption().bucket(name).server_side_encryption_configuration(rules);
        self.read(put.send().await).map(drop)
    }

    /// Makes a bucket with object lock retain each new version for this number of days. `mode` is `GOVERNANCE` or
    /// `COMPLIANCE`.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `InvalidBucketState` for a bucket without object lock, if the request fails.
    pub async fn put_object_lock(&self, name: &str, mode: &str, days: u32) -> Result<(), Error> {
        let retention = DefaultRetention::builder().mode(ObjectLockRetentionMode::from(mode));
        let retention = retention.days(days.try_into().unwrap_or(i32::MAX)).build();
        let rule = ObjectLockRule::builder().default_retention(retention).build();
        let lock = ObjectLockConfiguration::builder().object_lock_enabled(ObjectLockEnabled::Enabled).rule(rule);
        let put = self.sdk.put_object_lock_configuration().bucket(name).object_lock_configuration(lock.build());
        self.read(put.send().await).map(drop)
    }
}
