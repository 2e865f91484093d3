//! The provisioner as a process: start, measurements, stop.

use std::ops::ControlFlow::{Break, Continue};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::Client;
use testbed::control_plane::Signal;
use testbed::go_provisioner::go_provisioner;
use testbed::process::{ProcessId, memory};
use testbed::progress;

use crate::cluster::{Cluster, PROVISIONER};
use crate::metrics::{self, Page};
use crate::wait::until;

/// Metrics on a free port.
pub(crate) const WITH_METRICS: [&str; 2] = ["--http-endpoint", "127.0.0.1:0"];

/// The path of another program of this package, which is built next to this one.
pub(crate) fn sibling(name: &str) -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

pub(crate) struct Provisioner {
    child: Child,
    pub(crate) started: Instant,
    /// Client for its metrics, created on first use.
    admin: OnceLock<Client>,
    log: PathBuf,
}

impl Provisioner {
    /// Starts `noop-provisioner` with its own service account and default settings. Its log has this name.
    pub(crate) async fn start(cluster: &Cluster, name: &str, more: &[String]) -> anyhow::Result<Self> {
        Self::start_program(cluster, &sibling("noop-provisioner")?, name, more).await
    }

    /// Starts a build of `noop-bucket-provisioner`.
    pub(crate) fn start_buckets(path: &Path, kubeconfig: &Path, log: &Path, more: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(path);
        command.arg("--kubeconfig").arg(kubeconfig).args(more);
        Self::spawn(command, log)
    }

    /// Starts another build of `noop-provisioner`.
    pub(crate) async fn start_program(
        cluster: &Cluster,
        program: &Path,
        name: &str,
        more: &[String],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(["--provisioner-name", PROVISIONER, "--kubeconfig"]).arg(cluster.kubeconfig().await?).args(more);
        Self::spawn(command, &cluster.state().dir.join(format!("{name}.log")))
    }

    /// Starts the Go provisioner. Without a root its backend does no work either.
    pub(crate) async fn start_go(cluster: &Cluster, more: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new(go_provisioner(&cluster.state().guard(), &progress::silent()).await?);
        command.args(["-provisioner", PROVISIONER, "-kubeconfig"]);
        command.arg(cluster.go_kubeconfig().await?).args(more);
        Self::spawn(command, &cluster.state().dir.join("go-provisioner.log"))
    }

    pub(crate) fn spawn(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let output = std::fs::File::create(log)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn();
        let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, started: Instant::now(), admin: OnceLock::new(), log: log.to_owned() })
    }

    pub(crate) async fn wait_ready(&mut self) -> anyhow::Result<()> {
        self.wait_to_log(": ready ").await
    }

    /// Waits until its log contains this text.
    pub(crate) async fn wait_to_log(&mut self, text: &str) -> anyhow::Result<()> {
        until(Duration::from_secs(300), Duration::from_millis(5), async || {
            if std::fs::read_to_string(&self.log)?.contains(text) {
                return Ok(Break(()));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the provisioner ended with {status}: {}", std::fs::read_to_string(&self.log)?);
            }
            Ok(Continue(format!("the provisioner has not logged {text:?}")))
        })
        .await
    }

    /// Reads its metrics; it must have been started with [`WITH_METRICS`].
    pub(crate) async fn metrics(&self) -> anyhow::Result<Page> {
        if let Some(client) = self.admin.get() {
            return Page::read(client).await;
        }
        let log = std::fs::read_to_string(&self.log)?;
        let address = log.lines().find_map(|line| line.split_once("/metrics on ")).context("it serves no metrics")?.1;
        let client = metrics::client(address.trim())?;
        Page::read(self.admin.get_or_init(|| client)).await
    }

    /// Number of shards that it holds; it must have been started with [`WITH_METRICS`].
    pub(crate) async fn leases(&self) -> anyhow::Result<usize> {
        Ok(self.metrics().await?.sum("provisioner_leases_held", &[]) as usize)
    }

    /// Waits until it holds a shard.
    pub(crate) async fn wait_for_lease(&self) -> anyhow::Result<()> {
        until(Duration::from_secs(60), Duration::from_millis(250), async || {
            let holds = self.leases().await? > 0;
            Ok(if holds { Break(()) } else { Continue("the provisioner holds no shard".to_owned()) })
        })
        .await
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        ProcessId::of(self.child.id())?.signal(signal);
        Ok(())
    }

    /// A field of `/proc/PID/status` in kB, such as `VmRSS` or `VmHWM`.
    pub(crate) fn memory(&self, field: &str) -> anyhow::Result<u64> {
        memory(self.child.id(), field)
    }

    /// The CPU time that it has used.
    pub(crate) fn processor_time(&self) -> anyhow::Result<Duration> {
        processor_time(self.child.id())
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        // It may have ended on its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time that a process has used, user and system, in ticks of 10 ms.
pub(crate) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    Ok(Duration::from_millis(10 * (ticks(11) + ticks(12))))
}
