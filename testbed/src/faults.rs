//! Clients that inject faults into requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is not sent, and fails with this status.
    Refuse(u16),
    /// The request is not sent, and fails with 429 and a `Retry-After` of this number of seconds.
    Busy(u32),
    /// The request is sent, but its response is replaced by this status.
    Lose(u16),
    /// The request is neither sent nor ever answered.
    Hang,
}

/// A client whose next requests with this method and path prefix receive these faults, one each, in this order.
pub fn failing(client: &Client, method: Method, path: &'static str, faults: &[Fault]) -> Client {
    let left = Mutex::new(faults.iter().copied().collect::<VecDeque<_>>());
    faulty(client, move |asked, at| {
        let hit = *asked == method && at.starts_with(path);
        hit.then(|| left.lock().unwrap_or_else(PoisonError::into_inner).pop_front()).flatten()
    })
}

/// A client that calls `rule` with the method and path of each request.
pub fn faulty(client: &Client, rule: impl Fn(&Method, &str) -> Option<Fault> + Send + Sync + 'static) -> Client {
    let (client, rule) = (client.clone(), Arc::new(rule));
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let fault = rule(request.method(), request.uri().path());
        async move {
            match fault {
                None => client.send(request).await,
                Some(Fault::Refuse(code)) => Ok(refusal(code, 0)),
                Some(Fault::Busy(seconds)) => Ok(refusal(429, seconds)),
                Some(Fault::Lose(code)) => {
                    client.send(request).await?;
                    Ok(refusal(code, 0))
                }
                Some(Fault::Hang) => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

fn refusal(code: u16, retry_after: u32) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "refused by the test", "details": { "retryAfterSeconds": retry_after },
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
}
