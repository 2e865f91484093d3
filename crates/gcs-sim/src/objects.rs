//! Objects over the S3 protocol, with keys of service accounts: signatures and the bucket's policy are checked.

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use super::signature::{Signable, authorization, sha256_hex};
use super::{Bucket, DecodedRequest, Model, Reply, listing};

/// The modification time of all objects.
pub(super) const LAST_MODIFIED: &str = "2026-01-02T03:04:05.000Z";
const LAST_MODIFIED_HEADER: &str = "Fri, 02 Jan 2026 03:04:05 GMT";

impl Model {
    pub(super) fn s3(&mut self, request: &DecodedRequest) -> Reply {
        if has_checksum(request) {
            return xml(403, "SignatureDoesNotMatch");
        }
        let Some(email) = self.signer(request) else { return xml(403, "SignatureDoesNotMatch") };
        let path = percent_decode_str(&request.path[1..]).decode_utf8_lossy().into_owned();
        let (name, object) = path.split_once('/').unwrap_or((&path, ""));
        let Some(bucket) = self.buckets.get(name) else { return xml(404, "NoSuchBucket") };
        if !is_allowed(request, &email, bucket, object) {
            return xml(403, "AccessDenied");
        }
        let has = |argument: &str| request.query.contains_key(argument);
        match (request.method.as_str(), object.is_empty()) {
            ("GET", true) => listing::list(request, name, bucket),
            ("HEAD", true) => Reply::new(200, ""),
            (_, true) => xml(400, "NotImplemented"),
            _ if has("uploadId") => self.upload(request, name, object),
            ("POST", _) if has("uploads") => self.begin_upload(name, object),
            ("PUT", _) => {
                let generation = self.next();
                self.put(name, object, generation, request.body.clone());
                Reply::new(200, "").header("etag", etag(generation))
            }
            ("DELETE", _) => match self.buckets.get_mut(name).and_then(|bucket| bucket.objects.remove(object)) {
                Some(_) => Reply::new(204, ""),
                None => xml(404, "NoSuchKey"),
            },
            ("GET" | "HEAD", _) => match bucket.objects.get(object).and_then(|generations| generations.last()) {
                Some((generation, body)) => read(request, *generation, body),
                None => xml(404, "NoSuchKey"),
            },
            _ => xml(405, "MethodNotAllowed"),
        }
    }

    /// Writes an object.
    pub(super) fn put(&mut self, bucket: &str, object: &str, generation: u64, body: Bytes) {
        let Some(bucket) = self.buckets.get_mut(bucket) else { return };
        let versioning = bucket.metadata["versioning"]["enabled"] == true;
        let generations = bucket.objects.entry(object.to_owned()).or_default();
        if !versioning {
            generations.clear();
        }
        generations.push((generation, body));
    }

    /// Returns the service account whose key signed the request.
    fn signer(&self, request: &DecodedRequest) -> Option<String> {
        let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let header = text("authorization")?;
        let id = header.strip_prefix("AWS4-HMAC-SHA256 Credential=")?.split('/').next()?;
        let key = self.keys.get(id).filter(|key| key.active && self.accounts.contains_key(&key.email))?;
        let region = header.split('/').nth(2)?;
        let (_, names) = header.split_once("SignedHeaders=")?;
        let headers: Vec<(String, String)> = names
            .split(',')
            .next()?
            .split(';')
            .map(|name| Some((name.to_owned(), text(name)?)))
            .collect::<Option<_>>()?;
        let path = percent_decode_str(&request.path).decode_utf8_lossy().into_owned();
        let payload_hash = text("x-amz-content-sha256")?;
        if payload_hash != "UNSIGNED-PAYLOAD" && payload_hash != sha256_hex(&request.body) {
            return None;
        }
        let (method, query) = (request.method.as_str(), &request.pairs);
        let signable = Signable { method, path: &path, query, headers: &headers };
        (authorization((id, &key.secret), region, signable)? == header).then(|| key.email.clone())
    }
}

/// Returns true if the bucket's policy allows the request. The permission to read does not include listing uploads and
/// their parts.
fn is_allowed(request: &DecodedRequest, email: &str, bucket: &Bucket, object: &str) -> bool {
    let member = format!("serviceAccount:{email}");
    let bindings = bucket.policy["bindings"].as_array().cloned().unwrap_or_default();
    let has = |roles: &[&str]| {
        bindings.iter().any(|binding| {
            let members = binding["members"].as_array().cloned().unwrap_or_default();
            roles.contains(&binding["role"].as_str().unwrap_or_default()) && members.contains(&member.clone().into())
        })
    };
    let role = |role: &str| format!("roles/storage.{role}");
    let [user, viewer, creator, reader] =
        ["objectUser", "objectViewer", "objectCreator", "legacyBucketReader"].map(role);
    let in_parts = request.query.contains_key("uploadId") || request.query.contains_key("uploads");
    match (request.method.as_str(), object.is_empty()) {
        (_, false) if in_parts => has(&[&user, &creator]),
        ("GET" | "HEAD", false) => has(&[&user, &viewer]),
        ("GET" | "HEAD" | "POST", true) => has(&[&reader]),
        // Members with only the creator role cannot replace objects.
        ("PUT", false) => has(&[&user]) || (!bucket.objects.contains_key(object) && has(&[&creator])),
        ("DELETE", false) => has(&[&user]),
        _ => false,
    }
}

/// Returns an object, or the range of it given in the header `Range`.
fn read(request: &DecodedRequest, generation: u64, body: &Bytes) -> Reply {
    let range =
        request.headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-'));
    let with = |reply: Reply| {
        let reply = reply.header("etag", etag(generation)).header("last-modified", LAST_MODIFIED_HEADER);
        reply.header("accept-ranges", "bytes").header("content-type", "application/octet-stream")
    };
    let Some((first, last)) = range else { return with(Reply::new(200, body.clone())) };
    let first: usize = first.parse().unwrap_or_default();
    let last = last.parse().unwrap_or(usize::MAX).min(body.len().saturating_sub(1));
    if first > last || first >= body.len() {
        return xml(416, "InvalidRange");
    }
    let reply = with(Reply::new(206, body.slice(first..=last)));
    reply.header("content-range", format!("bytes {first}-{last}/{}", body.len()))
}

/// Returns true if a client adds its own checksum, in a header or after the body. Google supports neither: the body
/// that it sees and the headers that it signs differ from the client's, and it responds with `SignatureDoesNotMatch`.
/// <https://github.com/gramps-project/gramps-web-api/pull/758>
fn has_checksum(request: &DecodedRequest) -> bool {
    let streams =
        request.headers.get("x-amz-content-sha256").is_some_and(|hash| hash.as_bytes().starts_with(b"STREAMING-"));
    let names = request.headers.keys().map(|name| name.as_str());
    streams
        || names
            .into_iter()
            .any(|name| name.starts_with("x-amz-checksum-") && name != "x-amz-checksum-mode" || name == "x-amz-trailer")
}

pub(super) fn etag(generation: u64) -> String {
    format!("\"-{generation}=\"")
}

/// Escapes a text for XML. Omits characters that XML cannot contain, because clients cannot read them.
pub(super) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    text.chars().filter(|letter| !letter.is_control()).collect()
}

pub(super) fn xml(status: u16, code: &str) -> Reply {
    Reply::new(status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
}
