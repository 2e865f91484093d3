//! API calls with a deadline, and their errors classified by meaning.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Builder;
use http::{HeaderValue, Request};
use kube::core::response::{Status, reason};
use serde::Deserialize;

/// Runs one API request with a deadline.
///
/// The client itself sets no time limit, so every request except a watch needs this one.
///
/// # Errors
///
/// See [`CallError`].
pub fn call<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = Result<T, CallError>> {
    // A request's future takes kilobytes. Boxing it allocates them once, and only while the request is under way.
    let request = Box::pin(request);
    async move {
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(CallError::TimedOut(limit)),
        }
    }
}

/// Builds the request that creates an object in the collection at this path. The body must be serialized from a typed
/// object.
///
/// # Errors
///
/// Fails if the path is not valid.
pub fn create_request(collection: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, CallError> {
    write_request(Request::post(format!("{collection}?{UNCHECKED}")), body)
}

/// Same as [`create_request`], with a given field manager: `metadata.managedFields` records it as the creator of the
/// object.
///
/// # Errors
///
/// Fails if the path or the name is not valid in a URL.
pub fn create_request_as(manager: &str, collection: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, CallError> {
    write_request(Request::post(format!("{collection}?{UNCHECKED}&fieldManager={manager}")), body)
}

/// Builds the request that replaces an object of this name, like [`create_request`].
///
/// # Errors
///
/// Fails if the path is not valid.
pub fn replace_request(collection: &str, name: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, CallError> {
    write_request(Request::put(format!("{collection}/{name}?{UNCHECKED}")), body)
}

/// Bodies serialized from typed objects have no unknown fields, so the server need not check for them.
const UNCHECKED: &str = "fieldValidation=Ignore";

fn write_request(request: Builder, body: Vec<u8>) -> Result<Request<Vec<u8>>, CallError> {
    request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body).map_err(invalid_request)
}

/// The fields read from the response to a frequent write. The rest is as it was sent.
#[derive(Deserialize)]
pub(crate) struct WriteResponse {
    pub(crate) metadata: WrittenMetadata,
}

/// The written object's uid, and its new version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenMetadata {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

/// Returns `None` if the API server reports that this object does not exist. If it does not serve the kind at the
/// moment, which is [`CallError::NotServed`], the object may exist.
pub fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(CallError::NotFound) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Returns the error of a call whose request could not be built.
pub fn invalid_request(error: impl std::fmt::Display) -> CallError {
    CallError::Other(error.to_string())
}

/// The reason why an API call failed. The messages are complete sentences.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// An object of that name already exists.
    #[error("An object with this name already exists.")]
    AlreadyExists,

    /// Another client changed the object in the meantime, or a precondition does not hold.
    #[error("The object was changed concurrently.")]
    Conflict,

    /// The account lacks a permission, or an admission rule objects. The server's message names verb and resource.
    #[error("The API server does not allow this: {0}")]
    Forbidden(String),

    /// The server does not understand the request or rejects a value; the same request will fail again.
    #[error("The API server rejects the request: {0}")]
    Invalid(String),

    /// An object cannot be created in a namespace that does not exist.
    #[error("The namespace {0} does not exist: create it, or name another one.")]
    NoNamespace(String),

    /// An object cannot be created in a namespace that is being deleted.
    #[error("The namespace {0} is being deleted, so no object can be created in it.")]
    NamespaceTerminating(String),

    /// The object does not exist.
    #[error("The object does not exist.")]
    NotFound,

    /// The server does not serve this path, which says nothing about any object. A starting server, a proxy and a
    /// removed CustomResourceDefinition respond this way.
    #[error("The API server does not serve this resource: {0}")]
    NotServed(String),

    /// Any other error.
    #[error("The API call failed: {0}")]
    Other(String),

    /// The server did not respond in time. A write may still have happened.
    #[error("The API server did not answer within {0:?}.")]
    TimedOut(Duration),

    /// The server asks clients to slow down.
    #[error("The API server is busy: {message}")]
    TooManyRequests {
        /// The delay that the server asks for.
        retry_after: Option<Duration>,
        /// The server's message.
        message: String,
    },

    /// The credentials are missing, expired or not accepted.
    #[error("The API server does not accept the credentials: {0}")]
    Unauthorized(String),

    /// The server cannot be reached or is unable to respond. A write may still have happened.
    #[error("The API server is not available: {0}")]
    Unavailable(String),
}

impl CallError {
    /// Returns the delay that the server asks for before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns true if the same request may succeed later without any other change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotServed(_) | Self::TimedOut(_) | Self::TooManyRequests { .. } | Self::Unavailable(_))
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        use kube::Error;
        match error {
            Error::Api(status) => Self::from(*status),
            Error::Auth(error) => Self::Unauthorized(crate::error_text::error_chain(&error)),
            Error::HyperError(error) => Self::Unavailable(crate::error_text::error_chain(&error)),
            Error::ReadEvents(error) => Self::Unavailable(crate::error_text::error_chain(&error)),
            Error::Service(error) => Self::Unavailable(crate::error_text::error_chain(&*error)),
            Error::SerdeError(error) => Self::Other(format!("unexpected response: {error}")),
            error => Self::Other(crate::error_text::error_chain(&error)),
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let message = match status.message.trim() {
            "" if status.reason.is_empty() => format!("status {}", status.code),
            "" => status.reason.clone(),
            text => text.to_owned(),
        };
        // The reason is more specific than the code, but not every response has one.
        match (status.reason.as_str(), status.code) {
            (reason::ALREADY_EXISTS, _) => Self::AlreadyExists,
            (reason::NOT_FOUND, _) | (_, 404) => match &status.details {
                Some(details) if details.kind == "namespaces" => Self::NoNamespace(details.name.clone()),
                Some(details) if !details.name.is_empty() => Self::NotFound,
                _ => Self::NotServed(message),
            },
            (reason::CONFLICT, _) | (_, 409) => Self::Conflict,
            (reason::FORBIDDEN, _) | (_, 403) => match terminating(&status) {
                Some(namespace) => Self::NamespaceTerminating(namespace),
                None => Self::Forbidden(message),
            },
            (reason::UNAUTHORIZED, _) | (_, 401) => Self::Unauthorized(message),
            (reason::INVALID | reason::BAD_REQUEST, _) | (_, 400 | 413 | 422) => Self::Invalid(message),
            (reason::TOO_MANY_REQUESTS, _) | (_, 429) => {
                Self::TooManyRequests { retry_after: retry_after(&status), message }
            }
            (_, 500..) => Self::Unavailable(message),
            _ => Self::Other(message),
        }
    }
}

/// Returns the namespace that is being deleted, as reported by the admission plugin NamespaceLifecycle.
fn terminating(status: &Status) -> Option<String> {
    let cause = status.details.as_ref()?.causes.iter().find(|cause| cause.reason == "NamespaceTerminating")?;
    let name = cause.message.strip_prefix("namespace ").unwrap_or(&cause.message);
    Some(name.strip_suffix(" is being terminated").unwrap_or(name).to_owned())
}

fn retry_after(status: &Status) -> Option<Duration> {
    match status.details.as_ref()?.retry_after_seconds {
        0 => None,
        seconds => Some(Duration::from_secs(seconds.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;
    use serde_json::json;

    #[test]
    fn write_requests_disable_field_validation() {
        let create = create_request("/api/v1/pods", b"{}".to_vec()).unwrap();
        assert_eq!((create.method().as_str(), create.uri().to_string()), ("POST", format!("/api/v1/pods?{UNCHECKED}")));
        let replace = replace_request("/api/v1/pods", "a", b"{}".to_vec()).unwrap();
        assert_eq!(
            (replace.method().as_str(), replace.uri().to_string()),
            ("PUT", format!("/api/v1/pods/a?{UNCHECKED}"))
        );
        assert_eq!(replace.headers()[CONTENT_TYPE], "application/json");
        assert!(replace_request("/api/v1/pods", "a b", Vec::new()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn returns_a_response_in_time() {
        let limit = Duration::from_secs(10);
        let request = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            Ok(7)
        };
        assert_eq!(call(limit, request).await.ok(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn times_out_without_a_response() {
        let limit = Duration::from_secs(10);
        let error = call::<()>(limit, std::future::pending()).await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut(time) if time == limit));
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "The API server did not answer within 10s.");
    }

    #[test]
    fn classifies_errors_by_reason_and_code() {
        let cases = [
            (404, "NotFound", "NotServed(\"text\")"),
            (409, "AlreadyExists", "AlreadyExists"),
            (409, "Conflict", "Conflict"),
            (409, "", "Conflict"),
            (410, "Expired", "Other(\"text\")"),
            (400, "BadRequest", "Invalid(\"text\")"),
            (413, "RequestEntityTooLarge", "Invalid(\"text\")"),
            (422, "Invalid", "Invalid(\"text\")"),
            (403, "Forbidden", "Forbidden(\"text\")"),
            (401, "Unauthorized", "Unauthorized(\"text\")"),
            (429, "TooManyRequests", "TooManyRequests { retry_after: None, message: \"text\" }"),
            (500, "InternalError", "Unavailable(\"text\")"),
            (503, "", "Unavailable(\"text\")"),
            (504, "Timeout", "Unavailable(\"text\")"),
            (405, "MethodNotAllowed", "Other(\"text\")"),
        ];
        for (code, reason, expected) in cases {
            let status = Status::failure("text", reason).with_code(code);
            assert_eq!(format!("{:?}", CallError::from(status)), expected, "{code} {reason}");
        }
    }

    #[test]
    fn classifies_not_found_by_the_named_object() {
        let status = |details| Status::failure("text", "NotFound").with_code(404).with_details(details);
        let named = StatusDetails { name: "photos".to_owned(), ..details() };
        assert!(matches!(CallError::from(status(named.clone())), CallError::NotFound));
        let namespace = StatusDetails { kind: "namespaces".to_owned(), ..named };
        let error = CallError::from(status(namespace)).to_string();
        assert_eq!(error, "The namespace photos does not exist: create it, or name another one.");
        let cause = json!({"reason": "NamespaceTerminating", "message": "namespace photos is being terminated"});
        let going = serde_json::from_value(json!({"code": 403, "reason": "Forbidden", "details": {"causes": [cause]}}));
        let error = CallError::from(serde_json::from_value::<Status>(going.unwrap()).unwrap()).to_string();
        assert_eq!(error, "The namespace photos is being deleted, so no object can be created in it.");
        assert!(matches!(CallError::from(status(details())), CallError::NotServed(_)));
    }

    #[test]
    fn keeps_the_delay_that_the_server_asks_for() {
        let details = StatusDetails { retry_after_seconds: 3, ..details() };
        let status = Status::failure("slow down", "TooManyRequests").with_code(429).with_details(details);
        let error = CallError::from(status);
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(error.to_string(), "The API server is busy: slow down");
        assert_eq!(CallError::NotFound.retry_after(), None);
    }

    #[test]
    fn classifies_transient_errors() {
        let transient = [404, 500, 503, 504, 429];
        for code in [400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504] {
            let error = CallError::from(Status::failure("", "").with_code(code));
            assert_eq!(error.is_transient(), transient.contains(&code), "{code}");
        }
    }

    #[test]
    fn error_without_message_contains_the_status_code() {
        let error = CallError::from(Status::failure("", "").with_code(503));
        assert_eq!(error.to_string(), "The API server is not available: status 503");
    }

    #[test]
    fn connection_error_contains_its_cause() {
        let refused = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = CallError::from(kube::Error::Service(Box::new(refused)));
        assert_eq!(error.to_string(), "The API server is not available: connection refused");
    }

    fn details() -> StatusDetails {
        StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        }
    }
}
