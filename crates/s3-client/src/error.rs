//! What can go wrong with a request, by meaning. No text holds a key or a signature.

use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use crate::xml;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The service refused the request.
    #[error(transparent)]
    Answer(#[from] Answer),
    /// The clocks of this machine and of the service differ by more than the service allows.
    #[error("{endpoint} says that the clock of this machine is wrong: the clocks of both must agree to 15 minutes")]
    ClockSkew {
        /// The service's address.
        endpoint: String,
    },
    /// What answered is no such service: a proxy, a load balancer or a web page.
    #[error("{endpoint} answered {status} and does not speak S3 there: check the address, and proxies before it")]
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
        /// What the network says.
        reason: String,
    },
    /// There was no answer in time. The request may have been carried out.
    #[error("{endpoint} has not answered in {limit:?}")]
    TimedOut {
        /// The service's address.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// The answer is longer than the client reads.
    #[error("{endpoint} answered with more than {limit} bytes")]
    TooLarge {
        /// The service's address.
        endpoint: String,
        /// The most that is read.
        limit: usize,
    },
    /// The request cannot be sent: it has a name or a value that HTTP does not allow.
    #[error("cannot ask: {0}")]
    Request(String),
    /// An object of a bucket could not be deleted.
    #[error("cannot delete the object {key:?}: {code}")]
    Object {
        /// The object's name.
        key: String,
        /// The service's code.
        code: String,
    },
}

impl Error {
    /// The service's code for its refusal, such as `NoSuchBucket`. Empty for all other errors.
    pub fn code(&self) -> &str {
        match self {
            Self::Answer(answer) => &answer.code,
            _ => "",
        }
    }

    /// Whether nothing of the request was carried out, for certain. After any other error it may have been.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Answer(answer) => answer.is_busy() || (400..500).contains(&answer.status),
            Self::ClockSkew { .. } | Self::Request(_) => true,
            _ => false,
        }
    }

    /// The HTTP status of the service's refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Answer(answer) => Some(answer.status),
            _ => None,
        }
    }
}

/// A service's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The service's code, such as `NoSuchBucket`. Empty where the answer has no body, as for `HEAD`.
    pub code: String,
    /// The service's own words. Empty where they may hold something secret.
    pub message: String,
    /// The request's id, by which the service's logs have more.
    pub request_id: String,
}

impl Answer {
    /// Whether the service has too much to do, and has not done this.
    pub(crate) fn is_busy(&self) -> bool {
        const CODES: [&str; 5] =
            ["SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException"];
        self.status == 429 || CODES.contains(&self.code.as_str())
    }
}

impl std::error::Error for Answer {}

impl std::fmt::Display for Answer {
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

/// The error that an answer other than 2xx is.
pub(crate) fn refusal(endpoint: &str, status: u16, headers: &HeaderMap, body: &[u8]) -> Error {
    let endpoint = endpoint.to_owned();
    let header_id = || {
        let id = headers.get("x-amz-request-id").or_else(|| headers.get("x-amzn-requestid"));
        printable(id.and_then(|id| id.to_str().ok()).unwrap_or_default())
    };
    if body.iter().all(u8::is_ascii_whitespace) {
        let answer = Answer { status, code: String::new(), message: String::new(), request_id: header_id() };
        return Error::Answer(answer);
    }
    let Some(Parts { code, message, request_id }) = str::from_utf8(body).ok().and_then(parts) else {
        return Error::NotS3 { endpoint, status };
    };
    if ["RequestTimeTooSkewed", "RequestExpired"].contains(&code.as_str()) {
        return Error::ClockSkew { endpoint };
    }
    let message = if is_about_keys(&code) { String::new() } else { printable(&message) };
    let request_id = if request_id.is_empty() { header_id() } else { printable(&request_id) };
    Error::Answer(Answer { status, code: printable(&code), message, request_id })
}

struct Parts {
    code: String,
    message: String,
    request_id: String,
}

fn parts(body: &str) -> Option<Parts> {
    if let Ok(Value::Object(object)) = serde_json::from_str(body) {
        let text = |name| object.get(name).and_then(Value::as_str).map(str::to_owned);
        let message = text("Message").or_else(|| text("message")).unwrap_or_default();
        return Some(Parts { code: text("Code")?, message, request_id: text("RequestId").unwrap_or_default() });
    }
    let root = xml::parse(body)?;
    // S3 sends an `Error`, IAM and STS an `ErrorResponse` around it, and some `Errors` in between.
    let error = match root.name.as_str() {
        "Error" => &root,
        _ => root.child("Errors").unwrap_or(&root).child("Error")?,
    };
    let id = [error, &root].map(|element| element.text_of("RequestId"));
    let request_id = id.into_iter().find(|id| !id.is_empty()).unwrap_or_default().to_owned();
    Some(Parts { code: error.text_of("Code").to_owned(), message: error.text_of("Message").to_owned(), request_id })
}

/// Services repeat what was signed, and parts of keys, in their words about keys.
fn is_about_keys(code: &str) -> bool {
    ["Signature", "AccessKey", "Token", "Authorization", "Credential", "Incomplete", "Authentication"]
        .iter()
        .any(|part| code.contains(part))
}

/// A service's text as one short line.
fn printable(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(300).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, body: &str) -> Error {
        refusal("http://s3", status, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn refusals_of_s3_iam_and_the_admin_api() {
        let xml = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>The key\nis not there</Message>\
            <RequestId>tx1</RequestId></Error>";
        assert_eq!(error(404, xml).to_string(), "404 NoSuchKey: The key is not there, request tx1");
        let iam = "<ErrorResponse><Error><Type>Sender</Type><Code>EntityAlreadyExists</Code></Error>\
            <RequestId>7</RequestId></ErrorResponse>";
        assert_eq!(error(409, iam).to_string(), "409 EntityAlreadyExists, request 7");
        let json = "{\"Code\":\"NoSuchUser\",\"RequestId\":\"tx2\",\"HostId\":\"h\"}";
        assert_eq!(error(404, json).to_string(), "404 NoSuchUser, request tx2");
        assert_eq!((error(404, json).code(), error(404, json).status()), ("NoSuchUser", Some(404)));
        assert_eq!(error(403, "").to_string(), "403");
    }

    #[test]
    fn nothing_of_keys_and_signatures_is_told() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>SECRET</Message>\
            <StringToSign>SECRET</StringToSign><AWSAccessKeyId>SECRET</AWSAccessKeyId></Error>";
        assert_eq!(error(403, body).to_string(), "403 SignatureDoesNotMatch");
        assert!(!format!("{:?}", error(403, body)).contains("SECRET"));
    }

    #[test]
    fn what_is_not_s3_is_told_from_a_refusal() {
        for body in ["<html><body>502</body></html>", "<!DOCTYPE html><p>", "oops", "{}", "[1]"] {
            assert_eq!(error(502, body), Error::NotS3 { endpoint: "http://s3".to_owned(), status: 502 }, "{body}");
        }
        let skewed = "{\"Code\":\"RequestTimeTooSkewed\"}";
        assert!(matches!(error(403, skewed), Error::ClockSkew { .. }));
    }
}
