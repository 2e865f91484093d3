//! Objects, and how a bucket is emptied of them.

use aws_sdk_s3::types::{Delete, EncodingType, ObjectIdentifier};
use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::incomplete;
use crate::client::Client;
use crate::error::{Error, body_error};
use crate::interceptors::OddNames;

/// What was to be deleted is not there.
const GONE: [&str; 2] = ["NoSuchKey", "NoSuchVersion"];

/// A version of an object, or the mark that it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The object's name.
    pub key: String,
    /// The version; `null` in a bucket that keeps none. Without one the object as it is now is meant.
    pub version_id: Option<String>,
}

impl Client {
    /// Writes an object.
    ///
    /// # Errors
    /// As of every request; `QuotaExceeded` among others.
    pub async fn put_object(&self, bucket: &str, key: &str, body: impl Into<Bytes>) -> Result<(), Error> {
        let body = body.into().into();
        self.read(self.sdk.put_object().bucket(bucket).key(key).body(body).send().await).map(drop)
    }

    /// Reads an object. `None` where there is none.
    ///
    /// # Errors
    /// As of every request; an object longer than the client's limit for answers is not read.
    pub async fn get_object(&self, bucket: &str, key: &str) -> Result<Option<Bytes>, Error> {
        let answer = self.sdk.get_object().bucket(bucket).key(key).send().await;
        let Some(answer) = self.unless(&["NoSuchKey"], answer)? else { return Ok(None) };
        let body = answer.body.collect().await.map_err(|error| body_error(&self.endpoint, &error))?;
        Ok(Some(body.into_bytes()))
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// As of every request.
    pub async fn object_exists(&self, bucket: &str, key: &str) -> Result<bool, Error> {
        match self.read(self.sdk.head_object().bucket(bucket).key(key).send().await) {
            Err(error) if error.status() == Some(404) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Deletes an object. It is no error that there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_object(&self, bucket: &str, key: &str) -> Result<(), Error> {
        self.delete_version(bucket, key, None).await
    }

    /// The first page of the versions of a bucket's objects: 1000 at most, and none where the bucket holds none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn list_object_versions(&self, name: &str) -> Result<Vec<ObjectVersion>, Error> {
        // XML has no way to write some characters that names may have, so the names come encoded.
        let list = self.sdk.list_object_versions().bucket(name).encoding_type(EncodingType::Url);
        let page = match self.read(list.customize().interceptor(OddNames).send().await) {
            // A store that has no versions.
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
        let page = self.read(list.customize().interceptor(OddNames).send().await)?;
        let encoded = page.encoding_type == Some(EncodingType::Url);
        let objects = page.contents.unwrap_or_default().into_iter();
        Ok(objects.map(|object| ObjectVersion { key: key_of(object.key, encoded), version_id: None }).collect())
    }

    /// Deletes up to 1000 versions of objects for good, with one request where the names can be written in XML and the
    /// service takes such requests, or else one by one.
    ///
    /// # Errors
    /// [`Error::Object`] names the first that could not be deleted; the others may be.
    pub async fn delete_objects(&self, name: &str, versions: &[ObjectVersion]) -> Result<(), Error> {
        let (batch, single): (Vec<_>, Vec<_>) = versions.iter().partition(|version| xml_can_write(&version.key));
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
        let identifier = |version: &&ObjectVersion| {
            ObjectIdentifier::builder().key(&version.key).set_version_id(version.version_id.clone()).build()
        };
        let objects = versions.iter().map(identifier).collect::<Result<_, _>>().map_err(incomplete)?;
        let delete = Delete::builder().set_objects(Some(objects)).quiet(true).build().map_err(incomplete)?;
        let answer = self.read(self.sdk.delete_objects().bucket(name).delete(delete).send().await)?;
        let failed = answer.errors.unwrap_or_default();
        let failed = failed.into_iter().find(|error| !GONE.contains(&error.code.as_deref().unwrap_or_default()));
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
                Err(Error::Answer(answer)) if answer.status == 403 => {
                    return Err(Error::Object { key: key.clone(), code: answer.code });
                }
                other => other?,
            }
        }
        Ok(())
    }

    async fn delete_version(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<(), Error> {
        let request = self.sdk.delete_object().bucket(bucket).key(key).set_version_id(version.map(str::to_owned));
        self.unless(&GONE, request.send().await).map(drop)
    }

    /// Deletes a page of a bucket's versions, or, when there are none, ends a page of its uploads. The answer is how many
    /// there were: 0 means that the bucket is empty.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call continues.
    pub async fn delete_some(&self, name: &str) -> Result<usize, Error> {
        // Always the first page: what it named is gone the next time.
        let versions = self.list_object_versions(name).await?;
        if !versions.is_empty() {
            self.delete_objects(name, &versions).await?;
            // Some services list such names as others, of which there is nothing to delete.
            let is_garbled = |version: &ObjectVersion| version.key.contains(char::REPLACEMENT_CHARACTER);
            if versions.iter().all(is_garbled) && self.list_object_versions(name).await? == versions {
                return Err(Error::ListedOtherwise { key: versions[0].key.clone() });
            }
            return Ok(versions.len());
        }
        self.abort_some_uploads(name).await
    }

    /// Deletes all objects of a bucket with all their versions, and ends all uploads, page by page.
    ///
    /// # Errors
    /// As of every request. What is deleted stays deleted; another call continues.
    pub async fn empty_bucket(&self, name: &str) -> Result<(), Error> {
        while self.delete_some(name).await? > 0 {}
        Ok(())
    }

    async fn abort_some_uploads(&self, name: &str) -> Result<usize, Error> {
        let list = self.sdk.list_multipart_uploads().bucket(name).encoding_type(EncodingType::Url);
        let page = self.read(list.customize().interceptor(OddNames).send().await)?;
        let encoded = page.encoding_type == Some(EncodingType::Url);
        let uploads = page.uploads.unwrap_or_default();
        for upload in &uploads {
            let key = key_of(upload.key.clone(), encoded);
            let abort = self.sdk.abort_multipart_upload().bucket(name).key(key);
            let ended = abort.set_upload_id(upload.upload_id.clone()).send().await;
            self.unless(&["NoSuchUpload"], ended)?;
        }
        Ok(uploads.len())
    }
}

/// Services that do not encode names do not say that they do.
fn key_of(key: Option<String>, encoded: bool) -> String {
    let key = key.unwrap_or_default();
    if encoded {
        percent_decode_str(&key.replace('+', " ")).decode_utf8_lossy().into_owned()
    } else {
        OddNames::original(&key)
    }
}

/// <https://www.w3.org/TR/xml/#charsets>
fn xml_can_write(text: &str) -> bool {
    text.chars()
        .all(|letter| matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..))
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
