//! Errors of requests, classified by meaning. No message contains a key or a signature.

use std::error::Error as StdError;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_types::request_id::RequestId as _;
use http_body_util::LengthLimitError;

use crate::policy::PolicyError;

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The service refused the request.
    #[error(transparent)]
    Refused(#[from] ErrorResponse),
    /// The clocks of this machine and of the service differ by more than the service allows.
    #[error(
        "{endpoint} rejects the time of the request: the clocks of this machine and of the server must agree within 15 minutes"
    )]
    ClockSkew {
        /// The service's address.
        endpoint: String,
    },
    /// The response does not come from S3, but from a proxy, a load balancer or a web server.
    #[error("{endpoint} answered {status}, which is not an S3 response: check the address, and proxies in front of it")]
    NotS3 {
        /// The service's address.
        endpoint: String,
        /// The HTTP status.
        status: u16,
    },
    /// There was no connection, or it broke.
    #[error("{endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// The service's address.
        endpoint: String,
        /// The network error.
        reason: String,
    },
    /// There was no response in time. The request may have been carried out.
    #[error("{endpoint} did not answer in time")]
    TimedOut {
        /// The service's address.
        endpoint: String,
    },
    /// The response exceeds the client's limit.
    #[error("{endpoint} answered with more than the client reads")]
    TooLarge {
        /// The service's address.
        endpoint: String,
    },
    /// There are no credentials to sign with.
    #[error("no credentials are available: {reason}")]
    Credentials {
        /// The reason from the credentials provider.
        reason: String,
    },
    /// The request cannot be sent: it contains a name or a value that HTTP does not allow.
    #[error("invalid request: {0}")]
    Request(String),
    /// The policy of a bucket cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The service lists an object under a name that differs from its actual name.
    #[error("the object that is listed as {key:?} has another name in the store: delete it with the store's own tools")]
    NameMismatch {
        /// The listed name.
        key: String,
    },
    /// An object of a bucket could not be deleted.
    #[error("cannot delete the object {key:?}: {code}")]
    Object {
        /// The object's name.
        key: String,
        /// The error code of the service.
        code: String,
    },
}

impl Error {
    /// Returns the error for a refusal.
    pub fn refusal(endpoint: &str, answer: ErrorResponse) -> Self {
        match answer.code.as_str() {
            "RequestTimeTooSkewed" | "RequestExpired" => Self::ClockSkew { endpoint: endpoint.to_owned() },
            _ => Self::Refused(answer),
        }
    }

    /// Returns the error code of the service, such as `NoSuchBucket`. Empty for all other errors.
    pub fn code(&self) -> &str {
        match self {
            Self::Refused(answer) => &answer.code,
            _ => "",
        }
    }

    /// Returns true if it is certain that no part of the request was carried out. After any other error, it may have
    /// been.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(answer) => answer.is_busy() || (400..500).contains(&answer.status),
            Self::ClockSkew { .. } | Self::Credentials { .. } | Self::Request(_) => true,
            _ => false,
        }
    }

    /// Returns true if the service was overloaded and has not carried out the request.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Refused(answer) if answer.is_busy())
    }

    /// Returns the HTTP status of the refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(answer) => Some(answer.status),
            _ => None,
        }
    }
}

/// A refusal by a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub status: u16,
    /// The error code, such as `NoSuchBucket`. Empty if the response has no body, as for `HEAD`.
    pub code: String,
    /// The error message. Empty if it may contain a secret.
    pub message: String,
    /// The request ID, which identifies the request in the service's logs.
    pub request_id: String,
}

impl ErrorResponse {
    /// Creates a refusal. A message that may contain secrets is omitted.
    pub fn new(status: u16, code: &str, message: &str, request_id: &str) -> Self {
        let message = if is_about_keys(code) { "" } else { message };
        Self { status, code: printable(code), message: printable(message), request_id: printable(request_id) }
    }

    pub(crate) fn is_busy(&self) -> bool {
        const CODES: [&str; 5] =
            ["SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"];
        self.status == 429 || CODES.contains(&self.code.as_str())
    }
}

impl std::error::Error for ErrorResponse {}

impl std::fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, code, message, request_id } = self;
        write!(f, "{status}")?;
        for (before, part) in [(" ", code), (": ", message), (", request ", request_id)] {
            if !part.is_empty() {
                write!(f, "{before}{part}")?;
            }
        }
        Ok(())
    }
}

/// Classifies an error of the AWS SDK. `endpoint` is the service.
pub(crate) fn error<E>(endpoint: &str, error: SdkError<E, HttpResponse>) -> Error
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    let endpoint = endpoint.to_owned();
    let chain = |error: &dyn StdError| printable(&chain(error));
    if let Some(missing) = cause::<CredentialsError>(&error) {
        return Error::Credentials { reason: chain(missing) };
    }
    match &error {
        SdkError::TimeoutError(_) => Error::TimedOut { endpoint },
        SdkError::DispatchFailure(failure) if failure.is_timeout() => Error::TimedOut { endpoint },
        SdkError::DispatchFailure(failure) => {
            let reason = failure.as_connector_error().map(|error| chain(error)).unwrap_or_default();
            Error::Unreachable { endpoint, reason }
        }
        SdkError::ConstructionFailure(_) => Error::Request(chain(&error)),
        SdkError::ServiceError(refused) => {
            refusal(endpoint, refused.raw(), refused.err().meta().code(), refused.err().meta().message())
        }
        _ if cause::<LengthLimitError>(&error).is_some() => Error::TooLarge { endpoint },
        SdkError::ResponseError(broken) if !(200..300).contains(&broken.raw().status().as_u16()) => {
            Error::NotS3 { endpoint, status: broken.raw().status().as_u16() }
        }
        _ => Error::Unreachable { endpoint, reason: chain(&error) },
    }
}

fn refusal(endpoint: String, raw: &HttpResponse, code: Option<&str>, message: Option<&str>) -> Error {
    let status = raw.status().as_u16();
    let is_empty = raw.body().bytes().is_some_and(|body| body.iter().all(u8::is_ascii_whitespace));
    // Some stores wrap their refusals differently from AWS.
    let text = raw.body().bytes().and_then(|body| str::from_utf8(body).ok()).unwrap_or_default();
    let (code, message) = (code.or_else(|| element(text, "Code")), message.or_else(|| element(text, "Message")));
    // An unreadable success does not come from S3, and neither does a refusal without a code, unless its body is empty,
    // as for HEAD.
    let code = match code {
        Some(code) if !(200..300).contains(&status) => code,
        None if is_empty => "",
        _ => return Error::NotS3 { endpoint, status },
    };
    let request_id = raw.request_id().unwrap_or_default();
    Error::refusal(&endpoint, ErrorResponse::new(status, code, message.unwrap_or_default(), request_id))
}

/// Returns the text of an element without child elements.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0).filter(|text| !text.contains('<'))
}

/// Same as [`error()`], for a body that is read in pieces.
pub(crate) fn body_error(endpoint: &str, error: &(dyn StdError + 'static)) -> Error {
    let endpoint = endpoint.to_owned();
    match cause::<LengthLimitError>(error) {
        Some(_) => Error::TooLarge { endpoint },
        None => Error::Unreachable { endpoint, reason: printable(&chain(error)) },
    }
}

/// Returns the cause of this type, if there is one.
fn cause<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    error.downcast_ref().or_else(|| error.source().and_then(cause))
}

/// Formats an error with its causes, each only once.
pub fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// Returns true if an error code concerns keys: services then repeat signed data and parts of keys in the message.
fn is_about_keys(code: &str) -> bool {
    ["Signature", "AccessKey", "Token", "Authorization", "Credential", "Incomplete", "Authentication"]
        .iter()
        .any(|part| code.contains(part))
}

/// Formats a text of a service as one short line.
fn printable(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(300).collect();
    line.trim().to_owned()
}
