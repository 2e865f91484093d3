//! Requests to the API server.

use std::time::Duration;

use kube_provisioner::kube;
use provisioner_runtime::call::found;
use provisioner_runtime::{CallError, call};

/// Time limit of one request. The limit of a whole attempt depends on `--timeout`, and may be hours.
const LIMIT: Duration = Duration::from_secs(30);

/// Sends a request with a deadline.
pub(crate) fn limited<T>(request: impl Future<Output = kube::Result<T>>) -> impl Future<Output = Result<T, CallError>> {
    call(LIMIT, request)
}

/// Sends a request for one object with a deadline. Returns `None` only if the object does not exist.
pub(crate) fn existing<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> impl Future<Output = Result<Option<T>, CallError>> {
    let answer = limited(request);
    async move { found(answer.await) }
}
