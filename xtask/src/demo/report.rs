//! The output of the demo.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use kube::{Client, Resource};
use testbed::control_plane::{Binaries, State, Versions};
use testbed::progress::{self, SharedProgress};

use super::kubectl::{self, Events};
use super::{CLASS, NAMESPACE};

/// Prints steps as they happen, with their duration.
pub(super) struct Report {
    progress: SharedProgress,
    start: Instant,
    current: Option<(String, Instant)>,
    steps: Vec<(String, Duration)>,
}

/// Measurements of a release build, in bytes.
pub(super) struct Figures {
    /// The size of the binary.
    pub(super) size: u64,
    /// Resident memory before the claim.
    pub(super) before: u64,
    /// Resident memory after the claim.
    pub(super) after: u64,
}

impl Report {
    pub(super) fn new(progress: SharedProgress) -> Self {
        Self { progress, start: Instant::now(), current: None, steps: Vec::new() }
    }

    pub(super) fn begin(&mut self, step: &str) {
        self.progress.output(&format!("==> {step}"));
        self.current = Some((step.to_owned(), Instant::now()));
    }

    pub(super) fn done(&mut self) {
        let Some((step, start)) = self.current.take() else {
            return;
        };
        let took = start.elapsed();
        self.show(&format!("done in {}", milliseconds(took)));
        self.steps.push((step, took));
    }

    /// Runs work that may take long if something is wrong, and shows that it is in progress.
    pub(super) async fn waiting<T>(&self, work: impl Future<Output = T>) -> T {
        progress::during(&self.progress, "    waiting", work).await
    }

    pub(super) fn show(&self, text: &str) {
        self.progress.output(format!("    {text}").trim_end());
    }

    /// An object as `kubectl get` shows it.
    pub(super) async fn object<K: Resource<DynamicType = ()>>(
        &self,
        client: &Client,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<()> {
        let lines = kubectl::get::<K>(client, namespace, name).await?;
        self.as_kubectl::<K>("get", namespace, name, "", &lines);
        Ok(())
    }

    /// The events about an object as `kubectl describe` shows them.
    pub(super) fn events<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str, events: &Events) {
        let what = "    (its events, oldest first)";
        self.as_kubectl::<K>("describe", Some(namespace), name, what, &events.lines());
    }

    /// The directory and its content, with modes and owners.
    pub(super) fn directory(&self, directory: &Path) -> anyhow::Result<()> {
        self.entry(directory)?;
        for entry in fs::read_dir(directory)? {
            self.entry(&entry?.path())?;
        }
        Ok(())
    }

    pub(super) fn kept(&self, state: &State, log: Option<&Path>) -> anyhow::Result<()> {
        let file = state.dir.join("claim.json");
        let mut claim = testbed::cluster::claim("mine", CLASS);
        claim.metadata.namespace = Some(NAMESPACE.to_owned());
        fs::write(&file, serde_json::to_vec_pretty(&claim)?)?;
        let kubectl = state.kubectl.as_ref().map_or("kubectl".to_owned(), |path| path.display().to_string());
        let say = |text: &str| self.progress.output(text);
        say("\nStill running. To inspect it:");
        say(&format!("    export KUBECONFIG={}", state.kubeconfig.display()));
        say(&format!("    {kubectl} apply -f {}", file.display()));
        say(&format!("    {kubectl} get pvc,pv,events -n {NAMESPACE}"));
        if let Some(log) = log {
            say(&format!("    tail -f {}", log.display()));
        }
        say("To stop it:\n    cargo xtask control-plane down");
        Ok(())
    }

    pub(super) fn summary(&self, figures: Option<&Figures>) {
        let times = self.steps.iter().map(|(step, took)| (step.as_str(), milliseconds(*took)));
        let all = ("total", milliseconds(self.start.elapsed()));
        let figures = figures.into_iter().flat_map(|Figures { size, before, after }| {
            [
                ("size of the program", megabytes(*size)),
                ("resident memory, idle, before the claim", megabytes(*before)),
                ("resident memory, idle, after it", megabytes(*after)),
            ]
        });
        let rows: Vec<_> = times.chain([all]).chain(figures).collect();
        let width = rows.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
        self.progress.output("\nSummary");
        for (what, figure) in rows {
            self.progress.output(&format!("  {what:<width$}  {figure:>9}"));
        }
    }

    /// Next steps for newcomers after the demo on the simulated API server.
    pub(super) fn what_next(&self) -> anyhow::Result<()> {
        let Versions { kubernetes, etcd, go, .. } = Versions::of_this_project()?;
        let commands = [
            ("cargo xtask sim --seeds 1000", "simulate 1,000 fleets with random crashes and check the invariants"),
            (
                "cargo test -p kube-provisioner --example directories",
                "a complete provisioner of 59 lines, and its tests",
            ),
            ("cargo xtask demo --keep", "the same on a real control plane that keeps running, for kubectl"),
            ("cargo xtask test", "every test"),
        ];
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
        self.progress.output("\nWhat next");
        for (command, what) in commands {
            self.progress.output(&format!("  {command:<width$}  {what}"));
        }
        if Binaries::installed().is_err() {
            self.progress.output(&format!(
                "The last two need Go {go} or later; the first of them builds etcd {etcd} and Kubernetes {kubernetes}."
            ));
        }
        Ok(())
    }

    fn as_kubectl<K: Resource<DynamicType = ()>>(
        &self,
        verb: &str,
        namespace: Option<&str>,
        name: &str,
        remark: &str,
        lines: &[String],
    ) {
        let kind = K::kind(&()).to_lowercase();
        let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        self.show("");
        self.show(&format!("kubectl {verb} {kind} {name}{namespace}{remark}"));
        lines.iter().for_each(|line| self.show(line));
    }

    fn entry(&self, path: &Path) -> anyhow::Result<()> {
        let meta = fs::metadata(path)?;
        let kind = if meta.is_dir() { "directory" } else { "file" };
        self.show(&format!(
            "{kind} {} mode {:04o} owner {}:{}",
            path.display(),
            meta.permissions().mode() & 0o7777,
            meta.uid(),
            meta.gid()
        ));
        Ok(())
    }
}

fn milliseconds(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
