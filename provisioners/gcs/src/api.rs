//! Calls to Google's APIs: authentication as the administrator, retries, and error responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::http::{Client, Error};
use crate::token::{TokenError, TokenSource};

/// Pauses before the retries of a call, in milliseconds.
const PAUSES: [u64; 2] = if cfg!(test) { [30, 90] } else { [300, 900] };

/// The permission to create a bucket.
pub(crate) const CREATE_BUCKET: &str = "storage.buckets.create";

/// A failed call and its remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot {doing}: {refusal}{advice}")]
    Refused { doing: String, refusal: Refusal, advice: String },
    /// No response arrived, or no token was available.
    #[error("cannot {doing}: {reason}")]
    NoResponse { doing: String, reason: String },
}

impl Failure {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal.status),
            Self::NoResponse { .. } => None,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Refused { refusal, .. } => &refusal.message,
            Self::NoResponse { .. } => "",
        }
    }

    /// Returns true if Google refused the call because there were too many calls.
    pub(crate) fn is_rate_limited(&self) -> bool {
        const REASONS: [&str; 3] = ["rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED"];
        match self {
            Self::Refused { refusal, .. } => refusal.status == 429 || REASONS.contains(&refusal.reason.as_str()),
            Self::NoResponse { .. } => false,
        }
    }
}

/// An error response (any status other than 2xx).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status)?;
        for (before, part) in [(" ", &self.reason), (": ", &self.message)] {
            if !part.is_empty() {
                write!(f, "{before}{part}")?;
            }
        }
        Ok(())
    }
}

/// An API call.
pub(crate) struct Call {
    method: Method,
    /// Path and query, percent-encoded.
    path: String,
    body: Option<Value>,
    /// The purpose for error texts, such as "create the bucket x".
    doing: String,
    /// The IAM permission that the administrator needs.
    permission: &'static str,
    /// True if the call is idempotent.
    repeatable: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: String, permission: &'static str, doing: impl Into<String>) -> Self {
        Self { method, path, body: None, doing: doing.into(), permission, repeatable: true }
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Marks the call as not idempotent: it may have succeeded although its response was lost.
    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }
}

/// One of Google's APIs, called as the administrator.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) source: Arc<TokenSource>,
}

impl Api {
    /// Returns the response as JSON, or `Null` if it has no body.
    pub(crate) async fn execute(&self, call: Call) -> Result<Value, Failure> {
        let mut pauses = PAUSES.into_iter();
        let mut token_is_old = false;
        loop {
            let token = self.source.token(token_is_old).await.map_err(|error| no_response(&call, &error))?;
            let answer = self.client.send(request(&call, &token)?).await;
            let transient = match &answer {
                Ok(answer) => [408, 429, 500, 502, 503, 504].contains(&answer.status),
                Err(error) => matches!(error, Error::Unreachable { .. }),
            };
            // A call that is refused with 429 had no effect.
            let safe = call.repeatable || matches!(&answer, Ok(answer) if answer.status == 429);
            if transient
                && safe
                && let Some(pause) = pauses.next()
            {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                continue;
            }
            let answer = answer.map_err(|error| no_response(&call, &error))?;
            // Tokens may be revoked before they expire.
            if answer.status == 401 && !token_is_old {
                token_is_old = true;
                continue;
            }
            if (200..300).contains(&answer.status) {
                return if answer.body.is_empty() {
                    Ok(Value::Null)
                } else {
                    serde_json::from_slice(&answer.body).map_err(|_| self.unexpected_response(&call, answer.status))
                };
            }
            let Some(refusal) = refusal(answer.status, &answer.body) else {
                return Err(self.unexpected_response(&call, answer.status));
            };
            let advice = advice(&refusal, &call, &self.source);
            return Err(Failure::Refused { doing: call.doing, refusal, advice });
        }
    }

    /// Returns the items of all pages of a list.
    pub(crate) async fn list(
        &self,
        path: &str,
        items: &str,
        call: impl Fn(String) -> Call,
    ) -> Result<Vec<Value>, Failure> {
        let (mut all, mut page) = (Vec::new(), String::new());
        loop {
            let mut answer = self.execute(call(format!("{path}{page}"))).await?;
            if let Value::Array(items) = answer[items].take() {
                all.extend(items);
            }
            match answer["nextPageToken"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => page = format!("&pageToken={}", encoded(token)),
                None => return Ok(all),
            }
        }
    }

    /// Makes the call like [`Self::execute`], but returns `None` if Google answers 404.
    pub(crate) async fn find(&self, call: Call) -> Result<Option<Value>, Failure> {
        match self.execute(call).await {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) if failure.status() == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn unexpected_response(&self, call: &Call, status: u16) -> Failure {
        let endpoint = self.client.endpoint();
        let reason = format!(
            "{endpoint} answered {status}, which is not a response from Google: check the address, and proxies in front of it"
        );
        Failure::NoResponse { doing: call.doing.clone(), reason }
    }
}

/// Percent-encodes a part of a path or query.
pub(crate) fn encoded(text: &str) -> String {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, UNRESERVED).to_string()
}

fn request(call: &Call, token: &str) -> Result<Request<Bytes>, Failure> {
    let body = call.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut request = Request::new(body);
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = call.path.parse().map_err(|_| no_response(call, &"its names are too long"))?;
    let token = HeaderValue::try_from(format!("Bearer {token}"));
    let mut token = token.map_err(|_| no_response(call, &"the token contains characters that are not allowed"))?;
    token.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, token);
    if call.body.is_some() {
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    // Google refuses a POST or PUT without a body and this header with 411.
    let length = HeaderValue::from(request.body().len());
    request.headers_mut().insert(http::header::CONTENT_LENGTH, length);
    Ok(request)
}

fn no_response(call: &Call, reason: &impl ToString) -> Failure {
    Failure::NoResponse { doing: call.doing.clone(), reason: reason.to_string() }
}

/// <https://cloud.google.com/storage/docs/json_api/v1/status-codes>,
/// <https://cloud.google.com/apis/design/errors#error_model>.
///
/// A 404 without a text may come from a proxy, and does not prove that anything is absent.
fn refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    let has_text = |refusal: &Refusal| !refusal.reason.is_empty() || !refusal.message.is_empty();
    parsed_refusal(status, body).filter(|refusal| status != 404 || has_text(refusal))
}

fn parsed_refusal(status: u16, body: &[u8]) -> Option<Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Some(Refusal { status, reason: String::new(), message: String::new() });
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error")?.as_object()?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(printable).filter(|text| !text.is_empty());
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let detail = details.filter_map(|detail| text(detail.get("reason"))).next();
    let first = error.get("errors").and_then(|errors| errors.get(0));
    let reason = detail.or_else(|| text(first.and_then(|first| first.get("reason"))));
    let reason = reason.or_else(|| text(error.get("status"))).unwrap_or_default();
    // The storage testbench and some of Google's responses have messages only in the list.
    let message = text(error.get("message")).or_else(|| text(first.and_then(|first| first.get("message"))));
    Some(Refusal { status, reason, message: message.unwrap_or_default() })
}

fn advice(refusal: &Refusal, call: &Call, source: &TokenSource) -> String {
    let permission = call.permission;
    match (refusal.status, refusal.reason.as_str()) {
        (401, _) => format!("; Google does not accept the token: check {source}"),
        (403, "SERVICE_DISABLED" | "accessNotConfigured") => {
            let api = if permission.starts_with("iam.") { "iam" } else { "storage" };
            format!("; the API is disabled in the project: gcloud services enable {api}.googleapis.com")
        }
        (403, "accountDisabled" | "BILLING_DISABLED" | "billingNotEnabled") => {
            "; the project has no billing account: link one".to_owned()
        }
        (403, "rateLimitExceeded" | "userRateLimitExceeded" | "quotaExceeded") | (429, _) => {
            if permission == "iam.serviceAccounts.create" && refusal.message.contains("Maximum number") {
                "; delete unused service accounts, ask Google for a higher quota, or name a serviceAccount in the \
                 StorageClass"
                    .to_owned()
            } else {
                "; Google's rate limit is reached: the provisioner retries later".to_owned()
            }
        }
        (403, "retentionPolicyNotMet") => "; the bucket keeps its objects for some time: wait".to_owned(),
        (403, "objectUnderActiveHold") => "; an object has a hold: release it".to_owned(),
        (403, _) if permission == CREATE_BUCKET && refusal.message.contains(" domain") => {
            "; Google treats a bucket name with dots as a domain, which the administrator's account must own: choose a \
             bucketName without dots"
                .to_owned()
        }
        (403, _) => {
            let role = match permission {
                permission if permission.starts_with("iam.") => "roles/iam.serviceAccountAdmin",
                permission if permission.starts_with("storage.hmacKeys.") => "roles/storage.hmacKeyAdmin",
                _ => "roles/storage.admin",
            };
            format!("; {source} needs the permission {permission}: grant it {role} in the project")
        }
        (400 | 404, _) if refusal.message.to_lowercase().contains("project") => {
            "; check project in the StorageClass, or --project".to_owned()
        }
        _ => String::new(),
    }
}

/// Shortens a service's text to one line.
pub(crate) fn printable(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(300).collect();
    line.trim().to_owned()
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        Self::NoResponse { doing: "get a token".to_owned(), reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Clients, Proxies};
    use crate::token::Origin;

    #[test]
    fn parses_refusals_of_storage_and_iam() {
        let storage = br#"{"error":{"code":409,"message":"Taken","errors":[{"domain":"global","reason":"conflict"}]}}"#;
        assert_eq!(refusal(409, storage).unwrap().to_string(), "409 conflict: Taken");
        let iam = br#"{"error":{"code":404,"message":"Unknown service account","status":"NOT_FOUND"}}"#;
        assert_eq!(refusal(404, iam).unwrap().to_string(), "404 NOT_FOUND: Unknown service account");
        let off = br#"{"error":{"code":403,"message":"off","status":"PERMISSION_DENIED","details":[
            {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SERVICE_DISABLED"}]}}"#;
        assert_eq!(refusal(403, off).unwrap().reason, "SERVICE_DISABLED");
        let testbench = br#"{"error":{"errors":[{"domain":"global","message":"Bucket x does not exist."}]}}"#;
        assert_eq!(refusal(404, testbench).unwrap().message, "Bucket x does not exist.");
        assert_eq!(refusal(502, b"").unwrap().to_string(), "502");
        for other in [&b"<html>"[..], b"{}", b"[]", b"{\"error\":\"invalid_grant\"}"] {
            assert_eq!(refusal(502, other), None);
        }
        for of_proxy in [&b""[..], b"{\"error\":{}}"] {
            assert_eq!(refusal(404, of_proxy), None);
        }
    }

    #[test]
    fn suggests_another_name_for_a_domain_that_google_does_not_accept() {
        let clients = Clients::new(Proxies::default(), Duration::from_secs(5));
        let source = TokenSource::new(Origin::MetadataServer, clients.get("http://127.0.0.1:1", None).unwrap());
        let advice_for = |message: &str| {
            let refusal = Refusal { status: 403, reason: "forbidden".to_owned(), message: message.to_owned() };
            advice(&refusal, &Call::new(Method::POST, String::new(), CREATE_BUCKET, "create the bucket"), &source)
        };
        for domain in [
            "The bucket you tried to create requires domain ownership verification.",
            "Another user owns the domain example.com or a parent domain.",
        ] {
            assert!(advice_for(domain).contains("choose a bucketName without dots"), "{domain}");
        }
        let denied = "admin@domain.iam.gserviceaccount.com does not have storage.buckets.create access to the project.";
        assert!(advice_for(denied).contains("needs the permission storage.buckets.create"));
    }

    #[test]
    fn percent_encodes_names_in_paths() {
        assert_eq!(encoded("a/b ü.~_-@"), "a%2Fb%20%C3%BC.~_-%40");
    }
}
