//! This process, and what the loop of either controller is told of it and of the options.

use kube::Client;
use provisioner_runtime::controller::{LoopOptions, Safeguards, Sharing};
use provisioner_runtime::limiter::Limits;
use provisioner_runtime::{Backoff, Environment};

use crate::options::Options;

/// The bound of concurrent calls of the author's code where none is given. A call that only waits costs some kilobytes.
const CALLS: usize = 100;

/// Where this process runs, and its identity.
pub(crate) struct Process {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) instance: String,
    pub(crate) sharing: Sharing,
    pub(crate) environment: Environment,
}

impl Process {
    /// The client, and the options of a loop whose metrics name its queue so.
    pub(crate) fn into_loop(
        self,
        options: &Options,
        queue: &'static str,
        safeguards: Safeguards,
    ) -> (Client, LoopOptions) {
        let Self { client, namespace, instance, sharing, environment } = self;
        let given = options.backend_concurrency;
        // A given number is the exact bound.
        let total = if given == 0 { CALLS } else { given };
        let options = LoopOptions {
            name: options.provisioner_name.clone(),
            namespace,
            instance,
            queue,
            sharing,
            requests: options.workers,
            calls: Limits { total, per_group: options.class_concurrency, one_each: given == 0 },
            backoff: match options.exponential_backoff {
                true => Backoff::exponential(options.retry_interval_start, options.retry_interval_max),
                false => Backoff::fixed(options.retry_interval_start),
            },
            resync: options.resync_period,
            retry_on_resync: options.retry_on_resync,
            grace: options.grace_period,
            admin_address: options.admin_address,
            environment,
            safeguards,
        };
        (client, options)
    }
}
