//! The state of a running cluster, in a file that other processes read, and the operations on the cluster.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::start::wait_answers;
use crate::control_plane::{Process, Signal, cache_dir, write_secret};
use crate::guard::{Guard, Lifetime};
use crate::packages;
use crate::process::ProcessId;

/// The program that provides S3.
pub(super) const RADOSGW: &str = "radosgw";

/// A running cluster. Its file contains the admin user's keys, so only the owner may read it.
#[derive(Clone, Serialize, Deserialize)]
pub struct State {
    /// The instance's directory: data, logs, certificates, and this file.
    pub dir: PathBuf,
    /// The process that the cluster ends with; `None` for `cargo xtask ceph up`.
    pub owner: Option<ProcessId>,
    /// The program that starts others under a [`crate::guard::Lifetime`].
    pub guard: PathBuf,
    /// radosgw's address, such as `http://127.0.0.1:40123`.
    pub endpoint: String,
    /// radosgw's address with TLS.
    pub https_endpoint: String,
    /// The certificate of the authority that signed radosgw's certificate.
    pub ca_pem: String,
    /// The monitor's address.
    pub monitor: String,
    /// The cluster's id.
    pub fsid: String,
    /// The secret key of [`super::ADMIN`].
    pub access_key: String,
    /// Its secret key.
    pub secret_key: String,
    /// The daemons, in the order of their start.
    pub components: Vec<Process>,
}

impl State {
    /// The cluster for tests: the one of `cargo xtask ceph up` if it exists, or else one of this process, which the
    /// first test starts.
    pub fn for_tests() -> anyhow::Result<Self> {
        super::CEPH.check_use()?;
        let standing = Self::standing().ok().flatten().filter(Self::is_complete);
        let state = standing.map_or_else(|| Self::read(&super::shared_by_tests()?.state().path()), Ok)?;
        // A test may have stopped radosgw on purpose.
        let ended = |daemon: &&Process| daemon.name != RADOSGW && !daemon.id.is_some_and(|id| id.is_running());
        if let Some(daemon) = state.components.iter().find(ended) {
            bail!("{} of the Ceph cluster has ended; its log: {}", daemon.name, daemon.log.display());
        }
        Ok(state)
    }

    /// The state of `cargo xtask ceph up`, if there is one, even if it no longer runs.
    pub fn standing() -> anyhow::Result<Option<Self>> {
        let path = path_in(&standing_dir()?);
        if path.exists() { Self::read(&path).map(Some) } else { Ok(None) }
    }

    /// Reads a state file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a Ceph cluster's state", path.display()))
    }

    /// The path of the state file.
    pub fn path(&self) -> PathBuf {
        path_in(&self.dir)
    }

    /// The guard that starts programs.
    pub fn guard(&self) -> Guard {
        Guard::new(&self.guard)
    }

    /// Suspends radosgw: it accepts connections but never answers, until [`State::resume`].
    pub async fn pause(&self) -> anyhow::Result<()> {
        let id = self.signal(Signal::STOP)?;
        let start = Instant::now();
        while !id.is_stopped()? {
            ensure!(start.elapsed() < STOP_LIMIT, "radosgw does not stop");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Resumes radosgw after [`State::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT).map(drop)
    }

    /// Stops radosgw until [`State::start_rgw`] or the end of this process: connections are refused, and stored data
    /// stays.
    pub async fn stop_rgw(&self) -> anyhow::Result<()> {
        let me = ProcessId::of(std::process::id())?;
        // Write this first; otherwise the owner would restart radosgw.
        fs::write(self.stopped_by(), serde_json::to_vec(&me)?)?;
        if let Some(id) = self.radosgw()? {
            id.stop(STOP_LIMIT).await;
        }
        Ok(())
    }

    /// Starts radosgw on the same ports after [`State::stop_rgw`], and waits until it answers.
    pub async fn start_rgw(&self) -> anyhow::Result<()> {
        let _ = fs::remove_file(self.stopped_by());
        // A running owner restarts radosgw.
        if !self.owner.is_some_and(|owner| owner.is_running()) && self.radosgw()?.is_none() {
            let mut state = Self::read(&self.path())?;
            let component = state.components.iter_mut().find(|component| component.name == RADOSGW);
            let component = component.context("the cluster has no radosgw")?;
            component.start(Lifetime::Detached, &self.guard())?;
            state.write()?;
        }
        wait_answers(self, Instant::now() + START_LIMIT).await
    }

    /// Runs `radosgw-admin` and returns its JSON output; null if it prints nothing.
    pub async fn radosgw_admin(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self.output("radosgw-admin", arguments).await?;
        // Leave out further arguments, which may contain keys.
        let command = arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "radosgw-admin {command} failed ({}): {said}", output.status);
        if output.stdout.trim_ascii().is_empty() {
            return Ok(Value::Null);
        }
        // Do not show the output, which may contain keys.
        serde_json::from_slice(&output.stdout).with_context(|| format!("radosgw-admin {command} printed no JSON"))
    }

    /// Sends an unauthenticated GET request for this path to `endpoint`, and returns the body as text.
    pub async fn get(&self, endpoint: &str, path: &str) -> anyhow::Result<String> {
        // kube's client is an HTTP client that the tests already use and that accepts a certificate authority.
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{ "name": "rgw", "cluster": { "server": endpoint, "certificate-authority": self.dir.join("ca.crt") } }],
            "users": [{ "name": "anonymous", "user": {} }],
            "contexts": [{ "name": "rgw", "context": { "cluster": "rgw", "user": "anonymous" } }],
            "current-context": "rgw",
        }))?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = Client::try_from(config)?.request_text(request).await;
        answer.with_context(|| format!("{endpoint}{path} gave no answer"))
    }

    /// True if all daemons run and radosgw answers.
    pub(super) async fn is_healthy(&self) -> bool {
        let runs = |daemon: &Process| daemon.id.is_some_and(|id| id.runs(&daemon.program));
        let answer = tokio::time::timeout(STOP_LIMIT, self.get(&self.endpoint, "/"));
        self.is_complete() && self.components.iter().all(runs) && answer.await.is_ok_and(|answer| answer.is_ok())
    }

    /// True if the cluster started completely.
    fn is_complete(&self) -> bool {
        !self.secret_key.is_empty()
    }

    /// Kills all daemons.
    pub(super) async fn kill(&self) -> anyhow::Result<()> {
        let ids = self.components.iter().rev().filter_map(|daemon| Some((daemon, daemon.id?)));
        // Right after its start, a process still runs the guard's binary.
        let ids: Vec<_> = ids.filter(|(daemon, id)| id.runs(&daemon.program) || id.runs(&self.guard)).collect();
        for (_, id) in &ids {
            id.signal(Signal::KILL);
        }
        for (daemon, id) in ids {
            ensure!(id.ended_within(STOP_LIMIT).await, "{} does not end", daemon.name);
        }
        Ok(())
    }

    /// Writes the state atomically, so that readers see either the old or the new one.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let path = self.path();
        let unfinished = path.with_extension(format!("json.{}", std::process::id()));
        write_secret(&unfinished, &serde_json::to_string_pretty(self)?)?;
        fs::rename(&unfinished, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// True if a running process has stopped radosgw.
    pub(super) fn is_stopped(&self) -> bool {
        let by = fs::read(self.stopped_by()).ok().and_then(|text| serde_json::from_slice::<ProcessId>(&text).ok());
        by.is_some_and(|by| by.is_running())
    }

    /// Runs one of Ceph's programs for this cluster until it ends.
    pub(super) async fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.guard().command(Lifetime::WithOwner, packages::program(program)?);
        command.args(arguments).env("CEPH_CONF", self.dir.join("ceph.conf"));
        let mut command = tokio::process::Command::from(command);
        let output = tokio::time::timeout(COMMAND_LIMIT, command.kill_on_drop(true).output()).await;
        let output = output.with_context(|| format!("{program} did not end in {} s", COMMAND_LIMIT.as_secs()))?;
        output.with_context(|| format!("cannot run {program}"))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<ProcessId> {
        let id = self.radosgw()?.context("radosgw is not running")?;
        ensure!(id.signal(signal), "radosgw has ended");
        Ok(id)
    }

    /// The process of the radosgw that currently runs.
    fn radosgw(&self) -> anyhow::Result<Option<ProcessId>> {
        let now = Self::read(&self.path())?;
        let component = now.components.iter().find(|component| component.name == RADOSGW);
        Ok(component.and_then(|component| component.id).filter(ProcessId::is_running))
    }

    fn stopped_by(&self) -> PathBuf {
        self.dir.join("radosgw.stopped")
    }
}

/// Leaves out the keys.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("dir", &self.dir).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// The directory of `cargo xtask ceph up`.
pub(super) fn standing_dir() -> anyhow::Result<PathBuf> {
    Ok(cache_dir()?.join("ceph-up"))
}

const STOP_LIMIT: Duration = Duration::from_secs(3);
const START_LIMIT: Duration = Duration::from_secs(60);
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

fn path_in(dir: &Path) -> PathBuf {
    dir.join("state.json")
}
