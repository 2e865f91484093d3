//! Objects.

use bytes::Bytes;
use http::Method;

use super::listings::ObjectVersion;
use super::{bucket, object, unless, with_checked_body};
use crate::client::{Client, Response};
use crate::error::Error;
use crate::xml::{self, Element};

/// What was to be deleted is not there.
const GONE: [&str; 2] = ["NoSuchKey", "NoSuchVersion"];

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

    /// Deletes up to 1000 versions of objects for good, with one request where the names can be written in XML and the
    /// service takes such requests, or else one by one.
    ///
    /// # Errors
    /// [`Error::Object`] names the first that could not be deleted; the others may be.
    pub async fn delete_objects(&self, name: &str, versions: &[ObjectVersion]) -> Result<(), Error> {
        let (batch, single): (Vec<_>, Vec<_>) = versions.iter().partition(|version| xml::can_write(&version.key));
        match self.delete_batch(name, &batch).await {
            Err(error) if is_about_the_request(&error) => self.delete_singly(name, &batch).await?,
            other => other?,
        }
        self.delete_singly(name, &single).await
    }

    async fn delete_batch(&self, name: &str, versions: &[&ObjectVersion]) -> Result<(), Error> {
        if versions.is_empty() {
            return Ok(());
        }
        let named = |version: &&ObjectVersion| {
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
        match answer.all("Error").find(|error| !GONE.contains(&error.text_of("Code"))) {
            None => Ok(()),
            Some(error) => {
                let text = |name| error.text_of(name).to_owned();
                Err(Error::Object { key: text("Key"), code: text("Code") })
            }
        }
    }

    async fn delete_singly(&self, name: &str, versions: &[&ObjectVersion]) -> Result<(), Error> {
        for ObjectVersion { key, version_id } in versions {
            let mut request = object(Method::DELETE, name, key);
            if let Some(id) = version_id {
                request = request.query("versionId", id);
            }
            match unless(self.done(request).await, &GONE) {
                Err(Error::Answer(answer)) if answer.status == 403 => {
                    return Err(Error::Object { key: key.clone(), code: answer.code });
                }
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Deletes a page of a bucket's versions, or, when there are none, ends a page of its uploads. The answer is how many
    /// there were: 0 means that the bucket is empty.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call continues.
    pub async fn delete_some(&self, name: &str) -> Result<usize, Error> {
        match self.delete_some_versions(name).await? {
            0 => self.abort_some_uploads(name).await,
            count => Ok(count),
        }
    }

    /// Deletes all objects of a bucket with all their versions, and ends all uploads, page by page.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call continues.
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

/// Whether the service cannot do with what it was sent, or knows no such request, or breaks on it. What one may not do, and what
/// is not there, is so for each object, too.
fn is_about_the_request(error: &Error) -> bool {
    match error {
        Error::Answer(answer) => !answer.is_busy() && ![401, 403, 404].contains(&answer.status),
        Error::NotS3 { .. } => true,
        _ => false,
    }
}
