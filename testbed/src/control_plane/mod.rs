//! A Kubernetes control plane on loopback ports: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
//!
//! It has no nodes unless [`Settings::node`] asks for a real one. Node objects that a test creates stay as they are; pods
//! are scheduled onto them and never run.
//! Role-based access control is on, and so is the service account admission, as in a real cluster.
//!
//! [`ControlPlane`] lives as long as its owner, whatever ends it. [`up`] starts one that stays until [`down`].

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
pub(crate) use start::{Children, spawn};
pub(crate) use versions::fnv1a;

/// What can be chosen about a control plane.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The API server's port; a free one if none is given.
    pub port: Option<u16>,
    /// Whether the API server logs the requests of service accounts.
    pub audit: bool,
    /// How many requests per second the controller manager and the scheduler may make, each. Their defaults of 20 and
    /// 50 would make every measurement one of their client-side limits.
    pub requests_per_second: u32,
    /// Further arguments of the API server; the last one of a name counts.
    pub api_server_arguments: Vec<String>,
    /// Whether it has a real node. The API server's port is 443 then, of an address of its own.
    pub node: bool,
    /// Another version of Kubernetes than this project's, such as `1.35.4`; `1.35` is its newest patch.
    pub kubernetes: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: None,
            audit: false,
            requests_per_second: 5000,
            api_server_arguments: Vec::new(),
            node: false,
            kubernetes: None,
        }
    }
}

impl Settings {
    /// The defaults, with the version of Kubernetes that is tested.
    pub fn for_tests() -> Self {
        Self { kubernetes: std::env::var(VERSION_VARIABLE).ok(), ..Self::default() }
    }
}

/// A running control plane that ends with this value, or with this process if that comes first. A component that ends
/// before is started again with the same arguments.
pub struct ControlPlane {
    supervisor: Supervisor<State>,
    instance: Instance,
    progress: SharedProgress,
}

impl ControlPlane {
    /// Starts a control plane and waits until claims, pods and service accounts are served.
    pub async fn start(settings: &Settings, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        let instance = Instance::create()?;
        let owner = ProcessId::of(std::process::id())?;
        let (state, children) = start::start(&instance.dir, Some(owner), settings, guard, progress).await?;
        let supervisor = supervisor::supervise(state, children, progress.clone());
        Ok(Self { supervisor, instance, progress: progress.clone() })
    }

    /// What it is made of now.
    pub fn state(&self) -> State {
        self.supervisor.state()
    }

    /// Stops all components in good order and removes the directory.
    pub async fn stop(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        self.stop_keeping_logs().await;
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Stops all components in good order. The directory with their logs stays until the next start.
    pub async fn stop_keeping_logs(mut self) {
        let _children = self.supervisor.end();
        progress::during(&self.progress, "stopping the control plane", stop_all(&self.state())).await;
    }
}

/// The variable that names the version of Kubernetes to test.
pub const VERSION_VARIABLE: &str = "E2E_KUBERNETES";

/// The control plane of this process, with a node where the machine can have one.
fn shared_by_tests() -> anyhow::Result<&'static ControlPlane> {
    static SHARED: Shared<ControlPlane> = Shared::new();

    shared(&SHARED, async |guard| {
        let settings = Settings { audit: true, node: NODE.obstacle().is_none(), ..Settings::for_tests() };
        ControlPlane::start(&settings, guard, &progress::terminal()).await
    })
}

/// Starts a control plane that outlives this process, until [`down`]. What was left over from one that is no longer
/// whole is stopped before.
///
/// Nobody supervises it: a component that ends stays down, except through [`restart`].
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
            // The logs stay; a state would claim that something runs.
            let _ = fs::remove_file(dir.join("state.json"));
            return Err(error);
        }
    };
    children.release();
    Ok(Up::Started(state))
}

/// What [`up`] found or did.
pub enum Up {
    /// It started this one.
    Started(State),
    /// This one was already up.
    Already(State),
}

/// Stops the control plane of [`up`] and the programs recorded with it; `false` if there was none.
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

/// Starts a program that stays until [`down`], with its output in the control plane's directory. Only for the control
/// plane of [`up`].
pub fn keep_program(state: &State, name: &str, program: &Path, arguments: Vec<String>) -> anyhow::Result<Process> {
    let mut state = state.reload()?;
    let mut process = Process {
        name: name.to_owned(),
        id: None,
        program: program.to_owned(),
        arguments,
        log: state.dir.join(format!("{name}.log")),
        health: None,
    };
    let (_, id) = start::spawn(&process, Lifetime::Detached, &state.guard())?;
    process.id = Some(id);
    state.programs.push(process.clone());
    state.write()?;
    Ok(process)
}

/// Kills the control plane of [`up`] at once, for when there is no time for [`down`].
pub fn kill_standing() {
    let Ok(Some(state)) = State::standing() else {
        return;
    };
    for process in state.programs.iter().chain(&state.components) {
        if let Some(id) = process.id.filter(|id| id.runs(&process.program) || id.runs(&state.guard)) {
            id.signal(Signal::KILL);
        }
    }
    // Whatever remains is removed by the next start.
    let _ = fs::remove_dir_all(&state.dir);
}

/// Ends a component with `signal`, and returns when it runs again on the same port and is ready.
///
/// The owner of the control plane starts it again. The control plane of [`up`] has no owner, so there this process does.
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
    let (_, id) = start::spawn(component, Lifetime::Detached, &guard)?;
    component.id = Some(id);
    state.write()
}

/// Stops the newest first: a component whose server is gone would only wait for it.
async fn stop_all(state: &State) {
    for process in state.programs.iter().rev().chain(state.components.iter().rev()) {
        let Some(id) = process.id.filter(|_| process.name != node::NAMESPACES) else { continue };
        // Right after its start, the program is still the guard.
        if id.runs(&process.program) || id.runs(&state.guard) {
            id.stop(STOP_LIMIT).await;
        }
    }
    // As long as it is there, connections end as they should, and the API server does not wait for them.
    node::destroy(state).await;
}

async fn lock_standing(progress: &SharedProgress) -> anyhow::Result<fs::File> {
    let path = cache_dir()?.join("up.lock");
    wait_for_lock(&path, "waiting for another command that starts or stops the control plane", progress).await
}
