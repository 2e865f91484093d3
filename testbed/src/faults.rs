//! A client whose requests fail as a test wants.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

/// What happens to a request instead of being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is answered with this status and never sent.
    Refuse(u16),
    /// It is never sent, and answered with 429 and the wish to be left alone for these seconds.
    Busy(u32),
    /// It is sent, and answered with this status whatever the real answer was.
    Lose(u16),
    /// It is neither sent nor ever answered.
    Hang,
}

/// A client whose next requests with this method, of paths that begin so, end so, one after the other.
pub fn failing(client: &Client, method: Method, path: &'static str, faults: &[Fault]) -> Client {
    let left = Mutex::new(faults.iter().copied().collect::<VecDeque<_>>());
    faulty(client, move |asked, at| {
        let hit = *asked == method && at.starts_with(path);
        hit.then(|| left.lock().unwrap_or_else(PoisonError::into_inner).pop_front()).flatten()
    })
}

/// A client that asks `rule` about method and path of each request.
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
