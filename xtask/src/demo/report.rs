//! What the demo prints.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::control_plane::State;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;

use super::Memory;

/// Steps as they happen, with what they took.
pub(super) struct Report {
    start: Instant,
    current: Option<(String, Instant)>,
    steps: Vec<(String, Duration)>,
}

/// Figures for the end.
pub(super) struct Summary {
    pub(super) size: u64,
    pub(super) memory: Memory,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), current: None, steps: Vec::new() }
    }

    pub(super) fn begin(&mut self, step: &str) {
        println!("==> {step}");
        self.current = Some((step.to_owned(), Instant::now()));
    }

    pub(super) fn done(&mut self) {
        let Some((step, start)) = self.current.take() else {
            return;
        };
        let took = start.elapsed();
        println!("    done in {}", milliseconds(took));
        self.steps.push((step, took));
    }

    pub(super) fn show(&self, text: &str) {
        println!("    {text}");
    }

    pub(super) fn claim(&self, claim: &PersistentVolumeClaim) {
        let spec = claim.spec.as_ref();
        let status = claim.status.as_ref();
        self.table(&[
            ("CLAIM", claim.name_any()),
            ("STATUS", text(status.and_then(|status| status.phase.as_ref()))),
            ("VOLUME", text(spec.and_then(|spec| spec.volume_name.as_ref()))),
            ("CAPACITY", text(status.and_then(|status| Some(&status.capacity.as_ref()?.get("storage")?.0)))),
            ("STORAGECLASS", text(spec.and_then(|spec| spec.storage_class_name.as_ref()))),
        ]);
    }

    pub(super) fn volume(&self, volume: &PersistentVolume) {
        let spec = volume.spec.as_ref();
        let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
        self.table(&[
            ("VOLUME", volume.name_any()),
            ("CAPACITY", text(spec.and_then(|spec| Some(&spec.capacity.as_ref()?.get("storage")?.0)))),
            ("RECLAIM", text(spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_ref()))),
            ("STATUS", text(volume.status.as_ref().and_then(|status| status.phase.as_ref()))),
            (
                "CLAIM",
                claim.map_or("-".to_owned(), |claim| {
                    format!("{}/{}", text(claim.namespace.as_ref()), text(claim.name.as_ref()))
                }),
            ),
        ]);
    }

    /// The directory and what is in it, with modes and owners.
    pub(super) fn directory(&self, directory: &Path) -> anyhow::Result<()> {
        self.entry(directory)?;
        for entry in fs::read_dir(directory)? {
            self.entry(&entry?.path())?;
        }
        Ok(())
    }

    pub(super) fn kept(&self, state: &State, log: Option<&Path>, namespace: &str, class: &str) -> anyhow::Result<()> {
        let file = state.dir.join("claim.json");
        let mut claim = e2e::cluster::claim("mine", class);
        claim.metadata.namespace = Some(namespace.to_owned());
        fs::write(&file, serde_json::to_vec_pretty(&claim)?)?;
        let kubectl = state.kubectl.as_ref().map_or("kubectl".to_owned(), |path| path.display().to_string());
        println!("\nStill running. To look at it:");
        println!("    export KUBECONFIG={}", state.kubeconfig.display());
        println!("    {kubectl} apply -f {}", file.display());
        println!("    {kubectl} get pvc,pv,events -n {namespace}");
        if let Some(log) = log {
            println!("    tail -f {}", log.display());
        }
        println!("To stop it:\n    cargo xtask control-plane down");
        Ok(())
    }

    pub(super) fn summary(&self, summary: &Summary) {
        println!("\nSummary");
        let width = self.steps.iter().map(|(step, _)| step.len()).max().unwrap_or_default();
        for (step, took) in &self.steps {
            println!("  {step:<width$}  {:>9}", milliseconds(*took));
        }
        println!("  {:<width$}  {:>9}", "all of it", milliseconds(self.start.elapsed()));
        println!("  {:<width$}  {:>6.1} MB", "size of the program", summary.size as f64 / 1e6);
        println!(
            "  {:<width$}  {:>6.1} MB",
            "resident memory, idle, before the claim",
            megabytes(summary.memory.before)
        );
        println!("  {:<width$}  {:>6.1} MB", "resident memory, idle, after it", megabytes(summary.memory.after));
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

    fn table(&self, columns: &[(&str, String)]) {
        let widths: Vec<_> = columns.iter().map(|(title, value)| title.len().max(value.len())).collect();
        let row = |cells: Vec<&str>| {
            let padded: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            self.show(padded.join("   ").trim_end());
        };
        row(columns.iter().map(|(title, _)| *title).collect());
        row(columns.iter().map(|(_, value)| value.as_str()).collect());
    }
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| "-".to_owned())
}

fn milliseconds(duration: Duration) -> String {
    match duration.as_millis() {
        millis @ 0..1000 => format!("{millis} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
