//! The metrics of the bucket controller.

use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::Context;
use provisioner_runtime::watch::Change;

use super::cache::{BucketCache, ClaimCounts};
use super::class::ReadClass;

/// From a millisecond to half an hour, for slow backends.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    operation: &'static str,
    outcome: &'static str,
    class: String,
}

/// Counts what `report` says.
#[derive(Clone)]
pub(crate) struct BucketMetrics {
    attempts: Family<AttemptLabels, Counter>,
    seconds: Family<AttemptLabels, Histogram, fn() -> Histogram>,
}

impl BucketMetrics {
    pub(crate) fn new() -> Self {
        Self { attempts: Family::default(), seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)) }
    }

    pub(crate) fn register(&self, registry: &mut Registry, context: Context<BucketCache>) {
        let ours = registry.sub_registry_with_prefix("bucket_provisioner");
        ours.register("attempts", "Attempts by what came of them.", self.attempts.clone());
        let help = "Duration of attempts, the author's code included.";
        ours.register("attempt_duration_seconds", help, self.seconds.clone());
        ours.register_collector(Box::new(Claims(context)));
    }

    /// Starts the usual counters of a class at zero: Prometheus sees no increase where the first value that it reads is 1.
    pub(crate) fn start_class_of(&self, event: &Change<ReadClass>) {
        let (Change::Listed(class) | Change::Applied(class)) = event else { return };
        if class.ours.is_none() {
            return;
        }
        for (operation, outcome) in
            [("provision", "success"), ("provision", "failed"), ("delete", "success"), ("delete", "failed")]
        {
            let labels = AttemptLabels { operation, outcome, class: class.name.to_string() };
            drop(self.attempts.get_or_create(&labels));
            drop(self.seconds.get_or_create(&labels));
        }
    }

    pub(crate) fn count(&self, (operation, outcome): (&'static str, &'static str), class: &str, took: Duration) {
        let labels = AttemptLabels { operation, outcome, class: class.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// The numbers of claims.
struct Claims(Context<BucketCache>);

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Claims")
    }
}

impl Collector for Claims {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let ClaimCounts { waiting, bound, oldest_waiting } = self.0.cache().claim_counts();
        let age = oldest_waiting.map(|created| self.0.environment().now().duration_since(created));
        let mut gauge = |name, help, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        gauge("claims_waiting", "Claims of this provisioner's classes that have no bucket.", waiting as f64)?;
        let help = "How long ago the oldest of them was created.";
        gauge("oldest_waiting_claim_seconds", help, age.unwrap_or_default().as_secs_f64().max(0.0))?;
        gauge("claims_bound", "Claims of this provisioner's classes that have their bucket.", bound as f64)
    }
}
