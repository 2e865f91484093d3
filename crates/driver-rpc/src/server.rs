//! A driver behind a socket.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::path::Path;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tonic::body::Body;

use crate::client::chain;

/// A socket on which a driver is served.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
}

impl Server {
    /// Binds a socket, in the place of one that an earlier process has left.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok(Self { listener: UnixListener::bind(path)? })
    }

    /// Serves until the future is dropped, which ends all connections and the calls on them. So are the calls that
    /// their clients give up.
    // tonic's own server leaves the connections open.
    pub async fn serve<F, A>(self, answer: F) -> io::Result<Infallible>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = self.listener.accept().await?;
            while connections.try_join_next().is_some() {}
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
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
