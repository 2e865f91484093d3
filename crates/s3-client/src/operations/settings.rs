//! Policy, lifecycle, tags and versioning of a bucket.

use std::collections::BTreeMap;

use http::Method;

use super::{bucket, tag_elements, unless, with_checked_body};
use crate::client::{Client, Request, Response};
use crate::error::Error;
use crate::lifecycle::Lifecycle;
use crate::policy::{Policy, PolicyError};
use crate::xml::Element;

impl Client {
    /// A bucket's policy; an empty one where there is none.
    ///
    /// # Errors
    /// As of every request. The inner error is of a policy that cannot be read.
    pub async fn bucket_policy(&self, name: &str) -> Result<Result<Policy, PolicyError>, Error> {
        let answer = self.request(bucket(Method::GET, name).query("policy", "")).await;
        let text = unless(answer, &["NoSuchBucketPolicy"])?.map(|Response { body, .. }| body);
        Ok(text.map_or_else(|| Ok(Policy::default()), |text| Policy::parse(&String::from_utf8_lossy(&text))))
    }

    /// Sets a bucket's policy. One without statements is deleted: S3 knows no empty ones.
    ///
    /// # Errors
    /// As of every request; `MalformedPolicy` among others.
    pub async fn put_bucket_policy(&self, name: &str, policy: &Policy) -> Result<(), Error> {
        if policy.is_empty() {
            return self.delete_bucket_policy(name).await;
        }
        self.done(bucket(Method::PUT, name).query("policy", "").body(policy.to_string()).repeatable()).await
    }

    /// Deletes a bucket's policy. It is no error that there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_bucket_policy(&self, name: &str) -> Result<(), Error> {
        self.deleted(name, "policy", "NoSuchBucketPolicy").await
    }

    /// A bucket's lifecycle; an empty one where there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn bucket_lifecycle(&self, name: &str) -> Result<Lifecycle, Error> {
        let request = bucket(Method::GET, name).query("lifecycle", "");
        let answer = self.xml(request, "LifecycleConfiguration").await;
        let lifecycle = unless(answer, &["NoSuchLifecycleConfiguration"])?.map(|answer| Lifecycle::from_xml(&answer));
        Ok(lifecycle.unwrap_or_default())
    }

    /// Sets a bucket's lifecycle. One without rules is deleted.
    ///
    /// # Errors
    /// As of every request; `MalformedXML` and `InvalidArgument` among others.
    pub async fn put_bucket_lifecycle(&self, name: &str, lifecycle: &Lifecycle) -> Result<(), Error> {
        if lifecycle.is_empty() {
            return self.deleted(name, "lifecycle", "NoSuchLifecycleConfiguration").await;
        }
        let request = bucket(Method::PUT, name).query("lifecycle", "");
        self.done(with_checked_body(request, lifecycle.to_xml().write())).await
    }

    /// A bucket's tags.
    ///
    /// # Errors
    /// As of every request.
    pub async fn bucket_tagging(&self, name: &str) -> Result<BTreeMap<String, String>, Error> {
        let answer = self.xml(bucket(Method::GET, name).query("tagging", ""), "Tagging").await;
        let Some(tagging) = unless(answer, &["NoSuchTagSet", "NoSuchTagSetError"])? else {
            return Ok(BTreeMap::new());
        };
        let tags = tagging.child("TagSet").into_iter().flat_map(|set| set.all("Tag"));
        Ok(tags.map(|tag| (tag.text_of("Key").to_owned(), tag.text_of("Value").to_owned())).collect())
    }

    /// Sets all tags of a bucket.
    ///
    /// # Errors
    /// As of every request.
    pub async fn put_bucket_tagging(&self, name: &str, tags: &BTreeMap<String, String>) -> Result<(), Error> {
        let set = Element::new("TagSet", tag_elements(tags));
        let body = Element::new("Tagging", vec![set]).write();
        self.done(with_checked_body(bucket(Method::PUT, name).query("tagging", ""), body)).await
    }

    /// Whether a bucket keeps the versions of its objects.
    ///
    /// # Errors
    /// As of every request.
    pub async fn bucket_versioning(&self, name: &str) -> Result<bool, Error> {
        let request = bucket(Method::GET, name).query("versioning", "");
        Ok(self.xml(request, "VersioningConfiguration").await?.text_of("Status") == "Enabled")
    }

    /// Lets a bucket keep the versions of its objects, or not any more.
    ///
    /// # Errors
    /// As of every request.
    pub async fn put_bucket_versioning(&self, name: &str, enabled: bool) -> Result<(), Error> {
        let status = Element::with_text("Status", if enabled { "Enabled" } else { "Suspended" });
        let body = Element::new("VersioningConfiguration", vec![status]).write();
        self.done(with_checked_body(bucket(Method::PUT, name).query("versioning", ""), body)).await
    }

    /// Keeps a bucket and its objects from ever being public, whatever policies and ACLs say.
    ///
    /// # Errors
    /// As of every request.
    pub async fn put_public_access_block(&self, name: &str) -> Result<(), Error> {
        let blocks = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"];
        let blocks = blocks.map(|block| Element::with_text(block, "true")).into();
        let body = Element::new("PublicAccessBlockConfiguration", blocks).write();
        self.done(with_checked_body(bucket(Method::PUT, name).query("publicAccessBlock", ""), body)).await
    }

    /// Lets policies and ACLs of a bucket make it public. AWS blocks that in every new bucket.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_public_access_block(&self, name: &str) -> Result<(), Error> {
        self.deleted(name, "publicAccessBlock", "NoSuchPublicAccessBlockConfiguration").await
    }

    /// Lets a bucket encrypt what is written by this key of KMS.
    ///
    /// # Errors
    /// As of every request.
    pub async fn put_bucket_encryption(&self, name: &str, kms_key: &str) -> Result<(), Error> {
        let by_default =
            vec![Element::with_text("SSEAlgorithm", "aws:kms"), Element::with_text("KMSMasterKeyID", kms_key)];
        let by_default = Element::new("ApplyServerSideEncryptionByDefault", by_default);
        // One request to KMS for many objects.
        let rule = Element::new("Rule", vec![by_default, Element::with_text("BucketKeyEnabled", "true")]);
        let body = Element::new("ServerSideEncryptionConfiguration", vec![rule]).write();
        self.done(with_checked_body(bucket(Method::PUT, name).query("encryption", ""), body)).await
    }

    /// Lets a bucket with object lock keep each new version for so many days. `mode` is `GOVERNANCE` or `COMPLIANCE`.
    ///
    /// # Errors
    /// `InvalidBucketState` for a bucket without object lock, among others.
    pub async fn put_object_lock(&self, name: &str, mode: &str, days: u32) -> Result<(), Error> {
        let retention = vec![Element::with_text("Mode", mode), Element::with_text("Days", days.to_string())];
        let rule = Element::new("Rule", vec![Element::new("DefaultRetention", retention)]);
        let enabled = Element::with_text("ObjectLockEnabled", "Enabled");
        let body = Element::new("ObjectLockConfiguration", vec![enabled, rule]).write();
        self.done(with_checked_body(bucket(Method::PUT, name).query("object-lock", ""), body)).await
    }

    async fn deleted(&self, name: &str, setting: &str, absent: &str) -> Result<(), Error> {
        let request: Request = bucket(Method::DELETE, name).query(setting, "");
        unless(self.done(request).await, &[absent]).map(drop)
    }
}
