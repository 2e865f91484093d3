//! Buckets.

use http::Method;

use super::{bucket, unless};
use crate::client::{Client, Request};
use crate::error::Error;
use crate::xml::Element;

/// A bucket in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BucketInfo {
    /// Its name.
    pub name: String,
    /// When it was made, as the service writes it.
    pub created: String,
}

impl Client {
    /// Makes a bucket. `location` is the `LocationConstraint`; without it the service chooses.
    ///
    /// # Errors
    /// `BucketAlreadyOwnedByYou` and `BucketAlreadyExists` among others; some services take a bucket of the own key's for a
    /// success.
    pub async fn create_bucket(&self, name: &str, location: Option<&str>) -> Result<(), Error> {
        self.done(creation(name, location)).await
    }

    /// Makes a bucket whose objects can be locked against deletion. It keeps versions.
    ///
    /// # Errors
    /// As of [`create_bucket`](Self::create_bucket).
    pub async fn create_bucket_with_object_lock(&self, name: &str, location: Option<&str>) -> Result<(), Error> {
        self.done(creation(name, location).header("x-amz-bucket-object-lock-enabled", "true")).await
    }

    /// Whether a bucket exists that this key may see.
    ///
    /// # Errors
    /// Status 403 for a bucket of somebody else's.
    pub async fn bucket_exists(&self, name: &str) -> Result<bool, Error> {
        match self.done(bucket(Method::HEAD, name)).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Deletes an empty bucket. Whether there was one is the answer.
    ///
    /// # Errors
    /// `BucketNotEmpty` among others.
    pub async fn delete_bucket(&self, name: &str) -> Result<bool, Error> {
        let deleted = self.done(bucket(Method::DELETE, name)).await;
        Ok(unless(deleted, &["NoSuchBucket"])?.is_some())
    }

    /// The buckets of this key's user.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_buckets(&self) -> Result<Vec<BucketInfo>, Error> {
        let answer = self.xml(bucket(Method::GET, ""), "ListAllMyBucketsResult").await?;
        let buckets = answer.child("Buckets").into_iter().flat_map(|buckets| buckets.all("Bucket"));
        let info = |bucket: &Element| BucketInfo {
            name: bucket.text_of("Name").to_owned(),
            created: bucket.text_of("CreationDate").to_owned(),
        };
        Ok(buckets.map(info).collect())
    }
}

fn creation(name: &str, location: Option<&str>) -> Request {
    let request = bucket(Method::PUT, name);
    match location {
        None => request,
        Some(location) => {
            let location = Element::with_text("LocationConstraint", location);
            request.body(Element::new("CreateBucketConfiguration", vec![location]).write())
        }
    }
}
