//! Lists, page by page.

use http::Method;

use super::{bucket, object, unless};
use crate::client::{Client, Request};
use crate::encode;
use crate::error::Error;
use crate::xml::Element;

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page<T> {
    /// What this part holds, 1000 at the most.
    pub items: Vec<T>,
    /// What the next call is given, where there is more.
    pub next: Option<Vec<(String, String)>>,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Its name.
    pub key: String,
    /// Its length.
    pub size: u64,
}

/// A version of an object, or the mark that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object's name.
    pub key: String,
    /// The version; `null` in a bucket that keeps none. Without one the object as it is now is meant.
    pub version_id: Option<String>,
}

/// A multipart upload that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upload {
    /// The object's name.
    pub key: String,
    /// The upload's id.
    pub id: String,
}

type Next<'a> = Option<&'a [(String, String)]>;

impl Client {
    /// The objects whose names begin with `prefix`. `next` is that of the page before.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_objects_v2(&self, name: &str, prefix: &str, next: Next<'_>) -> Result<Page<Object>, Error> {
        let request = list(name).query("list-type", "2").query("prefix", prefix);
        let answer = self.xml(continued(request, next), "ListBucketResult").await?;
        let item = |object: &Element| Object {
            key: name_in(&answer, object, "Key"),
            size: object.text_of("Size").parse().unwrap_or_default(),
        };
        let items = answer.all("Contents").map(item).collect();
        Ok(Page { items, next: following(&answer, &[("continuation-token", "NextContinuationToken")]) })
    }

    /// All versions of the objects whose names begin with `prefix`. `next` is that of the page before.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_object_versions(
        &self,
        name: &str,
        prefix: &str,
        next: Next<'_>,
    ) -> Result<Page<ObjectVersion>, Error> {
        let request = list(name).query("versions", "").query("prefix", prefix);
        let answer = self.xml(continued(request, next), "ListVersionsResult").await?;
        let versions =
            answer.children.iter().filter(|child| ["Version", "DeleteMarker"].contains(&child.name.as_str()));
        let item = |version: &Element| ObjectVersion {
            key: name_in(&answer, version, "Key"),
            version_id: version.child("VersionId").map(|id| id.text.clone()).filter(|id| !id.is_empty()),
        };
        let markers = [("key-marker", "NextKeyMarker"), ("version-id-marker", "NextVersionIdMarker")];
        Ok(Page { items: versions.map(item).collect(), next: following(&answer, &markers) })
    }

    /// The multipart uploads that have not ended. `next` is that of the page before.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_multipart_uploads(&self, name: &str, next: Next<'_>) -> Result<Page<Upload>, Error> {
        let request = list(name).query("uploads", "");
        let answer = self.xml(continued(request, next), "ListMultipartUploadsResult").await?;
        let item = |upload: &Element| Upload {
            key: name_in(&answer, upload, "Key"),
            id: upload.text_of("UploadId").to_owned(),
        };
        let markers = [("key-marker", "NextKeyMarker"), ("upload-id-marker", "NextUploadIdMarker")];
        Ok(Page { items: answer.all("Upload").map(item).collect(), next: following(&answer, &markers) })
    }

    /// Ends an upload and frees what it holds. It is no error that there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn abort_multipart_upload(&self, name: &str, upload: &Upload) -> Result<(), Error> {
        let request = object(Method::DELETE, name, &upload.key).query("uploadId", &upload.id);
        unless(self.done(request).await, &["NoSuchUpload"]).map(drop)
    }
}

/// XML has no way to write some characters that names of objects may have, so the names come encoded.
fn list(name: &str) -> Request {
    bucket(Method::GET, name).query("encoding-type", "url")
}

/// A name in a list. Services that do not encode names do not say that they do.
fn name_in(answer: &Element, element: &Element, name: &str) -> String {
    let text = element.text_of(name);
    match answer.text_of("EncodingType") {
        "url" => encode::decoded(text),
        _ => text.to_owned(),
    }
}

fn continued(request: Request, next: Next<'_>) -> Request {
    next.unwrap_or_default().iter().fold(request, |request, (name, value)| request.query(name, value))
}

/// The arguments for the next page, from elements of this one.
fn following(answer: &Element, arguments: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
    let value = |element: &str| match element {
        "NextKeyMarker" => name_in(answer, answer, element),
        _ => answer.text_of(element).to_owned(),
    };
    let next = || arguments.iter().map(|(name, element)| ((*name).to_owned(), value(element)));
    (answer.text_of("IsTruncated") == "true").then(|| next().filter(|(_, value)| !value.is_empty()).collect())
}
