//! The status of a control plane.

use super::health::Prober;
use super::state::{Process, State};
use crate::process::ProcessId;

/// The status of a control plane, component by component.
#[derive(Clone, Debug)]
pub struct Status {
    /// The components in the order of their start, followed by the programs that run with them.
    pub components: Vec<ComponentStatus>,
}

/// The status of one component.
#[derive(Clone, Debug)]
pub struct ComponentStatus {
    /// The name, such as `kube-apiserver`.
    pub name: String,
    /// The process id, if it runs.
    pub pid: Option<u32>,
    /// The port on which it listens.
    pub port: Option<u16>,
    /// The version, if the component reports one.
    pub version: Option<String>,
    /// True if the component runs and reports that it is ready.
    pub ready: bool,
    /// Resident memory in bytes, if it runs.
    pub memory: Option<u64>,
}

impl Status {
    /// Queries all components.
    pub async fn of(state: &State) -> anyhow::Result<Self> {
        let prober = Prober::new(state).await?;
        let mut components = Vec::new();
        for component in state.components.iter().chain(&state.programs) {
            components.push(component_status(component, &prober).await);
        }
        Ok(Self { components })
    }

    /// True if every component is ready.
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

/// Includes the children, because a node's programs are children of the process that starts them in its namespaces.
fn memory(id: ProcessId) -> Option<u64> {
    let children: u64 = id.children().iter().filter_map(|child| child.resident_memory().ok()).sum();
    Some(id.resident_memory().ok()? + children)
}

/// The API server and etcd answer `/version`, each in a different format. The other components require further
/// permissions.
async fn version(component: &Process, prober: &Prober) -> Option<String> {
    let url = &component.health.as_ref()?.url;
    let base = url.match_indices('/').nth(2).map(|(end, _)| &url[..end])?;
    let answer = prober.get(&format!("{base}/version")).await.ok()?;
    let answer: serde_json::Value = serde_json::from_str(&answer).ok()?;
    let version = answer["gitVersion"].as_str().or(answer["etcdserver"].as_str())?;
    Some(version.trim_start_matches('v').to_owned())
}
