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

/// The parameters of a new bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBucket<'a> {
    /// The `LocationConstraint`; without it the service chooses.
    pub location: Option<&'a str>,
    /// The tags that the bucket has from its creation.
    pub tags: Option<&'a BTreeMap<String, String>>,
    /// The ownership rule for new objects: AWS defaults to `BucketOwnerEnforced`.
    pub ownership: Option<&'a str>,
    /// True if objects can be locked against deletion. Such a bucket is versioned.
    pub object_lock: bool,
    /// The canonical id of a user who may read the bucket's ACL.
    pub acl_reader: Option<&'a str>,
    /// The default storage class of objects. Ceph supports this header on bucket creation.
    pub storage_class: Option<&'a str>,
    /// The AWS namespace of the name: `account-regional` for names that only this account can use.
    pub namespace: Option<&'a str>,
}

impl Client {
    /// Creates a bucket. `location` is the `LocationConstraint`; without it the service chooses.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `BucketAlreadyOwnedByYou` or `BucketAlreadyExists`, if the request fails. Some
    /// services report success for a bucket that the key's user already owns.
    pub async fn create_bucket(&self, name: &str, location: Option<&str>) -> Result<(), Error> {
        self.create_bucket_with(name, NewBucket { location, ..NewBucket::default() }).await
    }

    /// Creates a bucket with additional settings. The request is sent once: if a service reports success for a second
    /// creation, another client may have created the bucket in the meantime.
    ///
    /// # Errors
    /// Same as for [`create_bucket`](Self::create_bucket). Some services refuse tags, or silently ignore them.
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

    /// Sets the ownership rule for objects that are written to a bucket.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn put_bucket_ownership(&self, name: &str, rule: &str) -> Result<(), Error> {
        let rule = OwnershipControlsRule::builder().object_ownership(rule.into()).build().map_err(incomplete)?;
        let controls = OwnershipControls::builder().rules(rule).build().map_err(incomplete)?;
        let put = self.sdk.put_bucket_ownership_controls().bucket(name).ownership_controls(controls);
        self.read(put.send().await).map(drop)
    }

    /// Returns the ownership rule for objects written to a bucket, such as `BucketOwnerEnforced`. Returns `None` if
    /// there is none.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails. Many services do not support such rules and refuse the request.
    pub async fn bucket_ownership(&self, name: &str) -> Result<Option<String>, Error> {
        let answer = self.sdk.get_bucket_ownership_controls().bucket(name).send().await;
        let controls = self.none_if_code(&["OwnershipControlsNotFoundError"], answer)?;
        let controls = controls.and_then(|answer| answer.ownership_controls);
        let rule = controls.and_then(|controls| controls.rules.into_iter().next());
        Ok(rule.map(|rule| rule.object_ownership.as_str().to_owned()).filter(|rule| !rule.is_empty()))
    }

    /// Returns the canonical ids of users with an explicit grant to read a bucket's ACL.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn bucket_acl_readers(&self, name: &str) -> Result<Vec<String>, Error> {
        let acl = self.read(self.sdk.get_bucket_acl().bucket(name).send().await)?;
        let grants = acl.grants.unwrap_or_default().into_iter();
        let readers = grants.filter(|grant| grant.permission == Some(Permission::ReadAcp));
        Ok(readers.filter_map(|grant| grant.grantee?.id).collect())
    }

    /// Returns true if a bucket exists that this key may access.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails, with status 403 for another user's bucket.
    pub async fn bucket_exists(&self, name: &str) -> Result<bool, Error> {
        match self.read(self.sdk.head_bucket().bucket(name).send().await) {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes an empty bucket. Returns true if it existed.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `BucketNotEmpty`, if the request fails.
    pub async fn delete_bucket(&self, name: &str) -> Result<bool, Error> {
        let deleted = self.sdk.delete_bucket().bucket(name).send().await;
        Ok(self.none_if_code(&["NoSuchBucket"], deleted)?.is_some())
    }

    /// Returns the names of the buckets of this key's user.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn list_buckets(&self) -> Result<Vec<String>, Error> {
        // AWS refuses requests without a page size for accounts with a quota of more than 10 000 buckets.
        let buckets = self.sdk.list_buckets().into_paginator().page_size(1000).items().send();
        let buckets = self.read(buckets.collect::<Result<Vec<_>, _>>().await)?;
        Ok(buckets.into_iter().filter_map(|bucket| bucket.name).collect())
    }
}
