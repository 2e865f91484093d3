//! This process, and the settings that the loop of either controller gets from it and from the options.

use kube::Client;
use provisioner_runtime::controller::{LoopOptions, Safeguards, Sharing};
use provisioner_runtime::lease::LeaseOptions;
use provisioner_runtime::limiter::Limits;
use provisioner_runtime::{Backoff, Environment};
use tokio_util::sync::CancellationToken;

use super::cluster;
use crate::controller::RunError;
use crate::options::{Coordination, Options};

/// The bound of concurrent calls of the author's code where none is given. A call that only waits costs some kilobytes.
const CALLS: usize = 100;

/// Where this process runs, and its identity.
pub(crate) struct Process {
    client: Client,
    pub(crate) namespace: String,
    pub(crate) cluster_id: String,
    instance: String,
    sharing: Sharing,
    environment: Environment,
}

impl Process {
    /// Finds out where it runs. `None` if `shutdown` comes first.
    pub(crate) async fn identify(
        options: &Options,
        client: Client,
        environment: Environment,
        shutdown: &CancellationToken,
    ) -> Result<Option<Self>, RunError> {
        let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let instance = instance(options, &environment);
        let sharing = sharing(options, &namespace, &instance, environment)?;
        let cluster_id = cluster::identify(options, &client, shutdown).await?;
        Ok(cluster_id.map(|cluster_id| Self { client, namespace, cluster_id, instance, sharing, environment }))
    }

    /// The client, and the options of a loop whose metrics name its queue so.
    pub(crate) fn into_loop(
        self,
        options: &Options,
        queue: &'static str,
        safeguards: Safeguards,
    ) -> (Client, LoopOptions) {
        let Self { client, namespace, cluster_id, instance, sharing, environment } = self;
        let given = options.max_concurrent_calls;
        // A given number is the exact bound.
        let total = if given == 0 { CALLS } else { given };
        let options = LoopOptions {
            name: options.provisioner_name.clone(),
            namespace,
            cluster_id,
            instance,
            queue,
            sharing,
            requests: options.api_concurrency,
            calls: Limits { total, per_group: options.class_concurrency, one_each: given == 0 },
            backoff: match options.exponential_backoff {
                true => Backoff::exponential(options.retry_interval_start, options.retry_interval_max),
                false => Backoff::fixed(options.retry_interval_start),
            },
            resync: options.resync_period,
            retry_on_resync: options.retry_on_resync,
            grace: options.shutdown_timeout,
            http_endpoint: options.http_endpoint,
            environment,
            safeguards,
        };
        (client, options)
    }
}

/// The identity of this process among those of the same provisioner.
fn instance(options: &Options, environment: &Environment) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = options.node_name.clone().or(host).unwrap_or_else(|| "local".to_owned());
    let random = environment.number("instance");
    format!("{host}_{random:016x}")
}

/// How replicas share the work.
fn sharing(options: &Options, namespace: &str, instance: &str, environment: Environment) -> Result<Sharing, RunError> {
    match options.coordination {
        Coordination::Lease => Ok(Sharing::Leases(LeaseOptions {
            shards: options.shards,
            duration: options.lease_duration,
            renew_deadline: options.lease_renew_deadline,
            retry_period: options.lease_retry_period,
            environment,
            ..LeaseOptions::new(namespace, options.lease_name(), instance)
        })),
        Coordination::PerNode => match &options.node_name {
            Some(node) => Ok(Sharing::Own { part: node.clone() }),
            None => Err(RunError::Options("--coordination per-node needs --node-name".to_owned())),
        },
        Coordination::None => Ok(Sharing::Alone),
    }
}
