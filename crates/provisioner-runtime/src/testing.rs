//! An API server for tests: a function from a request to a response.

use std::convert::Infallible;

use futures::{Stream, StreamExt};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

type Bytes = <Body as http_body::Body>::Data;

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Returns a client whose requests `server` handles.
pub(crate) fn client<F, Fut>(mut server: F) -> Client
where
    F: FnMut(Request<Body>) -> Fut + Send + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = server(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    Client::new(service, "default")
}

/// Returns a response with this object.
pub(crate) fn object(value: &Value) -> Answer {
    text(value.to_string())
}

/// Returns a response with this text.
pub(crate) fn text(text: String) -> Answer {
    Response::new(Full::new(Bytes::from(text)).boxed_unsync())
}

/// Returns a refusal as worded by the API server.
pub(crate) fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    let status = json!({ "kind": "Status", "code": code, "reason": reason, "message": message,
        "details": {"name": "the-object"} });
    let mut answer = object(&status);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

/// Returns a response that arrives line by line.
pub(crate) fn lines(lines: impl Stream<Item = Value> + Send + 'static) -> Answer {
    let frames = lines.map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n")))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}

/// Returns the refusal of a server that asks clients to wait for some seconds.
pub(crate) fn busy(seconds: u32) -> Answer {
    let status = json!({
        "kind": "Status",
        "code": 429,
        "reason": "TooManyRequests",
        "message": "too many requests",
        "details": { "retryAfterSeconds": seconds },
    });
    let mut answer = object(&status);
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    answer
}
