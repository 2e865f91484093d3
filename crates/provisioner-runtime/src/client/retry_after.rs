//! Preserves the server's `Retry-After`, which the client would drop.

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::DynBody;
use kube::core::response::{Status, StatusDetails};
use tower::BoxError;
use tower::util::AndThenLayer;

/// Maximum length of an error text that is read.
const MAX_TEXT: usize = 16 * 1024;

type Answer = Response<Box<DynBody>>;
type ResponseFuture = BoxFuture<'static, Result<Answer, BoxError>>;

/// Copies the header `Retry-After` of a refusal to the status that becomes the error.
///
/// The server's flow control responds in plain text and gives the delay only in the header, but errors do not keep
/// headers.
pub(super) fn layer() -> AndThenLayer<fn(Answer) -> ResponseFuture> {
    AndThenLayer::new(|answer| keep_retry_after(answer).boxed())
}

async fn keep_retry_after(answer: Answer) -> Result<Answer, BoxError> {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        return Ok(answer);
    }
    let header = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let Some(seconds) = header.and_then(|text| text.trim().parse::<u32>().ok()) else {
        return Ok(answer);
    };
    let code = answer.status().as_u16();
    let text = read(answer.into_body()).await;
    let mut status = serde_json::from_slice::<Status>(&text)
        .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(&text).trim(), "TooManyRequests").with_code(code));
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    // The client recognizes its own error type among the errors of its layers.
    Err(Box::new(kube::Error::Api(status.boxed())))
}

/// Reads the text of a response, as far as it arrives.
async fn read(mut body: Box<DynBody>) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await
        && let Ok(data) = frame.into_data()
        && text.len() + data.len() <= MAX_TEXT
    {
        text.extend_from_slice(&data);
    }
    text
}
