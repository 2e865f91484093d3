//! Time limits of requests to the API server.

use std::time::Duration;

use kube_provisioner::kube::Error as KubeError;
use tokio::time::timeout;

/// The client waits for a response without limit, and the limit of an attempt, which follows `--timeout`, may be hours.
const LIMIT: Duration = Duration::from_secs(30);

/// Limits the duration of a request to the API server.
pub(crate) fn limited<T>(
    request: impl Future<Output = Result<T, KubeError>>,
) -> impl Future<Output = Result<T, KubeError>> {
    let request = Box::pin(request);
    async move {
        let silent = || KubeError::Service(format!("the API server did not answer within {LIMIT:?}").into());
        timeout(LIMIT, request).await.unwrap_or_else(|_| Err(silent()))
    }
}
