//! Objects, and the emptying of buckets.

use aws_sdk_s3::types::{Delete, EncodingType, ObjectIdentifier};
use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::incomplete;
use crate::client::Client;
use crate::error::{Error, body_error};
use crate::interceptors::InvalidXmlCharacters;

/// Error codes for objects to delete that do not exist.
const NOT_FOUND_CODES: [&str; 2] = ["NoSuchKey", "NoSuchVersion"];

/// A version of an object, or a delete marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object's name.
    pub key: String,
    /// The version; `null` in an unversioned bucket. Without one, the current object is meant.
    pub version_id: Option<String>,
}

impl Client {
    /// Writes an object.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `QuotaExceeded`, if the request fails.
    pub async fn put_object(&self, bucket: &str, key: &str, body: impl Into<Bytes>) -> Result<(), Error> {
        let body = body.into().into();
        self.read(self.sdk.put_object().bucket(bucket).key(key).body(body).send().await).map(drop)
    }

    /// Reads an object. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails, or if the object is larger than the client's response limit.
    pub async fn get_object(&self, bucket: &str, key: &str) -> Result<Option<Bytes>, Error> {
        let answer = self.sdk.get_object().bucket(bucket).key(key).send().await;
        let Some(answer) = self.none_if_code(&["NoSuchKey"], answer)? else { return Ok(None) };
        let body = answer.body.collect().await.map_err(|error| body_error(&self.endpoint, &error))?;
        Ok(Some(body.into_bytes()))
    }

    /// Returns true if an object exists.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn object_exists(&self, bucket: &str, key: &str) -> Result<bool, Error> {
        match self.read(self.sdk.head_object().bucket(bucket).key(key).send().await) {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes an object. Succeeds if it does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<(), Error> {
        self.delete_version(bucket, key, None).await
    }

    /// Returns the first page of the versions of a bucket's objects: at most 1000, and none if the bucket is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn list_object_versions(&self, name: &str) -> Result<Vec<ObjectVersion>, Error> {
        // XML cannot represent some characters that are allowed in names, so request encoded names.
        let list = self.sdk.list_object_versions().bucket(name).encoding_type(EncodingType::Url);
        let page = match self.read(list.customize().interceptor(InvalidXmlCharacters).send().await) {
            // The store does not support versions.
            Err(error) if error.status() == Some(501) => return self.list_objects(name).await,
            page => page?,
        };
        let encoded = page.encoding_type == Some(EncodingType::Url);
        let version = |key: Option<String>, version_id: Option<String>| ObjectVersion {
            key: key_of(key, encoded),
            version_id: version_id.filter(|id| !id.is_empty()),
        };
        let versions = page.versions.unwrap_or_default().into_iter();
        let markers = page.delete_markers.unwrap_or_default().into_iter();
        let versions = versions.map(|object| version(object.key, object.version_id));
        Ok(versions.chain(markers.map(|marker| version(marker.key, marker.version_id))).collect())
    }

    async fn list_objects(&self, name: &str) -> Result<Vec<ObjectVersion>, Error> {
        let list = self.sdk.list_objects_v2().bucket(name).encoding_type(EncodingType::Url);
        let page = self.read(list.customize().interceptor(InvalidXmlCharacters).send().await)?;
        let encoded = page.encoding_type == Some(EncodingType::Url);
        let objects = page.contents.unwrap_or_default().into_iter();
        Ok(objects.map(|object| ObjectVersion { key: key_of(object.key, encoded), version_id: None }).collect())
    }

    /// Permanently deletes up to 1000 versions of objects, with one request if XML can represent the names and the
    /// service supports such requests, or else one by one.
    ///
    /// # Errors
    /// Returns [`Error::Object`] with the first object that could not be deleted. The others may have been deleted.
    pub async fn delete_objects(&self, name: &str, versions: &[ObjectVersion]) -> Result<(), Error> {
        let (batch, single): (Vec<_>, Vec<_>) = versions.iter().partition(|version| xml_can_write(&version.key));
        match self.delete_batch(name, &batch).await {
            Err(error) if is_batch_failure(&error) => self.delete_singly(name, &batch).await?,
            other => other?,
        }
        self.delete_singly(name, &single).await
    }

    async fn delete_batch(&self, name: &str, versions: &[&ObjectVersion]) -> Result<(), Error> {
        if versions.is_empty() {
            return Ok(());
        }
        let identifier = |version: &&ObjectVersion| {
            ObjectIdentifier::builder().key(&version.key).set_version_id(version.version_id.clone()).build()
        };
        let objects = versions.iter().map(identifier).collect::<Result<_, _>>().map_err(incomplete)?;
        let delete = Delete::builder().set_objects(Some(objects)).quiet(true).build().map_err(incomplete)?;
        let answer = self.read(self.sdk.delete_objects().bucket(name).delete(delete).send().await)?;
        let failed = answer.errors.unwrap_or_default();
        let failed =
            failed.into_iter().find(|error| !NOT_FOUND_CODES.contains(&error.code.as_deref().unwrap_or_default()));
        match failed {
            None => Ok(()),
            Some(error) => {
                Err(Error::Object { key: error.key.unwrap_or_default(), code: error.code.unwrap_or_default() })
            }
        }
    }

    async fn delete_singly(&self, name: &str, versions: &[&ObjectVersion]) -> Result<(), Error> {
        for ObjectVersion { key, version_id } in versions {
            match self.delete_version(name, key, version_id.as_deref()).await {
                Err(Error::Refused(answer)) if answer.status == 403 => {
                    return Err(Error::Object { key: key.clone(), code: answer.code });
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn delete_version(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<(), Error> {
        let request = self.sdk.delete_object().bucket(bucket).key(key).set_version_id(version.map(str::to_owned));
        self.none_if_code(&NOT_FOUND_CODES, request.send().await).map(drop)
    }

    /// Deletes a page of a bucket's versions, or, if there are none, aborts a page of its uploads. Returns their
    /// number: 0 means that the bucket is empty.
    ///
    /// # Errors
    /// Returns an [`Error`] if a request fails. Another call continues with the remaining versions.
    pub async fn delete_some(&self, name: &str) -> Result<usize, Error> {
        // Always use the first page: its entries no longer exist the next time.
        let versions = self.list_object_versions(name).await?;
        if !versions.is_empty() {
            self.delete_objects(name, &versions).await?;
            // Some services list such objects under different names, which cannot be deleted.
            let is_garbled = |version: &ObjectVersion| {
                version.key.contains(char::REPLACEMENT_CHARACTER) || !xml_can_write(&version.key)
            };
            if versions.iter().all(is_garbled) && self.list_object_versions(name).await? == versions {
                return Err(Error::NameMismatch { key: versions[0].key.clone() });
            }
            return Ok(versions.len());
        }
        self.abort_some_uploads(name).await
    }

    /// Deletes all objects of a bucket with all their versions, and aborts all uploads, page by page.
    ///
    /// # Errors
    /// Returns an [`Error`] if a request fails. Another call continues with the remaining versions.
    pub async fn empty_bucket(&self, name: &str) -> Result<(), Error> {
        while self.delete_some(name).await? > 0 {}
        Ok(())
    }

    async fn abort_some_uploads(&self, name: &str) -> Result<usize, Error> {
        let list = self.sdk.list_multipart_uploads().bucket(name).encoding_type(EncodingType::Url);
        let page = self.read(list.customize().interceptor(InvalidXmlCharacters).send().await)?;
        let encoded = page.encoding_type == Some(EncodingType::Url);
        let uploads = page.uploads.unwrap_or_default();
        for upload in &uploads {
            let key = key_of(upload.key.clone(), encoded);
            let abort = self.sdk.abort_multipart_upload().bucket(name).key(key);
            let ended = abort.set_upload_id(upload.upload_id.clone()).send().await;
            self.none_if_code(&["NoSuchUpload"], ended)?;
        }
        Ok(uploads.len())
    }
}

/// Decodes a name if the response declares that names are encoded; services that do not encode them do not declare it.
fn key_of(key: Option<String>, encoded: bool) -> String {
    let key = key.unwrap_or_default();
    if encoded {
        percent_decode_str(&key.replace('+', " ")).decode_utf8_lossy().into_owned()
    } else {
        InvalidXmlCharacters::original(&key)
    }
}

/// <https://www.w3.org/TR/xml/#charsets>
fn xml_can_write(text: &str) -> bool {
    text.chars()
        .all(|letter| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..))
}

/// Returns true if the service rejects the request, does not support it, or fails to process it. Missing permissions,
/// missing objects and an overload would affect requests for single objects as well.
fn is_batch_failure(error: &Error) -> bool {
    match error {
        Error::Refused(answer) => !answer.is_busy() && ![401, 403, 404, 503].contains(&answer.status),
        Error::NotS3 { status, .. } => *status != 503,
        _ => false,
    }
}
