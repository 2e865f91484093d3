//! The metrics of the bucket controller.

use prometheus_client::registry::Registry;
use provisioner_runtime::controller::Context;

use super::cache::{BucketCache, ClaimCounts};
use crate::controller::shared::metrics::{AttemptLabels, AttemptMetrics, Gauges, gauge};

pub(super) fn register(attempts: &AttemptMetrics, registry: &mut Registry, context: Context<BucketCache>) {
    let ours = registry.sub_registry_with_prefix("bucket_provisioner");
    attempts.register(ours);
    ours.register_collector(Box::new(Gauges(move || {
        let ClaimCounts { waiting, bound, oldest_waiting } = context.cache().claim_counts();
        let age = oldest_waiting.map(|created| context.environment().now().duration_since(created));
        let age = age.unwrap_or_default().as_secs_f64().max(0.0);
        [
            gauge("claims_waiting", "Claims of this provisioner's classes without a bucket.", waiting as f64),
            gauge("oldest_waiting_claim_seconds", "Age of the oldest claim without a bucket.", age),
            gauge("claims_bound", "Claims of this provisioner's classes with a bucket.", bound as f64),
        ]
    })));
}

/// Starts the usual counters of a class at zero: Prometheus does not see an increase if the first value that it reads
/// is 1.
pub(super) fn start_class(attempts: &AttemptMetrics, class: &str) {
    for (operation, outcome) in
        [("provision", "success"), ("provision", "failed"), ("delete", "success"), ("delete", "failed")]
    {
        attempts.start(&AttemptLabels { operation, outcome, class: class.to_owned() });
    }
}
