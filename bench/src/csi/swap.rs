//! The image of a Deployment is swapped back and forth, like in a rolling update, while claims are created and deleted.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use fastrand::Rng;
use testbed::control_plane::Signal;
use testbed::figures::Figures;
use tokio::time::{Instant, sleep};

use super::driver::Pace;
use super::kills::{Outcome, print_ledger};
use super::peer::{Peer, Programs};
use super::stage::Stage;
use super::traffic::Traffic;
use super::zones::{self, ZONES};

/// The chart's arguments, which both receive. With its default limits the Go program would provision few claims between
/// two swaps.
const FLAGS: [&str; 3] = ["--leader-election", "--kube-api-qps=100", "--kube-api-burst=200"];
/// Time that one image works after it has acquired the Lease, in milliseconds.
const WORKS: std::ops::RangeInclusive<u64> = 3000..=8000;
/// Time that both run, in milliseconds.
const OVERLAP: std::ops::RangeInclusive<u64> = 500..=3000;
/// A pod's grace period.
const GRACE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(300);
const QUIET: Duration = Duration::from_secs(60);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of swaps; every second one swaps back
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Number of claims in progress at a time
    #[arg(long, default_value_t = 200)]
    claims: usize,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a driver that has three zones and publishes its capacity
    #[arg(long)]
    topology: bool,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let programs = Programs::find().await?;
    let (zones, more): (&[&str], &[&str]) = if settings.topology { (&ZONES, &zones::FLAGS) } else { (&[], &[]) };
    let flags = [&FLAGS, more].concat();
    let stage = Arc::new(Stage::set_in_zones(&programs, "swap", Pace::SLOW, settings.seed, zones).await?);
    if settings.topology {
        zones::create_nodes(&stage).await?;
    }
    let watch = settings.topology.then(|| zones::Watch::start(&stage));
    let mut rng = Rng::with_seed(settings.seed);
    let mut sidecar = stage.start(Peer::Go, "pod-0", &flags)?;
    stage.wait_for_holder(&["pod-0"], Duration::from_secs(60)).await?;
    let traffic = Traffic::start(&stage, settings.claims, settings.seed);
    let mut takeovers = Figures::default();
    for number in 1..=settings.times {
        sleep(Duration::from_millis(rng.u64(WORKS))).await;
        let peer = if number % 2 == 1 { Peer::Ours } else { Peer::Go };
        let overlap = Duration::from_millis(rng.u64(OVERLAP));
        let time = replace(&stage, &mut sidecar, peer, number, overlap, &flags).await?;
        takeovers.record(peer.title(), "Lease held after the other's SIGTERM, s", time);
        eprintln!("{number} swaps, {}", stage.left().await?.shown());
    }
    let counts = traffic.stop().await?;
    let (left, settled) = stage.settle(PATIENCE, QUIET).await?;
    let outcome = Outcome { counts, left, settled, journal: stage.journal().await? };
    println!(
        "| {} swaps, {} claims on their way, seed {} | at the end |",
        settings.times, settings.claims, settings.seed
    );
    println!("|---|---|");
    print_ledger([(&stage, &outcome)]);
    // csi-provisioner completes the attempts in its journal, which the Go program ignores.
    replace(&stage, &mut sidecar, Peer::Ours, settings.times + 1, Duration::from_secs(1), &flags).await?;
    let (left, settled) = stage.settle(PATIENCE, QUIET).await?;
    println!("\n| and when csi-provisioner has been back | |\n|---|---|");
    print_ledger([(&stage, &Outcome { counts, left, settled, journal: stage.journal().await? })]);
    println!("\n{}", takeovers.table());
    if let Some(watch) = watch {
        let seen = watch.finish(&stage).await?;
        zones::delete_nodes(&stage).await?;
        println!("\n| topology and capacity | |\n|---|---|");
        println!("| volumes seen | {} |", seen.volumes.len());
        println!("| **of these not in the zone of their node** | {} |", seen.wrong.len());
        println!("| CSIStorageCapacity objects at the end | {} |", seen.published);
        println!("| **most objects of one class and segment at a time** | {} |", seen.most_of_one);
        ensure!(seen.wrong.is_empty(), "these volumes are in a wrong zone: {:?}", seen.wrong);
        ensure!(seen.most_of_one <= 1, "some capacity was published more than once");
    }
    Ok(())
}

/// Seconds from the SIGTERM until the new process holds the Lease.
async fn replace(
    stage: &Arc<Stage>,
    sidecar: &mut testbed::cluster::Program,
    peer: Peer,
    number: usize,
    overlap: Duration,
    flags: &[&str],
) -> anyhow::Result<f64> {
    let host = format!("pod-{number}");
    let mut old = std::mem::replace(sidecar, stage.start(peer, &host, flags)?);
    sleep(overlap).await;
    let told = Instant::now();
    // From here on, repeated calls come from the new process.
    stage.driver.ledger().process_starts();
    old.signal(Signal::TERM);
    let ended = async { old.ended(GRACE).await };
    let (ended, taken) = tokio::join!(ended, async {
        stage.wait_for_holder(&[&host], Duration::from_secs(60)).await.map(|_| told.elapsed())
    });
    if let Err(error) = ended {
        eprintln!("killed after its grace period: {error}");
        old.kill().await?;
    }
    Ok(taken?.as_secs_f64())
}
