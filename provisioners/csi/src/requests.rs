//! Requests to the API server.

use std::time::Duration;

use kube_provisioner::kube;
use provisioner_runtime::{CallError, call};

/// The limit of an attempt, which follows `--timeout`, may be hours.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends a request with a deadline.
pub(crate) fn limited<T>(request: impl Future<Output = kube::Result<T>>) -> impl Future<Output = Result<T, CallError>> {
    call(LIMIT, request)
}

/// Sends a request for one object with a deadline. Returns `None` only if the API server names the object as absent: if
/// it does not serve the kind at the moment, the object may exist.
pub(crate) fn existing<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = Result<Option<T>, CallError>> {
    let answer = limited(request);
    async move {
        match answer.await {
            Ok(object) => Ok(Some(object)),
            Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
