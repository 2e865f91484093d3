//! Programs under test.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail};

use super::wait::eventually;
use crate::control_plane::{Signal, State, last_lines};
use crate::guard::{Lifetime, Running};
use crate::process::ProcessId;

/// A program that runs until this value is dropped or the test's process ends, for whatever reason.
pub struct Program {
    name: String,
    running: Running,
    id: ProcessId,
    log: PathBuf,
}

impl Program {
    /// Starts a program. Its output is appended to a file of this name in the control plane's directory.
    pub fn spawn<A: AsRef<OsStr>>(
        state: &State,
        name: &str,
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Self> {
        let dir = state.dir.join("programs");
        fs::create_dir_all(&dir)?;
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = state.guard().command(Lifetime::WithOwner, program.as_ref());
        command.args(arguments).stdout(output.try_clone()?).stderr(output);
        let running =
            Running::start(command).with_context(|| format!("cannot start {}", program.as_ref().display()))?;
        Ok(Self { name: name.to_owned(), id: ProcessId::of(running.pid())?, running, log })
    }

    /// The process.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The program and its arguments, which every user of this machine can read.
    pub fn arguments(&self) -> anyhow::Result<Vec<String>> {
        let text = fs::read_to_string(format!("/proc/{}/cmdline", self.running.pid()))?;
        Ok(text.split('\0').map(str::to_owned).collect())
    }

    /// The output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// True if the process still runs.
    pub fn is_running(&self) -> bool {
        self.id.is_running()
    }

    /// Sends a signal, such as [`Signal::STOP`] to simulate a hang and [`Signal::CONT`] to end it.
    pub fn signal(&self, signal: Signal) -> bool {
        self.id.signal(signal)
    }

    /// Sends SIGTERM and waits for the end; fails if the process still runs after `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.ended(limit).await
    }

    /// Kills the process with SIGKILL to simulate a crash.
    pub async fn kill(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.ended(Duration::from_secs(5)).await
    }

    /// Waits for the end; fails if the process still runs after `limit`.
    pub async fn ended(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        match tokio::time::timeout(limit, self.running.ended()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs after {} s\n{}", self.name, limit.as_secs_f64(), self.log_end()),
        }
    }

    /// Waits until its output contains a text.
    pub async fn wait_for_output(&self, text: &str, limit: Duration) -> anyhow::Result<()> {
        let found = eventually(limit, async || {
            if self.output().contains(text) {
                return Ok(Some(()));
            }
            if !self.is_running() {
                bail!("{} ended before it said {text:?}\n{}", self.name, self.log_end());
            }
            Ok(None)
        })
        .await?;
        found.with_context(|| format!("{} did not say {text:?}\n{}", self.name, self.log_end()))
    }

    fn log_end(&self) -> String {
        last_lines(&self.log, 60)
    }
}
