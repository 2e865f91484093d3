//! The startup of a program that runs a controller.

use std::time::Duration;

use kube::Client;
use provisioner_runtime::access::{AccessError, check_access};
use provisioner_runtime::client::{connect, connect_to};
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

/// A program that is ready to begin.
pub(crate) struct Program {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) shutdown: CancellationToken,
}

impl Program {
    /// Sets up logs and signals, connects, and checks that the account has these permissions. Returns `None` if the
    /// process receives a stop signal meanwhile.
    pub(crate) async fn start(options: &Options, rules: &[rbac::AccessRule]) -> Result<Option<Self>, RunError> {
        options.start_log();
        let shutdown = shutdown::on_signal().map_err(RunError::Signals)?;
        let kubeconfig = options.kubeconfig.as_deref();
        let connection = match &options.api_server {
            Some(server) => connect_to(server, kubeconfig).await?,
            None => connect(kubeconfig).await?,
        };
        let namespace = options.namespace.as_deref().unwrap_or(&connection.namespace);
        let mut attempt = 0;
        while let Err(error) = check_access(&connection.client, namespace, rules).await {
            attempt += 1;
            // A server that has just started rejects all requests for a moment.
            if attempt > ACCESS_CHECKS {
                let advice = match &error {
                    AccessError::Missing(_) => rbac::advice(options, namespace),
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
        let namespace = namespace.to_owned();
        Ok(Some(Self { client: connection.client, namespace, shutdown }))
    }
}
