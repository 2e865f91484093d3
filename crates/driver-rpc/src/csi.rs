//! The Container Storage Interface, version 1.13.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Client, Code, Error, Server};

mod generated {
    // The specification documents the fields.
    #![allow(missing_docs)]

    include!("generated/csi.v1.rs");
}
mod metrics;
#[cfg(feature = "serde")]
mod recording;

pub use self::generated::*;
pub use self::metrics::Operations;
// This path is short, so the generated attributes fit on a line.
#[cfg(feature = "serde")]
use self::recording::is_empty;

/// Time limit of the sidecars for connecting at the start, and the interval of their probes.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which a missing driver is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Server {
    /// Adds a CSI driver to the server.
    pub fn csi<D: Identity + Controller + Node + 'static>(mut self, driver: D) -> Self {
        let driver = Arc::new(driver);
        serve_identity(&mut self, driver.clone());
        serve_controller(&mut self, driver.clone());
        serve_node(&mut self, driver);
        self
    }
}

/// Conversion between a capability and its kind: the specification wraps the kind in two messages.
macro_rules! capabilities {
    ($($capability:ident: $module:ident $part:ident $kind:ident;)*) => {
        $(
            impl From<$module::$kind::Type> for $capability {
                fn from(kind: $module::$kind::Type) -> Self {
                    Self { r#type: Some($module::Type::$part($module::$part { r#type: kind.into() })) }
                }
            }
        )*
    };
}

capabilities! {
    ControllerServiceCapability: controller_service_capability Rpc rpc;
    NodeServiceCapability: node_service_capability Rpc rpc;
    PluginCapability: plugin_capability Service service;
    PluginCapability: plugin_capability VolumeExpansion volume_expansion;
}

/// Connects to a driver and probes it until it is ready.
///
/// Waits 30 seconds for a socket, and indefinitely for a driver that is not ready or does not answer in time. Any other
/// error is final.
pub async fn wait_until_ready(client: &Client) -> Result<(), Error> {
    let started = Instant::now();
    let mut next_log = started;
    let mut ticks = tokio::time::interval(PROBE_INTERVAL);
    loop {
        ticks.tick().await;
        let reason = match client.probe(ProbeRequest {}).await {
            Ok(answer) if answer.ready.unwrap_or(true) => return Ok(()),
            Ok(_) => "it is not ready".to_owned(),
            Err(error @ Error::Unreachable { .. }) if started.elapsed() < CONNECT_PATIENCE => error.to_string(),
            Err(error) if error.code() == Code::DeadlineExceeded => error.to_string(),
            Err(error) => return Err(error),
        };
        if Instant::now() >= next_log {
            tracing::info!(address = %client.address(), %reason, "waiting for the CSI driver");
            next_log += LOG_INTERVAL;
        }
    }
}
