//! The metrics of attempts, which each controller exports with its own prefix.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use provisioner_runtime::controller::CallAborted;

/// From a millisecond to half an hour, for slow backends.
const BUCKETS: [f64; 14] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0];

pub(crate) type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct AttemptLabels {
    pub(crate) operation: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) class: String,
}

/// Attempts, by their outcome.
#[derive(Clone)]
pub(crate) struct AttemptMetrics {
    attempts: Family<AttemptLabels, Counter>,
    seconds: Durations<AttemptLabels>,
}

impl AttemptMetrics {
    pub(crate) fn new() -> Self {
        Self { attempts: Family::default(), seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)) }
    }

    pub(crate) fn register(&self, ours: &mut Registry) {
        ours.register("attempts", "Attempts by outcome", self.attempts.clone());
        let help = "Duration of attempts, the author's code included";
        ours.register("attempt_duration_seconds", help, self.seconds.clone());
    }

    /// Starts a counter at zero: Prometheus does not see an increase if the first value that it reads is 1.
    pub(crate) fn start(&self, labels: &AttemptLabels) {
        drop(self.attempts.get_or_create(labels));
        drop(self.seconds.get_or_create(labels));
    }

    pub(crate) fn count(&self, labels: &AttemptLabels, took: Duration) {
        self.attempts.get_or_create(labels).inc();
        self.seconds.get_or_create(labels).observe(took.as_secs_f64());
    }
}

/// Gauges that are read at the time of the request: name, help and value of each.
pub(crate) struct Gauges<F>(pub(crate) F);

impl<F> fmt::Debug for Gauges<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

type Gauge = (&'static str, &'static str, f64);

pub(crate) fn gauge(name: &'static str, help: &'static str, value: f64) -> Gauge {
    (name, help, value)
}

impl<F: Fn() -> [Gauge; 3] + Send + Sync + 'static> Collector for Gauges<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)().into_iter().try_for_each(|(name, help, value)| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        })
    }
}

/// Returns the label of a call without an answer.
pub(crate) fn aborted_label(aborted: &CallAborted) -> &'static str {
    match aborted {
        CallAborted::Panicked(_) => "panicked",
        CallAborted::Fenced => "lost",
        CallAborted::TimedOut(_) => "timed_out",
    }
}
