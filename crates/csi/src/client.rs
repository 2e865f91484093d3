//! The calls of a driver over its socket.

use std::fmt::Debug;
use std::time::Duration;

use driver_rpc::{Address, Code, Error};
use prost::Message;
use tokio::time::Instant;

use crate::messages::ProbeRequest;
use crate::metrics::Operations;
use crate::services::Identity;

/// How long the sidecars try to connect at the start, and how often they ask.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// How often a driver that is not there is mentioned in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A driver at an address. The services are the traits [`Identity`], [`Controller`](crate::Controller) and [`Node`](crate::Node).
///
/// Clones share the connection, which is made at the first call and again after it broke.
#[derive(Clone, Debug)]
pub struct Client(driver_rpc::Client);

impl Client {
    /// Makes no connection yet.
    ///
    /// # Panics
    ///
    /// If no runtime of tokio runs.
    pub fn new(address: Address) -> Self {
        Self(driver_rpc::Client::new(address))
    }

    /// Limits how long each call may take, connecting included. The default is 10 seconds.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self(self.0.with_timeout(timeout))
    }

    /// Limits the size of an answer. The default is 4 MiB.
    pub fn with_receive_limit(self, bytes: usize) -> Self {
        Self(self.0.with_receive_limit(bytes))
    }

    /// Measures the calls.
    pub fn with_metrics(self, operations: Operations) -> Self {
        Self(self.0.with_observer(operations))
    }

    /// Returns when another connection is made after this call. The driver may be another one by then.
    pub fn reconnected(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.reconnected()
    }

    /// Connects and probes until the driver is ready.
    ///
    /// Waits 30 seconds for a socket, and without end for a driver that is not ready or does not answer in time. Any other error is final.
    pub async fn wait_until_ready(&self) -> Result<(), Error> {
        let started = Instant::now();
        let mut next_log = started;
        let mut ticks = tokio::time::interval(PROBE_INTERVAL);
        loop {
            ticks.tick().await;
            let reason = match self.probe(ProbeRequest {}).await {
                Ok(answer) if answer.ready.unwrap_or(true) => return Ok(()),
                Ok(_) => "it is not ready".to_owned(),
                Err(error @ Error::Unreachable { .. }) if started.elapsed() < CONNECT_PATIENCE => error.to_string(),
                Err(error) if error.code() == Code::DeadlineExceeded => error.to_string(),
                Err(error) => return Err(error),
            };
            if Instant::now() >= next_log {
                tracing::info!(address = %self.0.address(), %reason, "waiting for the CSI driver");
                next_log += LOG_INTERVAL;
            }
        }
    }

    pub(crate) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + Debug + 'static,
        A: Message + Debug + Default + 'static,
    {
        self.0.call(path, request).await
    }
}
