//! A replica of the provisioner as a process that is stopped and restarted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use testbed::control_plane::Signal;
use testbed::guard::{Guard, Lifetime, Running};
use testbed::process::ProcessId;
use tokio::sync::Mutex;

use super::faults::name_of;
use super::log::Log;
use super::{LEASE, PROVISIONER};

/// The lock is held during every action on a replica.
pub(super) type Shared = Arc<Mutex<Replica>>;

pub(super) struct Replica {
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: Vec<OsString>,
    guard: Guard,
    output: PathBuf,
    log: Log,
    running: Option<Running>,
    /// Number of unexpected exits.
    ended_by_itself: usize,
    starts: usize,
}

/// Actions of all replicas, from their logs.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) starts: usize,
    pub(super) ended_by_themselves: usize,
    pub(super) panics: usize,
    /// Number of times that the author's code was about to be called.
    pub(super) provisions: usize,
    pub(super) deletions: usize,
}

impl Replica {
    pub(super) fn new(
        name: &'static str,
        program: &Path,
        [root, kubeconfig]: [OsString; 2],
        guard: Guard,
        dir: &Path,
        log: Log,
    ) -> Shared {
        let output = dir.join(format!("replica-{name}.log"));
        let mut arguments = vec!["--root".into(), root, "--kubeconfig".into(), kubeconfig];
        arguments.extend(["--provisioner-name", PROVISIONER, "--shards", "2"].map(OsString::from));
        arguments.extend(["--retry-interval-max", "10s", "--shutdown-timeout", "5s"].map(OsString::from));
        arguments.extend(LEASE.map(OsString::from));
        let program = program.to_owned();
        let replica =
            Self { name, program, arguments, guard, output, log, running: None, ended_by_itself: 0, starts: 0 };
        Arc::new(Mutex::new(replica))
    }

    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        let output = File::options().create(true).append(true).open(&self.output)?;
        let mut command: Command = self.guard.command(Lifetime::WithOwner, &self.program);
        command.args(&self.arguments).stdout(output.try_clone()?).stderr(output);
        // Logs the decision about each key, to analyze failures and to count attempts.
        command.env("RUST_LOG", "info,kube_provisioner=debug,kube_client=off,kube_runtime=off,hyper=warn,rustls=warn");
        let running = Running::start(command).with_context(|| format!("cannot start {}", self.program.display()))?;
        self.starts += 1;
        self.log.write_line(format_args!("replica {}: starts as {}", self.name, running.pid()));
        self.running = Some(running);
        Ok(())
    }

    pub(super) fn id(&self) -> Option<ProcessId> {
        ProcessId::of(self.running.as_ref()?.pid()).ok()
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.log.write_line(format_args!("replica {}: {}", self.name, name_of(signal)));
        if let Some(id) = self.id() {
            id.signal(signal);
        }
    }

    /// Waits for its end, and kills it at the time limit; `false` if it was killed.
    pub(super) async fn ended(&mut self, limit: Duration) -> anyhow::Result<bool> {
        let Some(mut running) = self.running.take() else { return Ok(true) };
        let status = tokio::time::timeout(limit, running.ended()).await;
        let Ok(status) = status else {
            self.log.write_line(format_args!("replica {}: did not end within {} s", self.name, limit.as_secs()));
            return Ok(false);
        };
        self.log.write_line(format_args!("replica {}: ended with {}", self.name, status?));
        Ok(true)
    }
}

/// Restarts replicas that exited unexpectedly, as a cluster would.
pub(super) async fn restart_exited(replicas: [Shared; 2]) {
    loop {
        for replica in &replicas {
            let Ok(mut replica) = replica.try_lock() else { continue };
            let status = replica.running.as_mut().map(Running::try_wait);
            if let Some(Ok(Some(status))) = status {
                replica.log.write_line(format_args!("replica {}: ended by itself with {status}", replica.name));
                replica.ended_by_itself += 1;
                if let Err(error) = replica.start() {
                    replica.log.write_line(format_args!("replica {}: {error:#}", replica.name));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

pub(super) async fn totals(replicas: &[Shared; 2]) -> Totals {
    let mut totals = Totals::default();
    for replica in replicas {
        let replica = replica.lock().await;
        totals.starts += replica.starts;
        totals.ended_by_themselves += replica.ended_by_itself;
        // The text may be cut in the middle of a character.
        let text = fs::read(&replica.output).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            totals.panics += usize::from(line.contains("panicked at"));
            totals.provisions += usize::from(line.contains("decision=Provision"));
            totals.deletions += usize::from(line.contains("decision=Delete("));
        }
    }
    totals
}
