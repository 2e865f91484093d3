//! Time that a claim is pending after SIGTERM or SIGKILL of the active replica.

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use testbed::cluster::Program;
use testbed::figures::Figures;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::Stage;
use crate::measurement::Measurement;
use crate::replicas::SIGNALS;

const FLAGS: [&str; 1] = ["--leader-election"];
/// Time until a new replica is on standby.
const SETTLES: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of rounds for each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let programs = Programs::find().await?;
    let mut figures = Figures::default();
    for peer in Peer::BOTH {
        measure_peer(peer, &programs, settings, &mut figures).await?;
    }
    Ok(figures.into())
}

/// Records seconds from the claim's creation, at the moment of the signal, until CreateVolume.
async fn measure_peer(
    peer: Peer,
    programs: &Programs,
    settings: Settings,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let stage = Stage::set(programs, &format!("handover-{}", peer.slug()), Pace::AT_ONCE, 1).await?;
    let mut replicas: Vec<(String, Program)> = Vec::new();
    let mut started = 0;
    for number in 0..settings.rounds {
        for (signal, what) in SIGNALS {
            while replicas.len() < 2 {
                let host = format!("pod-{started}-of");
                replicas.push((host.clone(), stage.start(peer, &host, &FLAGS)?));
                started += 1;
                // The first replica acquires the Lease.
                sleep(SETTLES).await;
            }
            let hosts: Vec<_> = replicas.iter().map(|(host, _)| host.as_str()).collect();
            let holder = stage.wait_for_holder(&hosts, PATIENCE).await?;
            let at = hosts.iter().position(|host| *host == holder).context("it is one of them")?;
            let (_, mut old) = replicas.remove(at);
            let claim = what.to_lowercase();
            let before = first_call(&stage, &format!("before-{claim}-{number}")).await?;
            old.signal(signal);
            let after = first_call(&stage, &format!("after-{claim}-{number}")).await?;
            eprintln!("{}: {what} {:.2} s", peer.slug(), after.as_secs_f64());
            figures.record(peer.title(), "no signal, s", before.as_secs_f64());
            figures.record(peer.title(), &format!("{what}, s"), after.as_secs_f64());
            old.ended(PATIENCE).await?;
        }
    }
    Ok(())
}

/// Time from now until CreateVolume is called for a new claim.
async fn first_call(stage: &Stage, claim: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let volume = stage.create_claim(claim).await?;
    Ok(stage.called(PATIENCE, |ledger| ledger.first_call(&volume)).await? - begun)
}
