//! The operations of S3, path-style.

mod buckets;
mod listings;
mod objects;
mod settings;

pub use self::buckets::{BucketInfo, NewBucket};
pub use self::listings::{Object, ObjectVersion, Page, Upload};

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use md5::Digest as _;

use crate::client::{Client, Request, Response};
use crate::error::Error;
use crate::xml::{self, Element};

fn bucket(method: Method, name: &str) -> Request {
    Request::new(method, format!("/{name}"))
}

fn object(method: Method, bucket: &str, key: &str) -> Request {
    Request::new(method, format!("/{bucket}/{key}"))
}

/// A request with a body whose sum S3 wants to see.
fn with_checked_body(request: Request, body: impl Into<bytes::Bytes>) -> Request {
    let body = body.into();
    // Settings, and names of what is to be deleted: the second time changes nothing.
    request.header("content-md5", STANDARD.encode(md5::Md5::digest(&body))).body(body).repeatable()
}

impl Client {
    async fn done(&self, request: Request) -> Result<(), Error> {
        self.request(request).await.map(drop)
    }

    /// An answer in XML, whose root has this name.
    async fn xml(&self, request: Request, root: &str) -> Result<Element, Error> {
        let Response { status, body, .. } = self.request(request).await?;
        let parsed = str::from_utf8(&body).ok().and_then(xml::parse).filter(|element| element.name == root);
        parsed.ok_or_else(|| Error::NotS3 { endpoint: self.endpoint().to_owned(), status })
    }
}

fn tag_elements(tags: &BTreeMap<String, String>) -> Vec<Element> {
    let tag = |(key, value): (&String, &String)| {
        Element::new("Tag", vec![Element::with_text("Key", key), Element::with_text("Value", value)])
    };
    tags.iter().map(tag).collect()
}

/// `None` instead of a refusal with one of these codes.
fn unless<T>(result: Result<T, Error>, codes: &[&str]) -> Result<Option<T>, Error> {
    match result {
        Err(error) if codes.contains(&error.code()) => Ok(None),
        other => other.map(Some),
    }
}
