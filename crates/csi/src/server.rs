//! A driver behind a socket.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;

use driver_rpc::private::{Body, Incoming, Request, Response};

use crate::services::{Controller, Identity, Node, controller, identity, node};

/// A socket on which a driver is served.
#[derive(Debug)]
pub struct Server(driver_rpc::Server);

impl Server {
    /// Binds a socket, in the place of one that an earlier process has left.
    pub fn bind(path: &Path) -> io::Result<Self> {
        driver_rpc::Server::bind(path).map(Self)
    }

    /// Serves until the future is dropped, which ends all connections and the calls on them. So are the calls that
    /// their clients give up.
    pub async fn serve<D: Identity + Controller + Node + 'static>(self, driver: D) -> io::Result<Infallible> {
        let driver = Arc::new(driver);
        let answer = move |request| {
            let driver = driver.clone();
            async move { answer(&*driver, request).await }
        };
        self.0.serve(answer).await
    }
}

async fn answer<D: Identity + Controller + Node>(driver: &D, request: Request<Incoming>) -> Response<Body> {
    match request.uri().path().rsplit_once('/').map(|(service, _)| service) {
        Some("/csi.v1.Controller") => controller(driver, request).await,
        Some("/csi.v1.Node") => node(driver, request).await,
        // Calls of any other service are unimplemented there.
        _ => identity(driver, request).await,
    }
}
