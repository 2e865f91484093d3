//! A driver served on a socket.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;

use crate::client::chain;

/// A socket on which the services of a driver are served.
pub struct Server {
    listener: UnixListener,
    /// The services by name, such as `csi.v1.Controller`.
    pub(crate) services: HashMap<&'static str, Handler>,
}

/// A service's handler for a call.
pub(crate) type Handler = Box<dyn Fn(Request<Incoming>) -> ResponseFuture + Send + Sync>;
type ResponseFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

impl Server {
    /// Binds a socket, replacing one left by an earlier process.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { listener: UnixListener::bind(path)?, services: HashMap::new() })
    }

    /// Serves until the future is dropped, which ends all connections and their calls. A call also ends when its client
    /// cancels it.
    // tonic's own server leaves the connections open.
    pub async fn serve(self) -> io::Result<Infallible> {
        let services = Arc::new(self.services);
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = self.listener.accept().await?;
            while connections.try_join_next().is_some() {}
            let services = services.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let services = services.clone();
                async move {
                    let path = request.uri().path();
                    let name = path.strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or_default();
                    Ok::<_, Infallible>(match services.get(name) {
                        Some(handler) => handler(request).await,
                        None => unimplemented(path).into_http(),
                    })
                }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            connections.spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error = chain(&error), "a connection to this driver ended");
                }
            });
        }
    }
}

/// Returns the status for a call that the driver does not implement.
pub(crate) fn unimplemented(path: &str) -> Status {
    Status::unimplemented(format!("this driver does not have {path}"))
}
