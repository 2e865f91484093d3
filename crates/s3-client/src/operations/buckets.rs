//! Buckets.

use std::collections::BTreeMap;

use aws_sdk_s3::config::Config;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::types::{
    BucketLocationConstraint, CreateBucketConfiguration, ObjectOwnership, OwnershipControls, OwnershipControlsRule,
    Permission,
};

use super::{incomplete, tags};
use crate::client::Client;
use crate::error::Error;

/// A bucket that is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBucket<'a> {
    /// The `LocationConstraint`; without it the service chooses.
    pub location: Option<&'a str>,
    /// The tags that the bucket has from the first moment.
    pub tags: Option<&'a BTreeMap<String, String>>,
    /// Who owns the objects that are written: AWS takes `BucketOwnerEnforced` where nothing is said.
    pub ownership: Option<&'a str>,
    /// Whether objects can be locked against deletion. Such a bucket keeps versions.
    pub object_lock: bool,
    /// Who may read the bucket's ACL, by the canonical id.
    pub acl_reader: Option<&'a str>,
    /// The storage class of objects that name none. Ceph knows this header of a new bucket.
    pub storage_class: Option<&'a str>,
    /// AWS' namespace of the name: `account-regional` for names that only this account can have.
    pub namespace: Option<&'a str>,
}

impl Client {
    /// Makes a bucket. `location` is the `LocationConstraint`; without it the service chooses.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou` and `BucketAlreadyExists` among others; some services take a bucket of the own key's for a
    /// success.
    pub async fn create_bucket(&self, name: &str, location: Option<&str>) -> Result<(), Error> {
        self.create_bucket_with(name, NewBucket { location, ..NewBucket::default() }).await
    }

    /// Makes a bucket with more than a name. The request is sent once: in a service that takes the second creation for a success,
    /// somebody else may have made the bucket meanwhile.
    ///
    /// # Errors
    /// As of [`create_bucket`](Self::create_bucket). Some services refuse tags, or leave them out in silence.
    pub async fn create_bucket_with(&self, name: &str, new: NewBucket<'_>) -> Result<(), Error> {
        let tags = new.tags.filter(|tags| !tags.is_empty()).map(tags).transpose()?;
        let configuration = (new.location.is_some() || tags.is_some()).then(|| {
            CreateBucketConfiguration::builder()
                .set_location_constraint(new.location.map(BucketLocationConstraint::from))
                .set_tags(tags)
                .build()
        });
        let request = self
            .sdk
            .create_bucket()
            .bucket(name)
            .set_create_bucket_configuration(configuration)
            .set_object_ownership(new.ownership.map(ObjectOwnership::from))
            .set_object_lock_enabled_for_bucket(new.object_lock.then_some(true))
            .set_grant_read_acp(new.acl_reader.map(|id| format!("id=\"{id}\"")));
        let once = Config::builder().retry_config(RetryConfig::disabled());
        let headers = [("x-amz-storage-class", new.storage_class), ("x-amz-bucket-namespace", new.namespace)];
        let headers = headers.map(|(name, value)| (name, value.map(str::to_owned)));
        let request = request.customize().config_override(once).mutate_request(move |request| {
            for (name, value) in &headers {
                if let Some(value) = value {
                    request.headers_mut().insert(*name, value.clone());
                }
            }
        });
        self.read(request.send().await).map(drop)
    }

    /// Sets who owns the objects that are written to a bucket.
    ///
    /// # Errors
    /// As of every request.
    pub async fn put_bucket_ownership(&self, name: &str, rule: &str) -> Result<(), Error> {
        let rule = OwnershipControlsRule::builder().object_ownership(rule.into()).build().map_err(incomplete)?;
        let controls = OwnershipControls::builder().rules(rule).build().map_err(incomplete)?;
        let put = self.sdk.put_bucket_ownership_controls().bucket(name).ownership_controls(controls);
        self.read(put.send().await).map(drop)
    }

    /// Who owns the objects that are written to a bucket: its rule, such as `BucketOwnerEnforced`. `None` where it has none.
    ///
    /// # Errors
    /// As of every request. Many services have no such rules and refuse the question.
    pub async fn bucket_ownership(&self, name: &str) -> Result<Option<String>, Error> {
        let answer = self.sdk.get_bucket_ownership_controls().bucket(name).send().await;
        let controls = self.unless(&["OwnershipControlsNotFoundError"], answer)?;
        let controls = controls.and_then(|answer| answer.ownership_controls);
        let rule = controls.and_then(|controls| controls.rules.into_iter().next());
        Ok(rule.map(|rule| rule.object_ownership.as_str().to_owned()).filter(|rule| !rule.is_empty()))
    }

    /// The canonical ids of those who may read a bucket's ACL by a grant of their own.
    ///
    /// # Errors
    /// As of every request.
    pub async fn bucket_acl_readers(&self, name: &str) -> Result<Vec<String>, Error> {
        let acl = self.read(self.sdk.get_bucket_acl().bucket(name).send().await)?;
        let grants = acl.grants.unwrap_or_default().into_iter();
        let readers = grants.filter(|grant| grant.permission == Some(Permission::ReadAcp));
        Ok(readers.filter_map(|grant| grant.grantee?.id).collect())
    }

    /// Whether a bucket exists that this key may see.
    ///
    /// # Errors
    /// Status 403 for a bucket of somebody else's.
    pub async fn bucket_exists(&self, name: &str) -> Result<bool, Error> {
        match self.read(self.sdk.head_bucket().bucket(name).send().await) {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes an empty bucket. Whether there was one is the answer.
    ///
    /// # Errors
    /// `BucketNotEmpty` among others.
    pub async fn delete_bucket(&self, name: &str) -> Result<bool, Error> {
        let deleted = self.sdk.delete_bucket().bucket(name).send().await;
        Ok(self.unless(&["NoSuchBucket"], deleted)?.is_some())
    }

    /// The names of the buckets of this key's user.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_buckets(&self) -> Result<Vec<String>, Error> {
        let answer = self.read(self.sdk.list_buckets().send().await)?;
        Ok(answer.buckets.unwrap_or_default().into_iter().filter_map(|bucket| bucket.name).collect())
    }
}
