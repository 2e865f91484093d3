//! The state of a running control plane, in a file that other processes read.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::binaries::cache_dir;
use super::node::Node;
use crate::guard::{self, Guard, Lifetime};
use crate::process::{ProcessId, machine_memory};

/// The variable that contains the path of a [`State`] file for tests.
pub const STATE_VARIABLE: &str = "E2E_CONTROL_PLANE";

/// One running control plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The instance's directory: data, logs, certificates, and this file.
    pub dir: PathBuf,
    /// The process that supervises the components; `None` for `cargo xtask control-plane up`.
    pub owner: Option<ProcessId>,
    /// The program that starts others under a [`crate::guard::Lifetime`].
    pub guard: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubectl, if it was found.
    pub kubectl: Option<PathBuf>,
    /// The version of Kubernetes, if a version other than this project's was requested.
    #[serde(default)]
    pub kubernetes: Option<String>,
    /// The API server's address, such as `https://127.0.0.1:40123`.
    pub server: String,
    /// The certificate of the authority that signed the API server's certificate.
    pub ca_pem: String,
    /// The API server's audit log, if it is enabled.
    pub audit_log: Option<PathBuf>,
    /// The real node, if there is one.
    #[serde(default)]
    pub node: Option<Node>,
    /// The control plane's processes, in the order of their start.
    pub components: Vec<Process>,
    /// Other programs that are stopped together with the control plane.
    pub programs: Vec<Process>,
}

/// A process, and the data to restart it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The name, such as `kube-apiserver`.
    pub name: String,
    /// The process id; `None` before the start.
    pub id: Option<ProcessId>,
    /// The program's file.
    pub program: PathBuf,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The file with the program's output.
    pub log: PathBuf,
    /// The readiness probe. Without one, the program is ready when it runs.
    pub health: Option<Health>,
}

impl Process {
    /// A process that has not started, without a probe. Its log is in `dir`.
    pub(crate) fn new(dir: &Path, name: &str, program: &Path, arguments: Vec<String>) -> Self {
        let log = dir.join(format!("{name}.log"));
        Self { name: name.to_owned(), id: None, program: program.to_owned(), arguments, log, health: None }
    }

    /// Starts the process, with its output appended to its log.
    pub(crate) fn start(&mut self, lifetime: Lifetime, guard: &Guard) -> anyhow::Result<(Child, ProcessId)> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut command = guard.command(lifetime, &self.program);
        // Memory is plentiful, and frequent garbage collection would take a tenth of the CPU time.
        command.env("GOGC", "400");
        // With 100 000 volumes, memory would be scarce.
        command.env("GOMEMLIMIT", (machine_memory()? / 4).to_string());
        command.args(&self.arguments).stdout(log.try_clone()?).stderr(log);
        let child = guard::spawn(command).with_context(|| format!("cannot start {}", self.name))?;
        let id = ProcessId::of(child.id())?;
        self.id = Some(id);
        Ok((child, id))
    }
}

/// A request that a ready component answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Health {
    /// A URL that returns status 200.
    pub url: String,
    /// A text that the response contains.
    pub says: String,
}

impl State {
    /// The control plane for tests: the one that [`STATE_VARIABLE`] names, or else the one of `cargo xtask
    /// control-plane up`, or else one of this process, which the first test starts.
    pub fn for_tests() -> anyhow::Result<Self> {
        if let Some(path) = std::env::var_os(STATE_VARIABLE).filter(|path| !path.is_empty()) {
            let state = Self::read(Path::new(&path))?;
            ensure!(state.running("kube-apiserver").is_some(), "the control plane of {} has ended", path.display());
            return Ok(state);
        }
        let standing = Self::standing().ok().flatten().filter(|state| state.running("kube-apiserver").is_some());
        standing.map_or_else(|| super::shared_by_tests()?.state().reload(), Ok)
    }

    /// The state of `cargo xtask control-plane up`, if there is one, even if it no longer runs.
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

    /// Reads the current state of this control plane from its file.
    pub fn reload(&self) -> anyhow::Result<Self> {
        Self::read(&self.path())
    }

    /// Writes the state atomically, so that readers see either the old or the new one.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = self.path();
        let unfinished = path.with_extension(format!("json.{}", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The path of the state file.
    pub fn path(&self) -> PathBuf {
        Self::path_in(&self.dir)
    }

    /// The component with this name.
    pub fn component(&self, name: &str) -> Option<&Process> {
        self.components.iter().find(|component| component.name == name)
    }

    /// The process of this component, if it runs.
    pub fn running(&self, name: &str) -> Option<ProcessId> {
        self.component(name)?.id.filter(ProcessId::is_running)
    }

    /// The guard that starts programs.
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
