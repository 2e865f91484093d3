//! Metrics of roots and volumes. They are measured in the background, because scrapes must not wait for a disk.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use directory_volumes::{Measured, Worker};
use kube_provisioner::StartError;
use kube_provisioner::prometheus_client::collector::Collector;
use kube_provisioner::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use kube_provisioner::prometheus_client::metrics::MetricType;
use kube_provisioner::prometheus_client::metrics::gauge::ConstGauge;
use kube_provisioner::prometheus_client::registry::Registry;

/// Interval between measurements of a root.
const PERIOD: Duration = Duration::from_secs(60);
/// Interval while a root cannot be measured, for example before its first use.
const PAUSE: Duration = Duration::from_secs(10);

/// The measurements of each root, by its path. A root that cannot be measured now has no metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootMetrics(Arc<Mutex<BTreeMap<String, Measured>>>);

impl RootMetrics {
    /// Measures a root periodically. Never returns.
    pub(crate) async fn follow(self, worker: Worker) {
        loop {
            let measured = worker.run(|root| Ok::<_, StartError>(root.usage()?)).await;
            let pause = if measured.is_ok() { PERIOD } else { PAUSE };
            self.set(&worker.root().path().to_string_lossy(), measured.ok());
            tokio::time::sleep(pause).await;
        }
    }

    fn set(&self, root: &str, measured: Option<Measured>) {
        match measured {
            Some(measured) => drop(self.all().insert(root.to_owned(), measured)),
            None => drop(self.all().remove(root)),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.sub_registry_with_prefix("provisioner").register_collector(Box::new(self.clone()));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Measured>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for RootMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.all();
        let mut gauge = |name: &str, help: &str, values: &dyn Fn(MetricEncoder<'_>) -> fmt::Result| {
            values(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
        };
        gauge("root_size_bytes", "Size of the file system of a root.", &|metric| {
            each(metric, all.iter().map(|(root, measured)| ([("root", &**root)], measured.size)))
        })?;
        gauge("root_free_bytes", "Free space in the file system of a root.", &|metric| {
            each(metric, all.iter().map(|(root, measured)| ([("root", &**root)], measured.free)))
        })?;
        let volumes = || {
            all.iter().flat_map(|(root, measured)| {
                measured.volumes.iter().map(move |volume| ([("root", &**root), ("volume", &*volume.volume)], volume))
            })
        };
        gauge("volume_used_bytes", "Space used by a volume whose size is enforced.", &|metric| {
            each(metric, volumes().map(|(labels, volume)| (labels, volume.bytes)))
        })?;
        gauge("volume_used_inodes", "Files and directories of a volume whose size is enforced.", &|metric| {
            each(metric, volumes().map(|(labels, volume)| (labels, volume.inodes)))
        })
    }
}

/// Encodes one value for each set of labels.
fn each<'a, const N: usize>(
    mut metric: MetricEncoder<'_>,
    mut values: impl Iterator<Item = ([(&'static str, &'a str); N], u64)>,
) -> fmt::Result {
    // A gauge is a signed number or a float. No file system is large enough to exceed its range.
    values.try_for_each(|(labels, value)| {
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric.encode_family(&labels)?)
    })
}

#[cfg(test)]
mod tests {
    use directory_volumes::Root;
    use kube_provisioner::prometheus_client::encoding::text::encode;

    use super::*;

    #[tokio::test]
    async fn reports_the_free_space_of_a_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.put_marker().unwrap();
        let (metrics, mut registry) = (RootMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let measuring = tokio::spawn(metrics.clone().follow(Worker::new(root)));
        let page = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let line = format!("provisioner_root_free_bytes{{root=\"{}\"}} ", folder.path().display());
        while !page().contains(&line) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(page().contains("# TYPE provisioner_volume_used_inodes gauge"), "{}", page());
        measuring.abort();
        metrics.set(&folder.path().to_string_lossy(), None);
        assert!(!page().contains(&line), "{}", page());
    }
}
