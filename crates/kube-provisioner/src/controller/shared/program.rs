//! The startup of a program that runs a controller.

use std::time::Duration;

use kube::Client;
use provisioner_runtime::access::{AccessError, check_access};
use provisioner_runtime::client::{ConnectError, Connection, connect, connect_to};
use provisioner_runtime::shutdown;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::controller::RunError;
use crate::options::Options;
use crate::rbac;

/// The number of times that the start checks missing permissions again.
const ACCESS_CHECKS: u32 = 4;
/// The time between two such checks.
const ACCESS_PAUSE: Duration = Duration::from_millis(500);

/// Sets up logs and signals, connects, checks that the account has these permissions, and adds the namespace to the
/// options. Returns the client and a token that a stop signal cancels, or `None` if the signal arrives first.
pub(crate) async fn start(
    options: &mut Options,
    rules: &[rbac::AccessRule],
) -> Result<Option<(Client, CancellationToken)>, RunError> {
    options.start_log();
    let shutdown = shutdown::on_signal().map_err(RunError::Signals)?;
    let connection = connection(options).await?;
    let namespace = options.namespace.clone().unwrap_or(connection.namespace);
    let mut attempt = 0;
    while let Err(error) = check_access(&connection.client, &namespace, rules).await {
        attempt += 1;
        // A server that has just started rejects all requests for a moment.
        if attempt > ACCESS_CHECKS {
            let advice = match &error {
                AccessError::Missing(_) => rbac::advice(options, &namespace),
                _ => "Check the server.".to_owned(),
            };
            return Err(RunError::Access { error, advice });
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(None),
            () = sleep(ACCESS_PAUSE) => {}
        }
    }
    tracing::info!(provisioner = options.provisioner_name, "connected by {}", connection.source);
    options.namespace = Some(namespace);
    Ok(Some((connection.client, shutdown)))
}

/// Connects to the API server that the options name.
pub(crate) async fn connection(options: &Options) -> Result<Connection, ConnectError> {
    let kubeconfig = options.kubeconfig.as_deref();
    match &options.api_server {
        Some(server) => connect_to(server, kubeconfig).await,
        None => connect(kubeconfig).await,
    }
}
