//! This process, and the settings that the loop of either controller gets from it and from the options.

use std::time::Duration;

use kube::Client;
use provisioner_runtime::controller::{LoopOptions, Safeguards, Sharing};
use provisioner_runtime::events::EventApi;
use provisioner_runtime::journal::JournalKind;
use provisioner_runtime::{AccessError, Backoff, Environment, LeaseOptions, check_access, lease_name};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::cluster;
use crate::controller::RunError;
use crate::options::{Coordination, Options};
use crate::{protocol, rbac};

/// The delay before another permission check.
const PAUSE: Duration = Duration::from_secs(1);

/// The number of checks before a permission counts as missing: manifests may create a pod before its role.
const CHECKS: u32 = 6;

/// The environment and the identity of this process.
pub(crate) struct Process {
    client: Client,
    pub(crate) namespace: String,
    pub(crate) cluster_id: String,
    pub(crate) journal: JournalKind,
    instance: String,
    sharing: Sharing,
    environment: Environment,
}

impl Process {
    /// Determines the settings of this process. Returns `None` if `shutdown` is cancelled first.
    pub(crate) async fn identify(
        options: &Options,
        serves: &'static str,
        client: Client,
        environment: Environment,
        shutdown: &CancellationToken,
    ) -> Result<Option<Self>, RunError> {
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let instance = instance(options, &environment);
        let sharing = sharing(options, serves, &namespace, &instance, environment)?;
        let Some(cluster_id) = cluster::identify(options, &client, shutdown).await? else { return Ok(None) };
        let Some(journal) = journal_kind(options, &client, &namespace, shutdown).await else { return Ok(None) };
        Ok(Some(Self { client, namespace, cluster_id, journal, instance, sharing, environment }))
    }

    /// Returns the client, and the options of the control loop. `queue` names the loop's queue in metrics, and
    /// `shard_by` returns the part of a key that selects its shard.
    pub(crate) fn into_loop(
        self,
        options: &Options,
        queue: &'static str,
        shard_by: fn(&str) -> String,
        safeguards: Safeguards,
    ) -> (Client, LoopOptions) {
        let Self { client, namespace, cluster_id, journal, instance, sharing, environment } = self;
        let options = LoopOptions {
            name: options.provisioner_name.clone(),
            aliases: options.additional_provisioner_names.clone(),
            namespace,
            journal,
            events: if options.sidecar_rbac { EventApi::Core } else { EventApi::Events },
            cluster_id,
            instance,
            queue,
            sharing,
            requests: options.api_concurrency,
            calls: options.call_limits(),
            backoff: if options.exponential_backoff {
                Backoff::exponential(options.retry_interval_start, options.retry_interval_max)
            } else {
                Backoff::fixed(options.retry_interval_start)
            },
            resync: options.resync_period,
            retry_on_resync: options.retry_on_resync,
            grace: options.shutdown_timeout,
            http_endpoint: options.http_endpoint,
            environment,
            shard_by,
            safeguards,
        };
        (client, options)
    }
}

/// Returns the kind of journal that the account may use, or `None` on shutdown.
async fn journal_kind(
    options: &Options,
    client: &Client,
    namespace: &str,
    shutdown: &CancellationToken,
) -> Option<JournalKind> {
    let kind = options.journal_kind();
    if kind == JournalKind::ConfigMap {
        return Some(kind);
    }
    let needed = [rbac::journal_leases()];
    let mut refusals = 0;
    loop {
        match check_access(client, namespace, &needed).await {
            Ok(()) => {
                tracing::info!(namespace, "attempts are recorded in a Lease");
                return Some(kind);
            }
            Err(AccessError::Missing(missing)) => {
                refusals += 1;
                if refusals == CHECKS {
                    tracing::warn!(
                        missing = missing.join(", "),
                        "attempts are not recorded: storage may leak whenever this process ends; grant the \
                         permissions, and restart it"
                    );
                    return Some(JournalKind::Memory);
                }
            }
            Err(error) => tracing::warn!("cannot find out where attempts can be recorded: {error}"),
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = sleep(PAUSE) => {}
        }
    }
}

/// Returns the identity of this process, which distinguishes it from other processes of the same provisioner.
fn instance(options: &Options, environment: &Environment) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = options.node_name.clone().or(host).unwrap_or_else(|| "local".to_owned());
    let random = environment.number("instance");
    format!("{host}_{random:016x}")
}

/// Returns true if the identity contains the node's name as a whole word: `n10` does not contain `n1`.
fn names(identity: &str, node: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_ascii_alphanumeric());
    identity.match_indices(node).any(|(at, _)| {
        let (before, after) = (&identity[..at], &identity[at + node.len()..]);
        ends(before.chars().next_back()) && ends(after.chars().next())
    })
}

/// Returns the mode in which replicas share the work. `serves` is the value of a label of their Leases.
fn sharing(
    options: &Options,
    serves: &'static str,
    namespace: &str,
    instance: &str,
    environment: Environment,
) -> Result<Sharing, RunError> {
    if options.shards > 1 && options.coordination != Coordination::Lease {
        return Err(RunError::Options("--shards needs --coordination lease".to_owned()));
    }
    let label = (protocol::SERVES.to_owned(), serves.to_owned());
    match options.coordination {
        Coordination::Lease => Ok(Sharing::Leases(LeaseOptions {
            shards: options.shards,
            duration: options.lease_duration,
            renew_deadline: options.lease_renew_deadline,
            retry_period: options.lease_retry_period,
            fleet: lease_name(&options.provisioner_name),
            labels: options.lease_labels.clone().into_iter().chain([label]).collect(),
            environment,
            ..LeaseOptions::new(namespace, options.lease_name(), instance)
        })),
        Coordination::PerNode => match (&options.node_name, &options.identity) {
            (None, _) => Err(RunError::Options("--coordination per-node needs --node-name".to_owned())),
            // Replicas with one identity would delete each other's volumes.
            (Some(node), Some(identity)) if options.node_segments.is_none() && !names(identity, node) => {
                Err(RunError::Options(format!(
                    "with --coordination per-node, --identity must contain the node's name, {node}, as a whole word, because each \
                     replica deletes the volumes of its identity; omit --identity to use the node's name"
                )))
            }
            (Some(node), _) => Ok(Sharing::Own { part: node.clone() }),
        },
        Coordination::None => Ok(Sharing::Alone),
    }
}

#[cfg(test)]
mod tests {
    use kube_sim::{Cluster, Fault, Faults};

    use super::*;

    #[test]
    fn rejects_shards_without_leases() {
        for coordination in [Coordination::None, Coordination::PerNode] {
            let node_name = Some("node".to_owned());
            let options = Options { coordination, shards: 2, node_name, ..Options::new("example.com/p") };
            let shared = sharing(&options, "volumes", "default", "p", Environment::default());
            assert!(matches!(shared, Err(RunError::Options(_))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_does_not_count_as_a_missing_permission() {
        let (outage, role) = (PAUSE * 10, PAUSE * 12);
        let faults = Faults::none(1).with(Fault::Unavailable, 1.0).until(outage);
        let cluster = Cluster::builder().rbac().faults(&faults).build();
        let options = Options { sidecar_rbac: true, ..Options::new("example.com/p") };
        let granted = async {
            sleep(role).await;
            let group = "rbac.authorization.k8s.io";
            let role = format!("{{apiGroup: {group}, kind: ClusterRole, name: cluster-admin}}");
            let subjects = format!("[{{apiGroup: {group}, kind: User, name: p}}]");
            let binding = format!("metadata: {{name: p}}, roleRef: {role}, subjects: {subjects}");
            let object = format!("{{apiVersion: {group}/v1, kind: ClusterRoleBinding, {binding}}}");
            cluster.create_yaml(&object).unwrap();
        };
        let (client, shutdown) = (cluster.client("p"), CancellationToken::new());
        let kind = journal_kind(&options, &client, "default", &shutdown);
        assert_eq!(futures::future::join(kind, granted).await.0, Some(JournalKind::Lease));
    }
}
