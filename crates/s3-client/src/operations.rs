//! The S3 operations that provisioners need, and the responses that each treats as success.

mod buckets;
mod objects;
mod settings;

pub use self::buckets::NewBucket;
pub use self::objects::ObjectVersion;

use std::collections::BTreeMap;
use std::error::Error as StdError;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::types::Tag;

use crate::client::Client;
use crate::error::{Error, error};

impl Client {
    /// Returns a response or a classified error.
    fn read<T, E>(&self, answer: Result<T, SdkError<E, HttpResponse>>) -> Result<T, Error>
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        answer.map_err(|failed| error(&self.endpoint, failed))
    }

    /// Same as [`read`](Self::read), but returns `None` for a refusal with one of these codes.
    fn none_if_code<T, E>(
        &self,
        codes: &[&str],
        answer: Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<Option<T>, Error>
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        match self.read(answer) {
            Err(error) if codes.contains(&error.code()) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// Returns the error for a request that lacks a required value.
fn incomplete(error: BuildError) -> Error {
    Error::Request(error.to_string())
}

fn tags(tags: &BTreeMap<String, String>) -> Result<Vec<Tag>, Error> {
    let tag = |(key, value): (&String, &String)| Tag::builder().key(key).value(value).build();
    tags.iter().map(tag).collect::<Result<_, _>>().map_err(incomplete)
}
