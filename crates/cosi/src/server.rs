//! A driver behind a socket.

use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use driver_rpc::private::{Body, Incoming, Request, Response};
use driver_rpc::{Status, unimplemented};

use crate::{v1alpha1, v1alpha2};

/// A socket on which a driver is served, in one version or in both.
pub struct Server {
    socket: driver_rpc::Server,
    v1alpha1: Option<Answer>,
    v1alpha2: Option<Answer>,
}

type Answer = Arc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> + Send + Sync>;

impl Server {
    /// Binds a socket, in the place of one that an earlier process has left.
    pub fn bind(path: &Path) -> io::Result<Self> {
        Ok(Self { socket: driver_rpc::Server::bind(path)?, v1alpha1: None, v1alpha2: None })
    }

    /// Serves the version `v1alpha1`, too.
    pub fn v1alpha1<D: v1alpha1::Identity + v1alpha1::Provisioner + 'static>(mut self, driver: D) -> Self {
        let driver = Arc::new(driver);
        self.v1alpha1 = Some(Arc::new(move |request| {
            let driver = driver.clone();
            Box::pin(async move { v1alpha1::answer(&*driver, request).await })
        }));
        self
    }

    /// Serves the version `v1alpha2`, too.
    pub fn v1alpha2<D: v1alpha2::Identity + v1alpha2::Provisioner + 'static>(mut self, driver: D) -> Self {
        let driver = Arc::new(driver);
        self.v1alpha2 = Some(Arc::new(move |request| {
            let driver = driver.clone();
            Box::pin(async move { v1alpha2::answer(&*driver, request).await })
        }));
        self
    }

    /// Serves until the future is dropped, which ends all connections and the calls on them. So are the calls that
    /// their clients give up.
    pub async fn serve(self) -> io::Result<Infallible> {
        let (v1alpha1, v1alpha2) = (self.v1alpha1, self.v1alpha2);
        let answer = move |request: Request<Incoming>| {
            let path = request.uri().path();
            let answer = if path.starts_with("/cosi.v1alpha1.") { &v1alpha1 } else { &v1alpha2 }.clone();
            async move {
                match answer {
                    Some(answer) => answer(request).await,
                    None => Status::from(unimplemented(request.uri().path())).into_http(),
                }
            }
        };
        self.socket.serve(answer).await
    }
}

impl Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket).finish_non_exhaustive()
    }
}
