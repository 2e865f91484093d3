//! Time that a claim is pending after SIGTERM or SIGKILL of the active replica.

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use testbed::cluster::Program;
use testbed::control_plane::{Signal, State};
use tokio::time::sleep;

use super::driver::Pace;
use super::median_and_longest;
use super::peer::{Peer, Programs};
use super::stage::Stage;

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

/// Seconds from the signal to CreateVolume.
#[derive(Default)]
struct Times {
    /// With one replica that runs all the time.
    before: Vec<f64>,
    told: Vec<f64>,
    killed: Vec<f64>,
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let programs = Programs::find(&State::for_tests()?).await?;
    let (ours, go) = tokio::try_join!(of(Peer::Ours, &programs, settings), of(Peer::Go, &programs, settings))?;
    println!(
        "| {} rounds of each: from claim to CreateVolume | no signal: median, longest | SIGTERM | SIGKILL |",
        settings.rounds
    );
    println!("|---|---|---|---|");
    for (peer, mut times) in [(Peer::Ours, ours), (Peer::Go, go)] {
        let [before, told, killed] =
            [&mut times.before, &mut times.told, &mut times.killed].map(|times| median_and_longest(times));
        println!("| {} | {before} | {told} | {killed} |", peer.title());
    }
    Ok(())
}

async fn of(peer: Peer, programs: &Programs, settings: Settings) -> anyhow::Result<Times> {
    let stage = Stage::set(programs, &format!("handover-{}", peer.slug()), Pace::AT_ONCE, 1).await?;
    let mut replicas: Vec<(String, Program)> = Vec::new();
    let mut started = 0;
    let mut times = Times::default();
    for number in 0..settings.rounds {
        for (signal, what) in [(Signal::TERM, "told"), (Signal::KILL, "killed")] {
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
            times.before.push(first_call(&stage, &format!("before-{what}-{number}")).await?.as_secs_f64());
            old.signal(signal);
            let time = first_call(&stage, &format!("after-{what}-{number}")).await?;
            eprintln!("{}: {what} {:.2} s", peer.slug(), time.as_secs_f64());
            let all = if what == "told" { &mut times.told } else { &mut times.killed };
            all.push(time.as_secs_f64());
            old.ended(PATIENCE).await?;
        }
    }
    Ok(times)
}

/// Time from now until CreateVolume is called for a new claim.
async fn first_call(stage: &Stage, claim: &str) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let volume = stage.create_claim(claim).await?;
    Ok(stage.called(PATIENCE, |ledger| ledger.first_call(&volume)).await? - begun)
}
