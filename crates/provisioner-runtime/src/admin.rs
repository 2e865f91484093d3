//! A small HTTP server for probes and metrics.
//!
//! | path | answer |
//! |---|---|
//! | `/livez` | 200 while the process runs |
//! | `/healthz/leader-election` | 200 while the process runs: liveness probes of CSI sidecars use this path |
//! | `/readyz` | 200 if all checks pass, otherwise 500; the text names each check and its problem |
//! | `/metrics` | the registry, in the OpenMetrics or Prometheus text format, as the client prefers |

mod checks;
mod probe;
mod respond;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use checks::Checks;
use respond::respond;

/// Maximum number of concurrent connections; further ones wait.
const MAX_CONNECTIONS: usize = 32;

/// Time limit for a client to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of a connection.
const CONNECTION: Duration = Duration::from_secs(15);

/// Maximum size of a request's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// A server that is bound to its address but does not respond yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminServer {
    /// Binds the address; port 0 selects any free port. `0.0.0.0` includes IPv6 where the host has it, as in Go.
    ///
    /// # Errors
    ///
    /// Fails if the address cannot be bound, usually because another process uses it.
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let failed = |source| AdminError { address, source };
        let both = match with_ipv6(address) {
            Some(both) => TcpListener::bind(both).await.ok(),
            None => None,
        };
        let listener = match both {
            Some(listener) => listener,
            None => TcpListener::bind(address).await.map_err(failed)?,
        };
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns the address, with the actual port if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves requests until `stop` is cancelled, and then finishes requests under way, for at most a second.
    pub async fn serve(self, checks: Checks, registry: Arc<Registry>, stop: CancellationToken) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        let accept = async {
            loop {
                // The semaphore is never closed.
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = serve_connection(stream, checks.clone(), Arc::clone(&registry));
                        connections.spawn(async move {
                            connection.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        // The usual cause is too many open files, so trying again at once would not help.
                        warn!("the admin server could not accept a connection: {error}");
                        sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        };
        stop.run_until_cancelled(accept).await;
        connections.close();
        let _ = timeout(Duration::from_secs(1), connections.wait()).await;
    }
}

/// Returns the address that accepts IPv4 and IPv6 connections instead of `0.0.0.0`. In an IPv6-only cluster, the
/// kubelet probes the IPv6 address of the pod.
fn with_ipv6(address: SocketAddr) -> Option<SocketAddr> {
    let is_shared = || std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only").is_ok_and(|text| text.trim() == "0");
    let is_any = address.ip() == Ipv4Addr::UNSPECIFIED;
    (is_any && is_shared()).then(|| SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())))
}

/// The admin server's address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error(
    "Cannot listen on {address} for probes and metrics: {source}. Choose another address, or stop the process that uses it."
)]
pub struct AdminError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    #[source]
    pub source: io::Error,
}

/// Serves one connection to its end.
async fn serve_connection(stream: TcpStream, checks: Checks, registry: Arc<Registry>) {
    let service = service_fn(|request| {
        let (checks, registry) = (&checks, &registry);
        async move { Ok::<_, Infallible>(respond(&request, checks, registry).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        // An idle connection would block others.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a connection to the admin server failed: {error}"),
        Err(_) => debug!("a connection to the admin server took too long"),
    }
}
