//! Two replicas of the hostPath provisioner under fault injection, followed by a check of the final state: every
//! directory has its volume, every volume has its directory, and no data is lost.
//!
//! The seed determines the faults; their effect also depends on timing, so that a seed repeats the faults but not the
//! run. A log next to the replicas' own logs contains all events of the run.

mod check;
mod disk;
mod faults;
mod ledger;
mod log;
mod replica;
mod traffic;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use fastrand::Rng;
use serde_json::json;
use testbed::cluster::{apply, provisioner_program};
use testbed::progress;
use tokio::sync::watch;

use self::disk::Disk;
use self::ledger::Ledger;
use self::log::Log;
use self::replica::Replica;
use self::view::View;
use crate::cluster::Cluster;

const PROVISIONER: &str = "soak.example.com/hostpath";
/// Volumes of this class are deleted with their claims.
const DELETE: &str = "soak-delete";
/// Volumes of this class are retained.
const RETAIN: &str = "soak-retain";
/// Rather short, so that other replicas take over within seconds.
const LEASE: [&str; 6] = ["--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry-period", "500ms"];
/// Minimum duration of a replica's pause.
const LONGER_THAN_THE_LEASE: Duration = Duration::from_millis(3200);
/// The default pause between two faults.
const PACE: Duration = Duration::from_millis(2400);

#[derive(Args)]
pub(crate) struct Settings {
    /// Number of faults before the calm
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// Seed of the faults and their times
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Minutes over which the faults are spread [default: one fault every 2.4 s]
    #[arg(long)]
    minutes: Option<f64>,
    /// Number of claims in progress at a time
    #[arg(long, default_value_t = 30)]
    claims: usize,
}

/// State shared by all parts of a run.
struct Soak {
    cluster: Cluster,
    disk: Disk,
    log: Log,
    seed: u64,
    ledger: Mutex<Ledger>,
    view: watch::Receiver<Arc<View>>,
    /// Set once no more claims are created, and existing claims are kept.
    calm: watch::Receiver<bool>,
}

impl Soak {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Random numbers for one decision, so that decisions do not affect each other.
    fn chance(&self, what: &str, number: usize) -> Rng {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let name = what.bytes().chain(number.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325 ^ self.seed, mix);
        Rng::with_seed(name)
    }
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let Settings { faults, seed, minutes, claims } = settings;
    let pace = match minutes {
        Some(minutes) => Duration::from_secs_f64(60.0 * minutes / faults.max(1) as f64),
        None => PACE,
    };
    let cluster = Cluster::connect().await?;
    let classes = [(DELETE, "Delete"), (RETAIN, "Retain")].map(|(name, policy)| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER, "reclaimPolicy": policy, "volumeBindingMode": "Immediate"})
    });
    apply(&cluster.client(), &classes).await?;
    let dir = std::env::current_exe()?.ancestors().nth(2).context("the program is in no directory")?.join("soak");
    let dir = dir.join(format!("{seed}-{faults}-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let log = Log::create(&dir.join("soak.log"))?;
    let disk = Disk::create(&dir.join("disk"), log.clone())?;
    let program = provisioner_program("hostpath-provisioner")?;
    let kubeconfig = cluster.kubeconfig().await?;
    let replicas = ["a", "b"].map(|name| {
        let root = disk.root().as_os_str().to_owned();
        Replica::new(name, &program, [root, kubeconfig.clone().into()], cluster.state().guard(), &dir, log.clone())
    });
    let (view, calm) = (watch::channel(Arc::default()), watch::channel(false));
    let ledger = Mutex::default();
    let soak = Arc::new(Soak { cluster, disk, log, seed, ledger, view: view.1, calm: calm.1 });

    let start = Instant::now();
    for replica in &replicas {
        replica.lock().await.start()?;
    }
    let watching = tokio::spawn(view::keep_updated(soak.clone(), view.0));
    let minding = tokio::spawn(replica::restart_exited(replicas.clone()));
    let traffic = tokio::spawn(traffic::run(soak.clone(), claims));
    let progress = progress::terminal();
    let mut inflicted = faults::run(&soak, &replicas, faults, pace, &progress).await?;
    soak.log.write_line("calm");
    calm.0.send_replace(true);
    std::mem::take(&mut inflicted.bursts).join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
    traffic.await??;
    let calm_since = Instant::now();
    let findings = check::settled(&soak, &progress).await?;
    let settled = calm_since.elapsed();
    minding.abort();
    watching.abort();
    let ended = replica::totals(&replicas).await;
    drop(replicas);
    let report = check::report(
        &soak,
        &check::Run { faults: &inflicted, replicas: &ended, findings: &findings, took: start.elapsed(), settled },
    )?;
    println!("{report}");
    std::fs::write(dir.join("report.md"), &report)?;
    ensure!(findings.is_empty() && ended.panics == 0, "seed {seed}: promises were broken; see {}", dir.display());
    std::fs::remove_dir_all(dir.join("disk"))?;
    Ok(())
}
