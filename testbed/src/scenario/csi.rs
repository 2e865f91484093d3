//! The driver and the sidecar of a CSI scenario.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use driver_rpc::Server;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::driver::{Driver, Script};
use super::file::{Csi, DriverStep, SidecarStep};
use crate::cluster::Program;
use crate::control_plane::{State, kubeconfig_for_service_account, last_lines};

mod driver;
mod messages;
mod outcome;

/// The sidecar's account in `csi-scenarios/rights.yaml`.
const ACCOUNT: &str = "csi-provisioner";
const LIMIT: Duration = Duration::from_secs(30);
/// The calls that every sidecar makes at its start.
const AT_START: [&str; 5] =
    ["Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetInfo"];

/// The environment of a scenario's sidecar.
pub struct Host {
    /// The control plane.
    pub state: State,
    /// The sidecar's binary.
    pub program: PathBuf,
}

/// The driver and the sidecar of a running scenario.
pub(super) struct Stage<'a> {
    host: &'a Host,
    name: String,
    driver_name: String,
    driver: Driver,
    server: Option<JoinHandle<io::Result<Infallible>>>,
    /// The sidecar's command line, which begins with `env` if it needs a variable.
    program: Vec<String>,
    sidecar: Option<Program>,
    seen: BTreeMap<String, Seen>,
    folder: tempfile::TempDir,
}

/// The known data of a claim or a volume.
#[derive(Default)]
struct Seen {
    uid: String,
    /// The events that an outcome has already shown.
    events: BTreeSet<String>,
}

impl<'a> Stage<'a> {
    /// Starts the driver and the sidecar. In `csi`, all variables are already replaced; `name` is the name of the run.
    pub(super) async fn set(host: &'a Host, csi: &Csi, client: &Client, name: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = kubeconfig_for_service_account(client, &host.state, name, ACCOUNT).await?;
        let node = csi.node.clone().unwrap_or_default();
        let variable = node.name.map(|name| ["env".to_owned(), format!("NODE_NAME={name}")]);
        let mut program: Vec<_> = variable.into_iter().flatten().collect();
        program.push(host.program.display().to_string());
        program.extend([
            format!("--csi-address={}", folder.path().join("csi.sock").display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            // With the default limits, a scenario would spend most of its time waiting.
            "--kube-api-qps=100".to_owned(),
            "--kube-api-burst=200".to_owned(),
        ]);
        program.extend(csi.flags.iter().cloned());
        let mut stage = Self {
            host,
            name: name.to_owned(),
            driver_name: csi.name.clone(),
            driver: Driver::new(csi.name.clone(), &csi.plugin, &csi.controller, node.segments)?,
            server: None,
            program,
            sidecar: None,
            seen: BTreeMap::new(),
            folder,
        };
        if !csi.manual {
            stage.serve()?;
            stage.sidecar(SidecarStep::Start).await?;
        }
        Ok(stage)
    }

    /// Sets the driver's answers for volumes that it does not know yet.
    pub(super) fn script(&self, answers: &Value) -> anyhow::Result<()> {
        let of_call = |(call, answers): (&String, &Value)| {
            let answers = answers.as_array().context("the answers to a call are a list")?;
            Ok((call.clone(), answers.iter().cloned().collect::<VecDeque<_>>()))
        };
        let script = answers.as_object().into_iter().flatten().map(of_call);
        self.driver.set_script(script.collect::<anyhow::Result<Script>>()?);
        Ok(())
    }

    pub(super) fn driver(&mut self, step: &DriverStep) -> anyhow::Result<()> {
        match step {
            DriverStep::Start(capabilities) => {
                self.driver.set_capabilities(capabilities)?;
                self.serve()
            }
            DriverStep::Stop => {
                self.stop_serving();
                Ok(())
            }
        }
    }

    /// Runs a step of the sidecar, and returns the value to show, if any.
    pub(super) async fn sidecar(&mut self, step: SidecarStep) -> anyhow::Result<Option<Value>> {
        match step {
            SidecarStep::Start => {
                let (program, arguments) = self.program.split_first().context("there is no program")?;
                self.sidecar = Some(Program::spawn(&self.host.state, &self.name, program, arguments)?);
                Ok(None)
            }
            SidecarStep::Kill => {
                self.sidecar.take().context("there is no sidecar")?.kill().await?;
                Ok(None)
            }
            SidecarStep::Ended => {
                let status = self.sidecar.take().context("there is no sidecar")?.ended(LIMIT).await?;
                Ok(Some(json!({"status": status.code()})))
            }
        }
    }

    /// Waits for this number of calls that no outcome has shown, and returns them.
    pub(super) async fn calls(&self, count: usize) -> anyhow::Result<Value> {
        let deadline = Instant::now() + LIMIT;
        let mut calls = Vec::new();
        loop {
            calls.extend(self.driver.take_all().into_iter().map(|call| call.shown));
            if calls.len() >= count {
                return Ok(calls.into());
            }
            ensure!(Instant::now() < deadline, "there are not {count} calls: {:#}", json!(calls));
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The calls that no step has shown, so that none are lost.
    pub(super) fn rest(&self) -> Vec<Value> {
        let calls = self.driver.rest().into_iter().map(|call| call.shown);
        let mut calls: Vec<_> = calls.filter(|call| !AT_START.iter().any(|name| call["call"] == *name)).collect();
        // The number of repetitions depends on time.
        calls.dedup();
        calls
    }

    /// The last lines of the sidecar's log, to explain a failure.
    pub(super) fn log(&self) -> String {
        self.sidecar.as_ref().map(|sidecar| last_lines(sidecar.log(), 15)).unwrap_or_default()
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let server = Server::bind(&self.folder.path().join("csi.sock"))?;
        self.server = Some(tokio::spawn(server.csi(self.driver.clone()).serve()));
        Ok(())
    }

    fn stop_serving(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.stop_serving();
    }
}
