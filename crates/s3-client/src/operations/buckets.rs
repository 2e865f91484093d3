//! Buckets.

use std::collections::BTreeMap;

use http::Method;

use super::{bucket, tag_elements, unless};
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

/// A bucket that is to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBucket<'a> {
    /// The `LocationConstraint`; without it the service chooses.
    pub location: Option<&'a str>,
    /// The tags that the bucket has from the first moment.
    pub tags: Option<&'a BTreeMap<String, String>>,
    /// Who owns the objects that are written: `BucketOwnerEnforced` is what AWS does where nothing is said.
    pub ownership: Option<&'a str>,
    /// Whether objects can be locked against deletion. Such a bucket keeps versions.
    pub object_lock: bool,
    /// Whether the request is sent once, also where the service has too much to do. In a service that takes the second creation for
    /// a success, somebody else may have made the bucket meanwhile.
    pub once: bool,
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

    /// Makes a bucket with more than a name.
    ///
    /// # Errors
    /// As of [`create_bucket`](Self::create_bucket). Some services refuse tags, or leave them out in silence.
    pub async fn create_bucket_with(&self, name: &str, new: NewBucket<'_>) -> Result<(), Error> {
        self.done(creation(name, new)).await
    }

    /// Who owns the objects that are written to a bucket: its rule, such as `BucketOwnerEnforced`. `None` where it has none.
    ///
    /// # Errors
    /// As of every request. Many services have no such rules and refuse the question.
    pub async fn bucket_ownership(&self, name: &str) -> Result<Option<String>, Error> {
        let request = bucket(Method::GET, name).query("ownershipControls", "");
        let answer = self.xml(request, "OwnershipControls").await;
        let Some(controls) = unless(answer, &["OwnershipControlsNotFoundError"])? else { return Ok(None) };
        let rule = controls.child("Rule").map(|rule| rule.text_of("ObjectOwnership").to_owned());
        Ok(rule.filter(|rule| !rule.is_empty()))
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

fn creation(name: &str, new: NewBucket<'_>) -> Request {
    let mut request = bucket(Method::PUT, name);
    if new.object_lock {
        request = request.header("x-amz-bucket-object-lock-enabled", "true");
    }
    if new.once {
        request = request.once();
    }
    if let Some(ownership) = new.ownership {
        request = request.header("x-amz-object-ownership", ownership);
    }
    let location = new.location.map(|location| Element::with_text("LocationConstraint", location));
    let tags = new.tags.filter(|tags| !tags.is_empty()).map(|tags| Element::new("Tags", tag_elements(tags)));
    let parts: Vec<Element> = location.into_iter().chain(tags).collect();
    match parts.is_empty() {
        true => request,
        false => request.body(Element::new("CreateBucketConfiguration", parts).write()),
    }
}
