//! The metrics: the Go library's metrics under their original names, for existing dashboards, and our own.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::Context;
use provisioner_runtime::watch::Change;

use super::cache::VolumeCache;
use super::class::ReadClass;
use super::report::{Operation, OutcomeReport};
use crate::controller::shared::metrics::{AttemptLabels, AttemptMetrics, Durations, Gauges, gauge};

/// The Go library's buckets, which are the default of its client.
const GO_DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassAndSourceLabels {
    class: String,
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    class: String,
}

/// Counts the labels from `report`.
#[derive(Clone)]
pub(crate) struct VolumeMetrics {
    provisioned: Family<ClassAndSourceLabels, Counter>,
    provision_failed: Family<ClassAndSourceLabels, Counter>,
    provision_seconds: Durations<ClassAndSourceLabels>,
    deleted: Family<ClassLabels, Counter>,
    delete_failed: Family<ClassLabels, Counter>,
    delete_seconds: Durations<ClassLabels>,
    attempts: AttemptMetrics,
}

impl VolumeMetrics {
    pub(crate) fn new() -> Self {
        let go: fn() -> Histogram = || Histogram::new(GO_DEFAULT_BUCKETS);
        Self {
            provisioned: Family::default(),
            provision_failed: Family::default(),
            provision_seconds: Family::new_with_constructor(go),
            deleted: Family::default(),
            delete_failed: Family::default(),
            delete_seconds: Family::new_with_constructor(go),
            attempts: AttemptMetrics::new(),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry, context: Context<VolumeCache>) {
        let go = registry.sub_registry_with_prefix("controller");
        go.register("persistentvolumeclaim_provision", "Volumes provisioned", self.provisioned.clone());
        let help = "Provisioning attempts that failed";
        go.register("persistentvolumeclaim_provision_failed", help, self.provision_failed.clone());
        let help = "Duration of successful provisioning";
        go.register("persistentvolumeclaim_provision_duration_seconds", help, self.provision_seconds.clone());
        go.register("persistentvolume_delete", "Volumes deleted", self.deleted.clone());
        go.register("persistentvolume_delete_failed", "Deletion attempts that failed", self.delete_failed.clone());
        let help = "Duration of successful deletion";
        go.register("persistentvolume_delete_duration_seconds", help, self.delete_seconds.clone());
        let ours = registry.sub_registry_with_prefix("provisioner");
        self.attempts.register(ours);
        ours.register_collector(Box::new(Gauges(move || {
            let cache = context.cache();
            let (count, oldest) = cache.waiting_claims();
            let help = "Attempts of former journals that wait for space in this replica's journal.";
            [
                gauge("claims_waiting", "Claims of this provisioner without a volume.", count as f64),
                gauge(
                    "oldest_waiting_claim_seconds",
                    "Time since the oldest claim without a volume was first seen.",
                    oldest.as_secs_f64(),
                ),
                gauge("attempts_awaiting_adoption", help, cache.awaiting_adoption() as f64),
            ]
        })));
    }

    /// Starts the usual counters of a class at zero: Prometheus does not see an increase if the first value that it
    /// reads is 1.
    pub(crate) fn start_class_of(&self, event: &Change<ReadClass>) {
        let Some(class) = ReadClass::seen(event).map(str::to_owned) else { return };
        let provision = ClassAndSourceLabels { class: class.clone(), source: String::new() };
        drop(self.provisioned.get_or_create(&provision));
        drop(self.provision_failed.get_or_create(&provision));
        drop(self.provision_seconds.get_or_create(&provision));
        let delete = ClassLabels { class };
        drop(self.deleted.get_or_create(&delete));
        drop(self.delete_failed.get_or_create(&delete));
        drop(self.delete_seconds.get_or_create(&delete));
    }

    pub(crate) fn count(&self, report: &OutcomeReport, class: Option<&str>, source: Option<&str>, took: Duration) {
        let class = class.unwrap_or_default().to_owned();
        let operation = match report.operation {
            Operation::None => return,
            Operation::Provision => "provision",
            Operation::Expand => "expand",
            Operation::Delete => "delete",
        };
        let attempt = AttemptLabels { operation, outcome: report.label, class: class.clone() };
        self.attempts.count(&attempt, took);
        // Ignored and running operations count neither as success nor as failure.
        let failed = report.event.as_ref().is_some_and(|event| event.warning);
        match (report.operation, report.took) {
            (Operation::Delete, Some(took)) => {
                self.deleted.get_or_create(&ClassLabels { class: class.clone() }).inc();
                self.delete_seconds.get_or_create(&ClassLabels { class }).observe(took.as_secs_f64());
            }
            (Operation::Delete, None) if failed => {
                self.delete_failed.get_or_create(&ClassLabels { class }).inc();
            }
            (Operation::Provision, took) => {
                let labels = ClassAndSourceLabels { class, source: source.unwrap_or_default().to_owned() };
                if let Some(took) = took {
                    self.provisioned.get_or_create(&labels).inc();
                    self.provision_seconds.get_or_create(&labels).observe(took.as_secs_f64());
                } else if failed {
                    self.provision_failed.get_or_create(&labels).inc();
                }
            }
            _ => {}
        }
    }
}
