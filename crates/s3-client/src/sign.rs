//! [Signature Version 4](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html) as a pure function.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use ring::{digest, hmac};

use crate::encode;

#[cfg(test)]
mod tests;

/// The payload's hash for requests whose body is not signed. S3 and its kind accept it, other services of AWS do not.
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// A key with its secret. `Debug` shows its id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The key's id.
    pub access_key_id: String,
    /// The key's secret.
    pub secret_access_key: String,
    /// The token that belongs to a key for some time.
    pub session_token: Option<String>,
}

impl Credentials {
    /// A key without a session token.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<String>) -> Self {
        Self { access_key_id: access_key_id.into(), secret_access_key: secret_access_key.into(), session_token: None }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// How a path is written into what is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// S3: encoded once and otherwise as it is, since `a//b` and `a/../b` are names of objects.
    S3,
    /// All other services: without `.`, `..` and empty segments, and encoded twice.
    General,
}

/// What a signature covers besides the key and the time.
#[derive(Clone, Copy, Debug)]
pub struct Signable<'a> {
    /// The method, in upper case.
    pub method: &'a str,
    /// The path, not encoded.
    pub path: &'a str,
    /// The query, not encoded.
    pub query: &'a [(String, String)],
    /// The headers that are signed. `host` and `x-amz-date` must be among them.
    pub headers: &'a [(String, String)],
    /// Hexadecimal SHA-256 of the body, or [`UNSIGNED_PAYLOAD`].
    pub payload_hash: &'a str,
}

/// For whom a signature is: it is worth nothing elsewhere, and nothing on another day.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The region.
    pub region: &'a str,
    /// The service, such as `s3` or `iam`.
    pub service: &'a str,
    /// How the service reads paths.
    pub rule: Rule,
    /// The time of the request.
    pub time: SystemTime,
}

/// The value of the header `authorization`.
pub fn authorization(credentials: &Credentials, scope: Scope<'_>, signable: Signable<'_>) -> String {
    let mut headers: Vec<(String, String)> =
        signable.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), trimmed(value))).collect();
    // The sort is stable: values of one name keep their order.
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let signed_headers = names.join(";");
    let header_lines: String = names
        .iter()
        .map(|name| {
            let values = headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
            format!("{name}:{}\n", values.collect::<Vec<_>>().join(","))
        })
        .collect();
    let request = [
        signable.method,
        &canonical_path(signable.path, scope.rule),
        &encode::query(signable.query),
        &header_lines,
        &signed_headers,
        signable.payload_hash,
    ]
    .join("\n");

    let time = amz_date(scope.time);
    let day = &time[..8];
    let Scope { region, service, .. } = scope;
    let place = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{place}\n{}", sha256_hex(request.as_bytes()));
    let secret = format!("AWS4{}", credentials.secret_access_key);
    let key = [day, region, service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac_sha256(&key, part.as_bytes()));
    let signature = encode::hex(&hmac_sha256(&key, text.as_bytes()));
    let id = &credentials.access_key_id;
    format!("AWS4-HMAC-SHA256 Credential={id}/{place}, SignedHeaders={signed_headers}, Signature={signature}")
}

/// The value of the header `x-amz-date`.
pub fn amz_date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = Timestamp::from_second(seconds.try_into().unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// The SHA-256 of these bytes, in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    encode::hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn canonical_path(path: &str, rule: Rule) -> String {
    match rule {
        Rule::S3 => encode::path(path),
        Rule::General => encode::path(&encode::path(&normalised(path))),
    }
}

fn normalised(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    let end = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{end}", segments.join("/"))
}

/// A header's value without blanks around it, and with one where there are several.
fn trimmed(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}
