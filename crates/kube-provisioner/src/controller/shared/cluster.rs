//! The ID of this cluster, which distinguishes its storage from the storage of other clusters on the same backend.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use provisioner_runtime::call::{CallError, call};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::controller::RunError;
use crate::options::Options;

/// The namespace exists in every cluster and cannot be deleted, so its uid lasts as long as the cluster.
pub(crate) const SYSTEM_NAMESPACE: &str = "kube-system";

const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the ID of the cluster that the controller would use with these options: the configured one, or the uid of
/// the namespace kube-system. For a provisioner's own commands.
///
/// # Errors
/// If the namespace cannot be read; the error says what to do.
pub async fn cluster_id(options: &Options, client: &Client) -> Result<String, RunError> {
    match &options.cluster_id {
        Some(id) => Ok(id.clone()),
        None => read(client).await.map_err(|error| RunError::Cluster { problem: error.to_string() }),
    }
}

/// Returns the ID like [`cluster_id`], but retries until it succeeds. Returns `None` if `shutdown` comes first. The ID
/// is empty if it is optional and the account may not read it.
pub(crate) async fn identify(
    options: &Options,
    client: &Client,
    shutdown: &CancellationToken,
) -> Result<Option<String>, RunError> {
    if let Some(id) = &options.cluster_id {
        return Ok(Some(id.clone()));
    }
    loop {
        let problem = match read(client).await {
            Ok(id) => return Ok(Some(id)),
            Err(CallError::Forbidden(_)) if options.sidecar_rbac => return Ok(Some(String::new())),
            Err(error @ (CallError::Forbidden(_) | CallError::NoNamespace(_))) => {
                return Err(RunError::Cluster { problem: error.to_string() });
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!(problem, "cannot read the namespace {SYSTEM_NAMESPACE}, whose uid identifies the cluster");
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(None),
            () = sleep(PAUSE) => {}
        }
    }
}

async fn read(client: &Client) -> Result<String, CallError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = call(LIMIT, namespaces.get(SYSTEM_NAMESPACE)).await?;
    namespace.metadata.uid.ok_or_else(|| CallError::Other(format!("{SYSTEM_NAMESPACE} has no uid")))
}
