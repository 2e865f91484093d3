//! kube-sim on a loopback port, instead of a control plane.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::SystemTime;

use anyhow::Context;
use kube_sim::serve::{Server, Transport};
use kube_sim::{Actors, Cluster, Pace};
use tokio::task::JoinHandle;

use super::binaries::Binaries;
use super::instance::Instance;
use super::state::State;
use crate::guard::Guard;

/// A simulated API server with its controllers, in this process. It enforces RBAC like a real one, and ends with this
/// value.
#[derive(Debug)]
pub struct Simulated {
    state: State,
    instance: Instance,
    _controllers: kube_sim::Running,
    server: JoinHandle<()>,
}

impl Simulated {
    /// Starts a simulated API server in the caller's runtime.
    pub async fn start(guard: &Guard) -> anyhow::Result<Self> {
        let instance = Instance::create()?;
        let now = jiff::Timestamp::try_from(SystemTime::now()).context("this machine's clock is off")?;
        let cluster = Cluster::builder().epoch(now).rbac().cross_namespace_data_sources().build();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(cluster.clone(), address, Transport::Https).await?;
        let kubeconfig = instance.dir.join("admin.kubeconfig");
        server.write_kubeconfig(&kubeconfig)?;
        let state = State {
            dir: instance.dir.clone(),
            owner: None,
            guard: guard.exe().to_owned(),
            kubeconfig,
            kubectl: Binaries::installed().ok().and_then(|binaries| binaries.kubectl),
            kubernetes: None,
            server: server.url(),
            ca_pem: server.ca_pem().unwrap_or_default().to_owned(),
            audit_log: None,
            node: None,
            components: Vec::new(),
            programs: Vec::new(),
        };
        let controllers = cluster.run(Actors::all().at(&Pace::USUAL));
        let server = tokio::spawn(server.run(std::future::pending()));
        Ok(Self { state, instance, _controllers: controllers, server })
    }

    /// The data that clients and programs need about the API server.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Stops the API server and removes its directory.
    pub fn stop(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        drop(self);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.server.abort();
    }
}
