//! Serves the simulated API on a loopback port for clients in other processes: kubectl, or provisioners written with
//! other libraries.
//!
//! It speaks HTTP/1.1, with or without TLS. Go clients send credentials only with TLS. In addition to
//! [`ApiService`](crate::ApiService), it accepts YAML and protobuf, answers in YAML, and prints tables.
//!
//! Clients authenticate with a bearer token: the administrator's token, or one that `serviceaccounts/NAME/token` issued
//! to a service account. Without a token they are `system:anonymous`. A user may impersonate others if the authorizer
//! allows the verb `impersonate`.

mod caller;
mod connections;
mod kubeconfig;
mod media_type;
mod protobuf;
mod request;
mod table;
mod tls;
mod tokens;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::cluster::Cluster;
use tls::Tls;
use tokens::Tokens;

/// A cluster that is served on a port. [`Server::bind`] listens, [`Server::run`] serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

/// A failure to serve a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is reachable from other machines.
    #[error("{0} is not a loopback address: the simulated API must not be reachable from other machines")]
    NotLoopback(SocketAddr),
    /// Listening on the address failed.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The operating system provided no randomness for tokens.
    #[error("cannot make tokens: {0}")]
    Randomness(getrandom::Error),
    /// Setting up TLS failed.
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Writing the kubeconfig file failed.
    #[error("cannot write {0}: {1}")]
    Kubeconfig(PathBuf, #[source] io::Error),
}

/// The transport between clients and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Plain HTTP. Go clients such as kubectl then send no tokens.
    Http,
    /// TLS. The kubeconfig names the certificate authority.
    Https,
}

/// State that all connections share.
#[derive(Debug)]
struct App {
    cluster: Cluster,
    tokens: Tokens,
    tls: Option<Tls>,
}

impl Server {
    /// Listens on a loopback address; port 0 selects a free port.
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

    /// Returns the server's URL, e.g. `https://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        let scheme = if self.app.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the certificate of the authority, if the server speaks TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.app.tls.as_ref().map(|tls| tls.ca_pem.as_str())
    }

    /// Returns the bearer token of the administrator: user `kubernetes-admin` in the group `system:masters`.
    pub fn admin_token(&self) -> &str {
        self.app.tokens.admin()
    }

    /// Writes the administrator's kubeconfig. Only the file's owner can read it.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<(), Error> {
        let text = kubeconfig::text(&self.url(), self.ca_pem(), tokens::ADMIN, self.admin_token());
        kubeconfig::write(path, &text).map_err(|error| Error::Kubeconfig(path.to_owned(), error))
    }

    /// Serves until `end` resolves. Then pending requests have a second to finish, and watches are closed.
    pub async fn run(self, end: impl Future<Output = ()>) {
        connections::serve(self.listener, &self.app, end).await;
    }
}
