//! The simulated API on a loopback port, for clients in other processes: kubectl, or provisioners written with other
//! libraries.
//!
//! It speaks HTTP/1.1, with TLS or without; Go clients send credentials only with it. Beyond what [`ApiService`](crate::ApiService) answers it takes YAML and protobuf, gives
//! YAML, shows objects as tables, and knows its callers: by bearer token, as the administrator or as a service account whose token
//! came from `serviceaccounts/NAME/token`; without one as `system:anonymous`. Callers may impersonate others where the
//! cluster's rules allow them the verb `impersonate`.

mod caller;
mod connections;
mod kubeconfig;
mod media_type;
mod protobuf;
mod request;
mod table;
mod tls;
mod tokens;
mod yaml;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::cluster::Cluster;
use tls::Tls;
use tokens::Tokens;

/// A cluster that listens. Made by [`Server::bind`], at work in [`Server::run`].
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

/// Why a cluster cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is one that others can reach.
    #[error("{0} is no loopback address: the simulated API must not be reached from other machines")]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The operating system has no randomness for tokens.
    #[error("cannot make tokens: {0}")]
    Randomness(getrandom::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kubeconfig file cannot be written.
    #[error("cannot write {0}: {1}")]
    Kubeconfig(PathBuf, #[source] io::Error),
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Without TLS. Go clients, kubectl among them, send no tokens then.
    Http,
    /// With TLS, and an authority that only the kubeconfig names.
    Https,
}

/// What all connections share.
#[derive(Debug)]
struct App {
    cluster: Cluster,
    tokens: Tokens,
    tls: Option<Tls>,
}

impl Server {
    /// Listens on a loopback address; port 0 is any free one.
    pub async fn bind(cluster: Cluster, address: SocketAddr, transport: Transport) -> Result<Self, Error> {
        if !address.ip().is_loopback() {
            return Err(Error::NotLoopback(address));
        }
        let tokens = Tokens::new().map_err(Error::Randomness)?;
        let tls = match transport {
            Transport::Http => None,
            Transport::Https => Some(Tls::new(address.ip()).map_err(Error::Tls)?),
        };
        let listen = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, bound) = listen.await.map_err(|error| Error::Listen(address, error))?;
        Ok(Self { listener, address: bound, app: Arc::new(App { cluster, tokens, tls }) })
    }

    /// Where it listens, e.g. `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        let scheme = if self.app.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate of the authority that signed the server's, where it speaks TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.app.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// The bearer token of the administrator `kubernetes-admin`, who is in the group `system:masters`.
    pub fn admin_token(&self) -> &str {
        self.app.tokens.admin()
    }

    /// Writes a kubeconfig of the administrator that only the file's owner can read.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        let text = kubeconfig::text(&self.url(), self.ca_pem(), tokens::ADMIN, self.admin_token());
        kubeconfig::write(path, &text).map_err(|error| Error::Kubeconfig(path.to_owned(), error))
    }

    /// Serves until `end`; then requests under way have a second to finish, and watches are cut.
    pub async fn run(self, end: impl Future<Output = ()>) {
        connections::serve(self.listener, &self.app, end).await;
    }
}
