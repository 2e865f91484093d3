//! What a running control plane is made of, in a file that other processes read.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::binaries::cache_dir;
use super::node::Node;
use crate::guard::Guard;
use crate::process::ProcessId;

/// The variable that points tests to a [`State`] file.
pub const STATE_VARIABLE: &str = "E2E_CONTROL_PLANE";

/// One running control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The instance's directory: data, logs, certificates, and this file.
    pub dir: PathBuf,
    /// The process that supervises the components; none for `cargo xtask control-plane up`.
    pub owner: Option<ProcessId>,
    /// The program that starts others under a [`crate::guard::Lifetime`].
    pub guard: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubectl, if it was found.
    pub kubectl: Option<PathBuf>,
    /// The version of Kubernetes, if another one than this project's was asked for.
    #[serde(default)]
    pub kubernetes: Option<String>,
    /// The API server's address, such as `https://127.0.0.1:40123`.
    pub server: String,
    /// The certificate of the authority that signed the API server's certificate.
    pub ca_pem: String,
    /// The API server's audit log, if it keeps one.
    pub audit_log: Option<PathBuf>,
    /// The real node, if it has one.
    #[serde(default)]
    pub node: Option<Node>,
    /// The control plane's processes, in the order in which they were started.
    pub components: Vec<Process>,
    /// Other programs that are stopped together with the control plane.
    pub programs: Vec<Process>,
}

/// One process and how to start it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Such as `kube-apiserver`.
    pub name: String,
    /// Its number; none before it was started.
    pub id: Option<ProcessId>,
    /// The program's file.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// Where its output goes.
    pub log: PathBuf,
    /// How to find out whether it is ready; a program without it is ready when it runs.
    pub health: Option<Health>,
}

/// A question that a ready component answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Health {
    /// A URL that answers 200.
    pub url: String,
    /// A text that the answer contains.
    pub says: String,
}

impl State {
    /// The control plane that tests use: the one named by [`STATE_VARIABLE`], else that of `cargo xtask control-plane
    /// up`, else one of this process, which the first test starts.
    pub fn for_tests() -> anyhow::Result<Self> {
        if let Some(path) = std::env::var_os(STATE_VARIABLE).filter(|path| !path.is_empty()) {
            let state = Self::read(Path::new(&path))?;
            ensure!(state.running("kube-apiserver").is_some(), "the control plane of {} has ended", path.display());
            return Ok(state);
        }
        let standing = Self::standing().ok().flatten().filter(|state| state.running("kube-apiserver").is_some());
        standing.map_or_else(|| super::shared_by_tests()?.state().reload(), Ok)
    }

    /// The state of `cargo xtask control-plane up`, if there is one, whether or not it still runs.
    pub fn standing() -> anyhow::Result<Option<Self>> {
        let path = Self::path_in(&standing_dir()?);
        if !path.exists() {
            return Ok(None);
        }
        Self::read(&path).map(Some)
    }

    /// Reads a state file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a control plane's state", path.display()))
    }

    /// Reads this control plane's state again, for what has changed.
    pub fn reload(&self) -> anyhow::Result<Self> {
        Self::read(&self.path())
    }

    /// Writes the state so that a reader sees the old or the new one, never half of it.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = self.path();
        let unfinished = path.with_extension(format!("json.{}", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The state file.
    pub fn path(&self) -> PathBuf {
        Self::path_in(&self.dir)
    }

    /// The component of this name.
    pub fn component(&self, name: &str) -> Option<&Process> {
        self.components.iter().find(|component| component.name == name)
    }

    /// The process of this component, if it runs.
    pub fn running(&self, name: &str) -> Option<ProcessId> {
        self.component(name)?.id.filter(ProcessId::is_running)
    }

    /// The guard to start programs with.
    pub fn guard(&self) -> Guard {
        Guard::new(&self.guard)
    }

    /// The API server's port.
    pub fn port(&self) -> Option<u16> {
        self.server.rsplit(':').next()?.parse().ok()
    }

    fn path_in(dir: &Path) -> PathBuf {
        dir.join("state.json")
    }
}

/// The directory of `cargo xtask control-plane up`.
pub(super) fn standing_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("up"))
}
