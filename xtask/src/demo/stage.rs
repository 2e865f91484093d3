//! The environment of the demo, and its cleanup.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use kube::Client;
use testbed::cluster::Program;
use testbed::control_plane::{self, Binaries, ControlPlane, Existing, Settings, Simulated, State, Up};
use testbed::guard::Guard;
use testbed::process::ProcessId;
use testbed::progress::SharedProgress;

use super::LIMIT;
use super::report::Report;

/// The environment of the demo.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// An API server in this process.
    Simulated,
    /// A control plane that is stopped at the end of the demo.
    Real,
    /// A control plane with a real node, where the provisioner is a pod.
    Node,
    /// A control plane that keeps running.
    Standing,
}

/// The control plane and the provisioner of the demo. If the stage is dropped before [`Stage::end`], both are stopped.
pub(super) struct Stage {
    pub(super) state: State,
    /// `None` if the control plane keeps running.
    control_plane: Option<Ending>,
    provisioner: Option<Program>,
    pub(super) log: Option<PathBuf>,
    has_ended: bool,
}

/// The resources that are removed at the end of the demo.
enum Ending {
    Real(ControlPlane),
    Simulated(Box<Simulated>),
    /// The user's own cluster, which keeps running; only the objects created in it are removed.
    Existing(Box<Existing>),
}

impl On {
    /// Fails early, before the build, if [`Stage::start`] would fail.
    pub(super) fn check(self) -> anyhow::Result<()> {
        if self == Self::Simulated {
            return Ok(());
        }
        if let Some(obstacle) = Binaries::obstacle() {
            return Err(obstacle);
        }
        if self == Self::Standing && State::standing()?.is_some() {
            bail!("a control plane is already up; `cargo xtask control-plane down` first");
        }
        Ok(())
    }
}

impl Stage {
    pub(super) async fn start(
        on: On,
        guard: &Guard,
        report: &mut Report,
        progress: &SharedProgress,
    ) -> anyhow::Result<Self> {
        let settings = Settings { node: on == On::Node, ..Settings::default() };
        let (state, control_plane) = match on {
            On::Standing => {
                report.begin("start the control plane");
                match control_plane::up(&settings, guard, progress).await? {
                    Up::Started(state) => (state, None),
                    Up::Already(_) => {
                        bail!("a control plane was started in the meantime; `cargo xtask control-plane down` first")
                    }
                }
            }
            On::Real | On::Node => {
                report.begin(if on == On::Node {
                    "start the control plane and its node"
                } else {
                    "start the control plane"
                });
                let control_plane = ControlPlane::start(&settings, guard, progress).await?;
                (control_plane.state(), Some(Ending::Real(control_plane)))
            }
            On::Simulated => {
                report.begin("start a simulated API server with its controllers");
                let simulated = Simulated::start(guard).await?;
                (simulated.state().clone(), Some(Ending::Simulated(Box::new(simulated))))
            }
        };
        report.done();
        Ok(Self { state, control_plane, provisioner: None, log: None, has_ended: false })
    }

    /// Uses an existing cluster.
    pub(super) fn on(existing: Existing) -> Self {
        let state = existing.state().clone();
        let control_plane = Some(Ending::Existing(Box::new(existing)));
        Self { state, control_plane, provisioner: None, log: None, has_ended: false }
    }

    /// A client for the administrator.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        match &self.control_plane {
            Some(Ending::Existing(existing)) => Ok(existing.client()),
            _ => control_plane::client_from(&self.state.kubeconfig).await,
        }
    }

    /// A kubeconfig for a service account.
    pub(super) async fn kubeconfig_for(&self, namespace: &str, account: &str) -> anyhow::Result<PathBuf> {
        if let Some(Ending::Existing(existing)) = &self.control_plane {
            return existing.kubeconfig_for_service_account(namespace, account).await;
        }
        let client = self.client().await?;
        control_plane::kubeconfig_for_service_account(&client, &self.state, namespace, account).await
    }

    pub(super) fn start_provisioner(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[(&str, String)],
    ) -> anyhow::Result<ProcessId> {
        let arguments = arguments.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        let arguments: Vec<String> = arguments.collect();
        if self.control_plane.is_none() {
            let kept = control_plane::keep_program(&self.state, name, program, arguments)?;
            self.log = Some(kept.log);
            return kept.id.context("the provisioner has no process ID");
        }
        let started = Program::spawn(&self.state, name, program, arguments)?;
        self.log = Some(started.log().to_owned());
        let id = started.id();
        self.provisioner = Some(started);
        Ok(id)
    }

    pub(super) fn failure(&self) -> String {
        let end = self.log.as_deref().map(|log| control_plane::last_lines(log, 15));
        match end {
            Some(end) => format!("the demo failed; the provisioner's log ends:\n{end}\n"),
            None => "the demo failed".to_owned(),
        }
    }

    pub(super) async fn end(mut self, report: &mut Report) -> anyhow::Result<()> {
        self.has_ended = true;
        let Some(control_plane) = self.control_plane.take() else {
            return Ok(());
        };
        if let Some(mut provisioner) = self.provisioner.take() {
            report.begin("stop the provisioner (SIGTERM)");
            let status = report.waiting(provisioner.terminate(LIMIT)).await?;
            ensure!(status.success(), "the provisioner ended with {status}");
            report.done();
        }
        match control_plane {
            Ending::Real(control_plane) => {
                report.begin("stop the control plane");
                control_plane.stop().await?;
            }
            Ending::Simulated(simulated) => {
                report.begin("stop the simulated API server");
                simulated.stop()?;
            }
            Ending::Existing(existing) => {
                report.begin("remove the objects of the demo");
                existing.end()?;
            }
        }
        report.done();
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Everything else ends when its handle is dropped.
        if !self.has_ended && self.control_plane.is_none() {
            control_plane::kill_standing();
        }
    }
}
