//! A Kubernetes control plane on loopback ports: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//!
//! It has no nodes unless [`Settings::node`] asks for a real one. Node objects that a test creates never change; pods
//! are scheduled onto them but never run. RBAC and service account admission are enabled.
//!
//! [`ControlPlane`] ends with its owner, however the owner ends. [`up`] starts one that runs until [`down`].

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

mod binaries;
mod components;
mod existing;
mod go_build;
mod health;
mod instance;
mod kubeconfig;
mod logs;
mod node;
mod other_version;
mod pki;
mod simulated;
mod start;
mod state;
mod status;
mod supervisor;
mod versions;

pub use binaries::{Binaries, cache_dir};
pub use existing::Existing;
pub use kubeconfig::{
    client_from, config_from, kubeconfig_for_pod, kubeconfig_for_service_account, service_account_token,
};
pub use logs::last_lines;
pub use node::{BUSYBOX, GuestNode, NO_NODE, NODE, Node, import_image};
pub use rustix::process::Signal;
pub use simulated::Simulated;
pub use state::{Health, Process, STATE_VARIABLE, State};
pub use status::{ComponentStatus, Status};
pub use versions::Versions;

use crate::guard::{Guard, Lifetime};
use crate::process::ProcessId;
use crate::progress::{self, SharedProgress};
use crate::shared::{Shared, shared};
use crate::supervisor::Supervisor;
use health::Prober;
pub use instance::remove_abandoned;
pub(crate) use instance::{Instance, create_private_dir, wait_for_lock};
pub(crate) use pki::{authority, serving, write_secret};
pub(crate) use start::Children;
pub(crate) use versions::fnv1a;

/// Settings of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The API server's port. The default is a free port.
    pub port: Option<u16>,
    /// True if the API server logs the requests of service accounts.
    pub audit: bool,
    /// True if the control plane has a real node. The API server then uses port 443 of a separate address.
    pub node: bool,
    /// A version of Kubernetes other than this project's, such as `1.35.4`, or `1.35` for its newest patch release.
    pub kubernetes: Option<String>,
}

impl Settings {
    /// The defaults, with the version of Kubernetes under test.
    pub fn for_tests() -> Self {
        Self { kubernetes: std::env::var(VERSION_VARIABLE).ok(), ..Self::default() }
    }
}

/// A running control plane that ends with this value, or with this process if that ends first. A component that ends
/// earlier is restarted with the same arguments.
pub struct ControlPlane {
    supervisor: Supervisor<State>,
    instance: Instance,
    progress: SharedProgress,
}

impl ControlPlane {
    /// Starts a control plane and waits until clients can create claims, pods and service accounts.
    pub async fn start(settings: &Settings, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        let instance = Instance::create()?;
        let owner = ProcessId::of(std::process::id())?;
        let (state, children) = start::start(&instance.dir, Some(owner), settings, guard, progress).await?;
        let supervisor = supervisor::supervise(state, children, progress.clone());
        Ok(Self { supervisor, instance, progress: progress.clone() })
    }

    /// The current processes and files of the control plane.
    pub fn state(&self) -> State {
        self.supervisor.state()
    }

    /// Stops all components in an orderly way and removes the directory.
    pub async fn stop(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        self.stop_keeping_logs().await;
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Stops all components in an orderly way. The directory with their logs stays until the next start.
    pub async fn stop_keeping_logs(mut self) {
        let _children = self.supervisor.end();
        progress::during(&self.progress, "stopping the control plane", stop_all(&self.state())).await;
    }
}

/// The variable that selects the version of Kubernetes to test.
pub const VERSION_VARIABLE: &str = "E2E_KUBERNETES";

/// The control plane of this process, with a node if the machine supports one.
fn shared_by_tests() -> anyhow::Result<&'static ControlPlane> {
    static SHARED: Shared<ControlPlane> = Shared::new();

    shared(&SHARED, async |guard| {
        let settings = Settings { audit: true, node: NODE.obstacle().is_none(), ..Settings::for_tests() };
        ControlPlane::start(&settings, guard, &progress::terminal()).await
    })
}

/// Starts a control plane that outlives this process, until [`down`]. Stops the remains of a previous, incomplete one
/// first.
///
/// It is not supervised: a component that ends stays down, unless [`restart`] ended it.
pub async fn up(settings: &Settings, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Up> {
    let dir = state::standing_dir()?;
    let _lock = lock_standing(progress).await?;
    if let Some(state) = State::standing()? {
        if Status::of(&state).await?.is_healthy() {
            return Ok(Up::Already(state));
        }
        progress.line("stopping what is left of an earlier control plane");
        progress::during(progress, "stopping it", stop_all(&state)).await;
    }
    let _ = fs::remove_dir_all(&dir);
    instance::create_private_dir(&dir)?;
    let started = start::start(&dir, None, settings, guard, progress).await;
    let (state, children) = match started {
        Ok(started) => started,
        Err(error) => {
            // Keep the logs, but not a state file that claims a running control plane.
            let _ = fs::remove_file(dir.join("state.json"));
            return Err(error);
        }
    };
    children.release();
    Ok(Up::Started(state))
}

/// The result of [`up`].
pub enum Up {
    /// The control plane was started.
    Started(State),
    /// The control plane was already running.
    Already(State),
}

/// Stops the control plane that [`up`] started, and the programs recorded with it; returns `false` if there was none.
pub async fn down(progress: &SharedProgress) -> anyhow::Result<bool> {
    let _lock = lock_standing(progress).await?;
    let dir = state::standing_dir()?;
    let state = State::standing()?;
    if let Some(state) = &state {
        progress::during(progress, "stopping the control plane", stop_all(state)).await;
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(state.is_some())
}

/// Starts a program that runs until [`down`], with its output in the control plane's directory. Requires a control
/// plane that [`up`] started.
pub fn keep_program(state: &State, name: &str, program: &Path, arguments: Vec<String>) -> anyhow::Result<Process> {
    let mut state = state.reload()?;
    let mut process = Process::new(&state.dir, name, program, arguments);
    process.start(Lifetime::Detached, &state.guard())?;
    state.programs.push(process.clone());
    state.write()?;
    Ok(process)
}

/// Kills the control plane that [`up`] started, for cases without enough time for [`down`].
pub fn kill_standing() {
    let Ok(Some(state)) = State::standing() else {
        return;
    };
    for process in state.programs.iter().chain(&state.components) {
        if let Some(id) = process.id.filter(|id| id.runs(&process.program) || id.runs(&state.guard)) {
            id.signal(Signal::KILL);
        }
    }
    // The next start removes whatever remains.
    let _ = fs::remove_dir_all(&state.dir);
}

/// Ends a component with `signal`, and returns when it runs again on the same port and is ready.
///
/// The owner of the control plane restarts it. A control plane that [`up`] started has no owner, so this process does.
pub async fn restart(state: &State, component: &str, signal: Signal) -> anyhow::Result<State> {
    let state = state.reload()?;
    let old = state.running(component).with_context(|| format!("{component} is not running"))?;
    old.signal(signal);
    if !old.ended_within(RESTART_LIMIT).await {
        bail!("{component} did not end within {} s after {signal:?}", RESTART_LIMIT.as_secs());
    }
    if !state.owner.is_some_and(|owner| owner.is_running()) {
        start_again(&state, component)?;
    }
    let prober = Prober::new(&state).await?;
    let deadline = std::time::Instant::now() + RESTART_LIMIT;
    while std::time::Instant::now() < deadline {
        let now = state.reload()?;
        if let Some(process) = now.component(component)
            && process.id.is_some_and(|id| id != old && id.is_running())
            && prober.is_ready(process).await
        {
            return Ok(now);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{component} was not ready again within {} s", RESTART_LIMIT.as_secs())
}

const RESTART_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(10);

fn start_again(state: &State, name: &str) -> anyhow::Result<()> {
    let mut state = state.clone();
    let guard = state.guard();
    let component = state.components.iter_mut().find(|component| component.name == name);
    let component = component.with_context(|| format!("no component {name}"))?;
    component.start(Lifetime::Detached, &guard)?;
    state.write()
}

/// Stops the newest process first, because a component whose server has ended would only wait for it.
async fn stop_all(state: &State) {
    for process in state.programs.iter().rev().chain(state.components.iter().rev()) {
        let Some(id) = process.id.filter(|_| process.name != node::NAMESPACES) else { continue };
        // Right after its start, a process still runs the guard's binary.
        if id.runs(&process.program) || id.runs(&state.guard) {
            id.stop(STOP_LIMIT).await;
        }
    }
    // Destroy the node last: until then connections end properly, and the API server does not wait for them.
    node::destroy(state).await;
}

async fn lock_standing(progress: &SharedProgress) -> anyhow::Result<fs::File> {
    let path = cache_dir()?.join("up.lock");
    wait_for_lock(&path, "waiting for another command that starts or stops the control plane", progress).await
}
