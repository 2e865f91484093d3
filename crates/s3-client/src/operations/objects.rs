//! Objects.

use bytes::Bytes;
use http::Method;

use super::listings::ObjectVersion;
use super::{bucket, object, unless, with_checked_body};
use crate::client::{Client, Response};
use crate::error::Error;
use crate::xml::Element;

impl Client {
    /// Writes an object.
    ///
    /// # Errors
    /// As of every request; `QuotaExceeded` among others.
    pub async fn put_object(&self, bucket: &str, key: &str, body: impl Into<Bytes>) -> Result<(), Error> {
        self.done(object(Method::PUT, bucket, key).body(body)).await
    }

    /// Reads an object. `None` where there is none.
    ///
    /// # Errors
    /// As of every request; an object longer than the client's limit for answers is not read.
    pub async fn get_object(&self, bucket: &str, key: &str) -> Result<Option<Bytes>, Error> {
        let answer = self.request(object(Method::GET, bucket, key)).await.map(|Response { body, .. }| body);
        unless(answer, &["NoSuchKey"])
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// As of every request.
    pub async fn object_exists(&self, bucket: &str, key: &str) -> Result<bool, Error> {
        match self.done(object(Method::HEAD, bucket, key)).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Deletes an object. It is no error that there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<(), Error> {
        unless(self.done(object(Method::DELETE, bucket, key)).await, &["NoSuchKey"]).map(drop)
    }

    /// Deletes up to 1000 versions of objects for good.
    ///
    /// # Errors
    /// [`Error::Object`] names the first that could not be deleted; the others may be.
    pub async fn delete_objects(&self, name: &str, versions: &[ObjectVersion]) -> Result<(), Error> {
        let named = |version: &ObjectVersion| {
            let mut parts = vec![Element::with_text("Key", &version.key)];
            if let Some(id) = &version.version_id {
                parts.push(Element::with_text("VersionId", id));
            }
            Element::new("Object", parts)
        };
        let mut parts: Vec<Element> = versions.iter().map(named).collect();
        parts.push(Element::with_text("Quiet", "true"));
        let body = Element::new("Delete", parts).write();
        let request = with_checked_body(bucket(Method::POST, name).query("delete", ""), body);
        let answer = self.xml(request, "DeleteResult").await?;
        let gone = ["NoSuchKey", "NoSuchVersion"];
        match answer.all("Error").find(|error| !gone.contains(&error.text_of("Code"))) {
            None => Ok(()),
            Some(error) => {
                let text = |name| error.text_of(name).to_owned();
                Err(Error::Object { key: text("Key"), code: text("Code") })
            }
        }
    }

    /// Deletes a page of a bucket's versions, or, when there are none, ends a page of its uploads. The answer is how many
    /// there were: 0 means that the bucket is empty.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call goes on.
    pub async fn delete_some(&self, name: &str) -> Result<usize, Error> {
        match self.delete_some_versions(name).await? {
            0 => self.abort_some_uploads(name).await,
            count => Ok(count),
        }
    }

    /// Deletes all objects of a bucket with all their versions, and ends all uploads, page by page.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call goes on.
    pub async fn empty_bucket(&self, name: &str) -> Result<(), Error> {
        while self.delete_some_versions(name).await? > 0 {}
        while self.abort_some_uploads(name).await? > 0 {}
        Ok(())
    }

    // Always the first page: what it named is gone the next time.

    async fn delete_some_versions(&self, name: &str) -> Result<usize, Error> {
        let page = self.list_object_versions(name, "", None).await?;
        if !page.items.is_empty() {
            self.delete_objects(name, &page.items).await?;
        }
        Ok(page.items.len())
    }

    async fn abort_some_uploads(&self, name: &str) -> Result<usize, Error> {
        let page = self.list_multipart_uploads(name, None).await?;
        for upload in &page.items {
            self.abort_multipart_upload(name, upload).await?;
        }
        Ok(page.items.len())
    }
}
