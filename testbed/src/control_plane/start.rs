//! The start of a control plane, up to components that answer.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::binaries::Binaries;
use super::components::{Plan, Ports, plan};
use super::health::Prober;
use super::pki::Pki;
use super::state::State;
use super::{Settings, logs, node};
use crate::guard::{Guard, Lifetime};
use crate::process::ProcessId;
use crate::progress::{self, SharedProgress, seconds};

/// Starts all components in `dir` and waits until they are ready. `owner` supervises them; without one they outlive
/// this process.
pub(super) async fn start(
    dir: &Path,
    owner: Option<ProcessId>,
    settings: &Settings,
    guard: &Guard,
    progress: &SharedProgress,
) -> anyhow::Result<(State, Children)> {
    let binaries = Binaries::find(settings.kubernetes.as_deref(), settings.node, guard, progress).await?;
    let lifetime = if owner.is_some() { Lifetime::WithOwner } else { Lifetime::Detached };
    let mut attempt = 1;
    loop {
        let mut children = Children::default();
        let (mut node, mut all) = (None, Vec::new());
        if let Some(programs) = &binaries.node {
            let (made, namespaces, child) = node::create(dir, programs.clone(), lifetime, guard)?;
            children.0.push(child);
            node = Some(made);
            all.push(namespaces);
        }
        let ports = Ports::choose(settings.port, node.as_ref())?;
        let pki = Pki::create(&dir.join("pki"), &ports.addresses(node.as_ref()))?;
        let planned = plan(dir, &pki, ports, &binaries, node.as_ref(), settings)?;
        let Plan { components, kubeconfig, audit_log } = planned;
        all.extend(components);
        let mut state = State {
            dir: dir.to_owned(),
            owner,
            guard: guard.exe().to_owned(),
            kubeconfig,
            kubectl: binaries.kubectl.clone(),
            kubernetes: binaries.kubernetes.clone(),
            server: ports.server(),
            ca_pem: pki.ca_pem.clone(),
            audit_log,
            node,
            components: all,
            programs: Vec::new(),
        };
        match start_components(&mut state, children, progress).await {
            Ok(children) => return Ok((state, children)),
            Err(Failure::PortTaken(component)) if attempt < ATTEMPTS => {
                progress.line(&format!("{component}: a port was taken in the meantime; trying others"));
                attempt += 1;
                let _ = fs::remove_dir_all(dir.join("etcd"));
            }
            Err(Failure::PortTaken(component)) => bail!("{component} found its port taken {ATTEMPTS} times"),
            Err(Failure::Other(error)) => return Err(error),
        }
    }
}

/// Started children, which are killed on drop, in the order of [`State::components`].
#[derive(Default)]
pub(crate) struct Children(pub(crate) Vec<Child>);

impl Children {
    /// Keeps the children running.
    pub(crate) fn release(mut self) {
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

const ATTEMPTS: u32 = 3;
/// A start takes four seconds, and several times as long on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

enum Failure {
    PortTaken(String),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

async fn start_components(
    state: &mut State,
    mut children: Children,
    progress: &SharedProgress,
) -> Result<Children, Failure> {
    let deadline = Instant::now() + LIMIT;
    let prober = Prober::new(state).await?;
    // The other components exit if they find no API server, so start them when it answers.
    for group in [["etcd", "kube-apiserver"], ["kube-controller-manager", "kube-scheduler"]] {
        for name in group {
            start_one(state, name, &mut children)?;
        }
        for name in group {
            let ready = wait_ready(state, name, &mut children, &prober, deadline);
            progress::during(progress, &format!("waiting for {name}"), ready).await?;
        }
    }
    let usable = wait_usable(state, &mut children, &prober, deadline);
    progress::during(progress, "waiting for the default service account", usable).await?;
    if state.node.is_some() {
        start_node(state, &mut children, &prober, deadline, progress).await?;
    }
    Ok(children)
}

async fn start_node(
    state: &mut State,
    children: &mut Children,
    prober: &Prober,
    deadline: Instant,
    progress: &SharedProgress,
) -> Result<(), Failure> {
    let start = Instant::now();
    start_one(state, "containerd", children)?;
    let ready = wait_ready(state, "containerd", children, prober, deadline);
    progress::during(progress, "waiting for containerd", ready).await?;
    node::import_all(state)?;
    start_one(state, "kubelet", children)?;
    let ready = async {
        wait_ready(state, "kubelet", children, prober, deadline).await?;
        let log = state.component("kubelet").map(|kubelet| kubelet.log.as_path());
        wait_until(state, children, deadline, "the node", log, async || node::is_ready(state).await).await
    };
    progress::during(progress, "waiting for the node", ready).await?;
    progress.line(&format!("the node is ready after {}", seconds(start.elapsed())));
    Ok(())
}

fn start_one(state: &mut State, name: &str, children: &mut Children) -> anyhow::Result<()> {
    let lifetime = if state.owner.is_some() { Lifetime::WithOwner } else { Lifetime::Detached };
    let guard = state.guard();
    let component = state.components.iter_mut().find(|component| component.name == name);
    let component = component.with_context(|| format!("no component {name}"))?;
    let _ = fs::remove_file(&component.log);
    children.0.push(component.start(lifetime, &guard)?.0);
    // Write the state after each start, so that running processes can be found whatever happens next.
    state.write()
}

async fn wait_ready(
    state: &State,
    name: &str,
    children: &mut Children,
    prober: &Prober,
    deadline: Instant,
) -> Result<(), Failure> {
    let component = state.component(name).with_context(|| format!("no component {name}"))?;
    let log = Some(component.log.as_path());
    wait_until(state, children, deadline, name, log, async || prober.is_ready(component).await).await
}

async fn wait_usable(
    state: &State,
    children: &mut Children,
    prober: &Prober,
    deadline: Instant,
) -> Result<(), Failure> {
    let what = "the default service account";
    wait_until(state, children, deadline, what, None, async || prober.has_default_service_account().await).await
}

/// Waits until it is ready, and fails early if a component ends. An error contains the end of the log.
async fn wait_until(
    state: &State,
    children: &mut Children,
    deadline: Instant,
    what: &str,
    log: Option<&Path>,
    is_ready: impl AsyncFn() -> bool,
) -> Result<(), Failure> {
    while !is_ready().await {
        check_alive(state, children)?;
        if Instant::now() > deadline {
            let end = log.map(|log| logs::last_lines(log, 10)).unwrap_or_default();
            return Err(anyhow::anyhow!("{what} was not ready after {} s:\n{end}", LIMIT.as_secs()).into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn check_alive(state: &State, children: &mut Children) -> Result<(), Failure> {
    for (child, component) in children.0.iter_mut().zip(&state.components) {
        let Some(status) = child.try_wait()? else {
            continue;
        };
        let name = &component.name;
        let end = logs::last_lines(&component.log, 10);
        if end.contains("address already in use") {
            return Err(Failure::PortTaken(name.clone()));
        }
        return Err(anyhow::anyhow!("{name} ended while starting ({status}); its log ends:\n{end}").into());
    }
    Ok(())
}
