//! How a control plane is.

use super::health::Prober;
use super::state::{Process, State};
use crate::process::ProcessId;

/// How a control plane is, component by component.
#[derive(Clone, Debug)]
pub struct Status {
    /// In the order in which they are started, then the programs kept with them.
    pub components: Vec<ComponentStatus>,
}

/// How one component is.
#[derive(Clone, Debug)]
pub struct ComponentStatus {
    /// Such as `kube-apiserver`.
    pub name: String,
    /// Its number, if it runs.
    pub pid: Option<u32>,
    /// The port on which it serves.
    pub port: Option<u16>,
    /// Its version, if it says so.
    pub version: Option<String>,
    /// Whether it runs and says that it is ready.
    pub ready: bool,
    /// Resident memory in bytes, if it runs.
    pub memory: Option<u64>,
}

impl Status {
    /// Asks all components.
    pub async fn of(state: &State) -> anyhow::Result<Self> {
        let prober = Prober::new(state).await?;
        let mut components = Vec::new();
        for component in state.components.iter().chain(&state.programs) {
            components.push(component_status(component, &prober).await);
        }
        Ok(Self { components })
    }

    /// Whether every component is ready.
    pub fn is_healthy(&self) -> bool {
        !self.components.is_empty() && self.components.iter().all(|component| component.ready)
    }
}

async fn component_status(component: &Process, prober: &Prober) -> ComponentStatus {
    let running = component.id.filter(|id| id.is_running());
    let address = component.health.as_ref().and_then(|health| health.url.split('/').nth(2));
    ComponentStatus {
        name: component.name.clone(),
        pid: running.map(|id| id.pid),
        port: address.and_then(|address| address.rsplit(':').next()?.parse().ok()),
        version: version(component, prober).await,
        ready: running.is_some() && prober.is_ready(component).await,
        memory: running.and_then(memory),
    }
}

/// With its children: the programs of a node are those of the process that led them there.
fn memory(id: ProcessId) -> Option<u64> {
    let children: u64 = id.children().iter().filter_map(|child| child.resident_memory().ok()).sum();
    Some(id.resident_memory().ok()? + children)
}

/// The API server and etcd answer `/version`, each in its own way. The others do not without further rights.
async fn version(component: &Process, prober: &Prober) -> Option<String> {
    let url = &component.health.as_ref()?.url;
    let base = url.match_indices('/').nth(2).map(|(end, _)| &url[..end])?;
    let answer = prober.get(&format!("{base}/version")).await.ok()?;
    let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
    let version = answer["gitVersion"].as_str().or(answer["etcdserver"].as_str())?;
    Some(version.trim_start_matches('v').to_owned())
}
