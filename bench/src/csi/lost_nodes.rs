//! SIGKILLs of the sidecar between CreateVolume and the PersistentVolume, while the node of the claim is deleted.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use fastrand::Rng;
use kube::ResourceExt;
use kube::api::DeleteParams;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::{Leftovers, Stage};

const ZONES: [&str; 2] = ["a", "b"];
/// Time between the CreateVolume call, which takes 300 to 2000 ms, and the kill of the sidecar, in milliseconds.
const AFTER: std::ops::Range<u64> = 0..1500;
/// Time limit for the first call for a new claim.
const CALL: Duration = Duration::from_secs(120);
/// Time limit for the last claims.
const BINDING: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(420);
const QUIET: Duration = Duration::from_secs(75);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of kills of each sidecar
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

struct Outcome {
    /// Rounds in which no PersistentVolume existed when the sidecar was killed.
    between: usize,
    calls: usize,
    other_requirements: usize,
    /// Claims that were not deleted, and how many of them were never bound.
    kept: usize,
    unbound: usize,
    left: Leftovers,
    journal: usize,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let programs = Programs::find().await?;
    let (ours, go) =
        tokio::try_join!(measure_peer(Peer::Ours, &programs, settings), measure_peer(Peer::Go, &programs, settings))?;
    println!(
        "| {} kills of each, seed {} | {} | {} |",
        settings.rounds,
        settings.seed,
        Peer::Ours.title(),
        Peer::Go.title()
    );
    println!("|---|---|---|");
    type Show = fn(&Outcome) -> String;
    let rows: [(&str, Show); 7] = [
        ("killed before the PersistentVolume was saved", |one| one.between.to_string()),
        ("calls of CreateVolume", |one| one.calls.to_string()),
        ("**of these with another requirement than the first one for the name**", |one| {
            one.other_requirements.to_string()
        }),
        ("claims that stay, and of these never bound", |one| format!("{}, {}", one.kept, one.unbound)),
        ("**volumes left in the driver without a PersistentVolume**", |one| one.left.leaked.len().to_string()),
        ("claims, PersistentVolumes that were never deleted", |one| {
            format!("{}, {}", one.left.claims, one.left.volumes)
        }),
        ("attempts in the journal", |one| one.journal.to_string()),
    ];
    for (what, show) in rows {
        println!("| {what} | {} | {} |", show(&ours), show(&go));
    }
    ensure!(
        ours.other_requirements + ours.unbound + ours.left.leaked.len() + ours.journal == 0,
        "csi-provisioner has not kept its promises"
    );
    Ok(())
}

async fn measure_peer(peer: Peer, programs: &Programs, settings: Settings) -> anyhow::Result<Outcome> {
    let name = format!("lost-nodes-{}", peer.slug());
    let stage = Stage::set_in_zones(programs, &name, Pace::SLOW, settings.seed, &ZONES).await?;
    let mut rng = Rng::with_seed(settings.seed);
    // In half of the rounds the requirement contains all zones.
    let flags = |round: usize| ["--leader-election=false", ["--strict-topology", "--strict-topology=false"][round % 2]];
    let mut sidecar = stage.start(peer, "sidecar", &flags(0))?;
    let (mut between, mut kept) = (0, 0);
    for round in 0..settings.rounds {
        let name = format!("{}-{round}", stage.name);
        stage.create_node(&name, rng.choice(ZONES).unwrap_or_default()).await?;
        let claim = format!("claim-{round}");
        let volume = stage.create_delayed_claim(&claim, &name).await?;
        stage.called(CALL, |ledger| ledger.first_call(&volume)).await?;
        sleep(Duration::from_millis(rng.u64(AFTER))).await;
        stage.delete_node(&name).await?;
        sidecar.kill().await?;
        between += usize::from(!stage.volumes().await?.iter().any(|saved| saved.name_any() == volume));
        match rng.u32(..4) {
            0 => {}
            1 => drop(stage.claims().delete(&claim, &DeleteParams::default()).await?),
            _ => stage.create_node(&name, rng.choice(ZONES).unwrap_or_default()).await?,
        }
        kept += usize::from(
            stage.claims().get_opt(&claim).await?.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()),
        );
        sidecar = stage.start(peer, "sidecar", &flags(round + 1))?;
        if (round + 1).is_multiple_of(20) {
            eprintln!("{}: {} kills, {}", peer.slug(), round + 1, stage.left().await?.shown());
        }
    }
    let unbound = stage.unbound(BINDING).await?;
    let (left, _) = stage.settle(PATIENCE, QUIET).await?;
    let journal = stage.journal().await?.len();
    drop(sidecar);
    let ledger = stage.driver.ledger();
    let (calls, other_requirements) = (ledger.create_calls, ledger.other_requirements);
    Ok(Outcome { between, calls, other_requirements, kept, unbound, left, journal })
}
