//! A pod that uses its bucket through the S3 protocol, with the key in its Secret.

use bytes::Bytes;
use gcs_sim::signature::{Signable, authorization, sha256_hex};
use http::{Method, Request};
use kube_provisioner::bucket::Credentials;

use crate::api::encoded;
use crate::http::Client;

pub(super) struct Pod {
    pub(super) client: Client,
    pub(super) key: Credentials,
}

impl Pod {
    /// Returns S3's error code on failure.
    pub(super) async fn put(&self, bucket: &str, object: &str, text: &'static str) -> Result<(), String> {
        self.send(Method::PUT, bucket, object, text).await.map(drop)
    }

    pub(super) async fn get(&self, bucket: &str, object: &str) -> Result<Option<Bytes>, String> {
        match self.send(Method::GET, bucket, object, "").await {
            Ok(body) => Ok(Some(body)),
            Err(code) if code == "NoSuchKey" => Ok(None),
            Err(code) => Err(code),
        }
    }

    async fn send(&self, method: Method, bucket: &str, object: &str, body: &'static str) -> Result<Bytes, String> {
        let host = self.client.endpoint().trim_start_matches("http://");
        let sum = sha256_hex(body.as_bytes());
        let headers = [("host", host), ("x-amz-content-sha256", &sum), ("x-amz-date", "20260102T030405Z")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let path = format!("/{bucket}/{object}");
        let signable = Signable { method: method.as_str(), path: &path, query: &[], headers: &headers };
        let key = (self.key.access_key_id.as_str(), self.key.secret_access_key.as_str());
        let signature = authorization(key, "auto", signable).unwrap();

        let request = Request::builder().method(method).uri(format!("/{bucket}/{}", encoded(object)));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.header("authorization", signature).body(Bytes::from(body)).unwrap();
        let answer = self.client.send(request).await.unwrap();
        match answer.status {
            200..300 => Ok(answer.body),
            _ => {
                let text = String::from_utf8_lossy(&answer.body);
                let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
                Err(code.map_or_else(|| text.to_string(), |(code, _)| code.to_owned()))
            }
        }
    }
}
