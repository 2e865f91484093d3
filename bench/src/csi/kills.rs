//! SIGKILLs of the sidecar at random moments, while claims are created and deleted.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::{Leftovers, Stage};
use super::traffic::{Counts, Traffic};

/// Lifetime of a process in milliseconds.
const LIFE: std::ops::RangeInclusive<u64> = 300..=5000;
const PATIENCE: Duration = Duration::from_secs(420);
const QUIET: Duration = Duration::from_secs(75);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of kills of each sidecar
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// Number of claims in progress at a time for each sidecar
    #[arg(long, default_value_t = 12)]
    claims: usize,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Results for one sidecar.
pub(super) struct Outcome {
    pub(super) counts: Counts,
    pub(super) left: Leftovers,
    pub(super) settled: Duration,
    pub(super) journal: Vec<String>,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let programs = Programs::find().await?;
    let (ours, go) =
        tokio::try_join!(measure_peer(Peer::Ours, &programs, settings), measure_peer(Peer::Go, &programs, settings))?;
    println!(
        "| {} kills of each, seed {} | {} | {} |",
        settings.kills,
        settings.seed,
        Peer::Ours.title(),
        Peer::Go.title()
    );
    println!("|---|---|---|");
    print_ledger([(&ours.0, &ours.1), (&go.0, &go.1)]);
    Ok(())
}

async fn measure_peer(peer: Peer, programs: &Programs, settings: Settings) -> anyhow::Result<(Arc<Stage>, Outcome)> {
    let stage = Stage::set(programs, &format!("kills-{}", peer.slug()), Pace::SLOW, settings.seed).await?;
    let stage = Arc::new(stage);
    let mut rng = Rng::with_seed(settings.seed);
    let mut sidecar = stage.start(peer, "sidecar", &["--leader-election=false"])?;
    let traffic = Traffic::start(&stage, settings.claims, settings.seed);
    let begun = Instant::now();
    for number in 1..=settings.kills {
        sleep(Duration::from_millis(rng.u64(LIFE))).await;
        sidecar.kill().await?;
        sidecar = stage.start(peer, "sidecar", &["--leader-election=false"])?;
        if number.is_multiple_of(20) {
            eprintln!(
                "{}: {number} kills after {:.0} s, {}",
                peer.slug(),
                begun.elapsed().as_secs_f64(),
                stage.left().await?.shown()
            );
        }
    }
    let counts = traffic.stop().await?;
    let (left, settled) = stage.settle(PATIENCE, QUIET).await?;
    let journal = stage.journal().await?;
    drop(sidecar);
    Ok((stage, Outcome { counts, left, settled, journal }))
}

/// Prints the rows of a table with one column for each sidecar.
pub(super) fn print_ledger<const N: usize>(all: [(&Arc<Stage>, &Outcome); N]) {
    type Show<'a> = &'a dyn Fn(&Stage, &Outcome) -> String;
    let rows: [(&str, Show<'_>); 15] = [
        ("claims created; deleted soon; bound", &|_, o| {
            format!("{}; {}; {}", o.counts.made, o.counts.early, o.counts.bound)
        }),
        ("volumes that the driver made", &|s, _| s.driver.ledger().volumes().to_string()),
        ("calls of CreateVolume, of DeleteVolume", &|s, _| {
            let ledger = s.driver.ledger();
            format!("{}, {}", ledger.create_calls, ledger.delete_calls)
        }),
        ("after the deletion of all claims, until nothing was left or nothing changed any more", &|_, o| {
            format!("{:.0} s", o.settled.as_secs_f64())
        }),
        ("**volumes left in the driver**", &|_, o| o.left.in_driver.to_string()),
        ("**of these without a PersistentVolume**", &|_, o| o.left.leaked.len().to_string()),
        ("of these asked for by csi-provisioner", &|s, o| {
            s.driver.ledger().asked_for_by(Peer::Ours, &o.left.leaked).to_string()
        }),
        ("attempts in the journal", &|_, o| o.journal.len().to_string()),
        ("names that got a second volume", &|s, _| s.driver.ledger().names_with_two().len().to_string()),
        ("CreateVolume for a name whose volume was deleted", &|s, _| s.driver.ledger().create_after_delete.to_string()),
        ("DeleteVolume that succeeded again", &|s, _| s.driver.ledger().repeated_deletes().to_string()),
        ("of these by the process that had the answer: csi-provisioner, external-provisioner", &|s, _| {
            let ledger = s.driver.ledger();
            format!("{}, {}", ledger.needless_deletes(Peer::Ours), ledger.needless_deletes(Peer::Go))
        }),
        ("claims that were never deleted", &|_, o| o.left.claims.to_string()),
        ("PersistentVolumes that were never deleted", &|_, o| o.left.volumes.to_string()),
        ("of both, with finalizers", &|_, o| o.left.finalizers.to_string()),
    ];
    for (what, show) in rows {
        let cells: Vec<_> = all.iter().map(|(stage, outcome)| show(stage, outcome)).collect();
        println!("| {what} | {} |", cells.join(" | "));
    }
    for (stage, outcome) in all {
        outcome.journal.iter().for_each(|entry| eprintln!("{}: {entry}", stage.name));
        // The driver's log contains more about them.
        stage.driver.ledger().names_with_two().iter().for_each(|name| eprintln!("{}: twice {name}", stage.name));
    }
}
