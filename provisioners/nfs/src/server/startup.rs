//! Answers probes and waits for the API server before the controller runs. The NFS server serves recorded exports in
//! the meantime.

use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kube_provisioner::{CancellationToken, Options, client};
use provisioner_runtime::admin::{AdminServer, Checks};
use tokio::signal::unix::Signal;
use tokio::time::sleep;

type BoxError = Box<dyn Error + Send + Sync>;

/// Delay before the next request to the API server. It doubles after each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Answers probes until the controller does, because the kubelet would restart a process that only waits.
pub(super) async fn serve_probes(options: &Options) -> Infallible {
    let server = match options.http_endpoint {
        // If the address cannot be bound, the controller reports it later.
        Some(address) => AdminServer::bind(address).await.ok(),
        None => None,
    };
    if let Some(server) = server {
        let checks = Checks::new();
        checks.add("controller", || Err("waiting for the disk or the API server".to_owned()));
        server.serve(checks, Arc::default(), CancellationToken::new()).await;
    }
    pending().await
}

/// Waits until the API server answers.
pub(super) async fn wait_for_api_server(options: &Options, terminate: &mut Signal) -> Result<(), BoxError> {
    let answers = async {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = client(options).await {
            tracing::warn!("the API server is unavailable, trying again: {error}; recorded exports are still served");
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    };
    tokio::select! {
        biased;
        _ = terminate.recv() => Err("terminated before the API server answered".into()),
        () = answers => Ok(()),
    }
}
