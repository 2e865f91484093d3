//! The metric of the CSI sidecars.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::{CallObserver, Code, code_name};

const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The histogram `csi_sidecar_operations_seconds`, with the same labels and buckets as in the Go sidecars.
#[derive(Clone, Debug)]
pub struct Operations {
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
    driver: Arc<OnceLock<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    driver_name: String,
    method_name: &'static str,
    grpc_status_code: String,
}

impl Default for Operations {
    fn default() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        Self { seconds, driver: Arc::default() }
    }
}

impl Operations {
    /// Adds the metric to a registry.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Container Storage Interface operation duration with gRPC error code status total";
        registry.register("csi_sidecar_operations_seconds", help, self.seconds.clone());
    }

    /// Sets the driver's name. Earlier calls are attributed to `unknown-driver`; a second name is ignored.
    pub fn set_driver_name(&self, name: &str) {
        let _ = self.driver.set(name.to_owned());
    }
}

impl CallObserver for Operations {
    fn observe(&self, method: &'static str, code: Code, took: Duration) {
        let driver_name = self.driver.get().map_or("unknown-driver", String::as_str).to_owned();
        let labels = Labels { driver_name, method_name: method, grpc_status_code: code_name(code) };
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
