//! Claims created at once, with a driver that answers immediately; and memory, with and without other provisioners'
//! objects.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, ValueEnum};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
use testbed::cluster::{AuditLog, is_bound};
use testbed::control_plane::State;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::Stage;
use crate::burst::mb;
use crate::cluster::Cluster;
use crate::process::{memory, processor_time};
use crate::wait::until;
use crate::{foreign, waiting};

const TUNED: [&str; 3] = ["--kube-api-qps=10000", "--kube-api-burst=10000", "--worker-threads=100"];
/// Concurrent requests while claims are created.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1800);
const IDLE: Duration = Duration::from_secs(10);

#[derive(Args, Clone)]
pub(crate) struct Settings {
    /// Number of claims created at once
    #[arg(long, default_value_t = 1000)]
    claims: usize,
    /// Number of rounds for each; the table lists all rounds and the medians
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Programs to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Which::Ours, Which::Tuned, Which::Defaults])]
    which: Vec<Which>,
    /// Measure memory with this number of claims and volumes of another provisioner instead
    #[arg(long, default_value_t = 0)]
    foreign: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// csi-provisioner with its defaults
    Ours,
    /// external-provisioner without limits
    Tuned,
    /// external-provisioner with its defaults, which takes about ten minutes per round
    Defaults,
}

impl Which {
    fn title(self) -> String {
        match self {
            Self::Ours => Peer::Ours.title().to_owned(),
            Self::Tuned => format!("{}, tuned", Peer::Go.title()),
            Self::Defaults => format!("{}, defaults", Peer::Go.title()),
        }
    }

    async fn measure(self, programs: &Programs, claims: usize) -> anyhow::Result<Burst> {
        match self {
            Self::Ours => Burst::measure(programs, Peer::Ours, &[], claims).await,
            Self::Tuned => Burst::measure(programs, Peer::Go, &TUNED, claims).await,
            Self::Defaults => Burst::measure(programs, Peer::Go, &[], claims).await,
        }
    }
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<()> {
    let state = State::for_tests()?;
    let programs = Programs::find(&state).await?;
    if settings.foreign > 0 {
        return beside_others(&programs, settings).await;
    }
    for peer in Peer::BOTH {
        let size = std::fs::metadata(programs.path(peer))?.len();
        println!("the program of {}: {:.1} MB", peer.title(), size as f64 / 1e6);
    }
    println!(
        "\n| {} claims at once | all bound | claims/s | memory idle, peak | processor time | CreateVolume |\n|---|---|---|---|---|---|",
        settings.claims
    );
    let mut requests = Vec::new();
    let mut rates = vec![Vec::new(); settings.which.len()];
    for _ in 0..settings.rounds {
        for (which, rates) in settings.which.iter().zip(&mut rates) {
            let one = which.measure(&programs, settings.claims).await?;
            let rate = settings.claims as f64 / one.bound;
            println!(
                "| {} | {:.1} s | {rate:.1} | {:.1} MB, {:.1} MB | {:.2} s | {} |",
                which.title(),
                one.bound,
                one.idle,
                one.peak,
                one.processor,
                one.calls
            );
            requests.push((which.title(), one.requests));
            rates.push(rate);
        }
    }
    println!("\n| claims/s, medians | |\n|---|---|");
    for (which, rates) in settings.which.iter().zip(&mut rates) {
        println!("| {} | {:.1} |", which.title(), waiting::median(rates));
    }
    println!("\n| requests for them | | answer | count |\n|---|---|---|---|");
    for (title, requests) in requests {
        println!("| **{title}** | | | **{}** |", requests.values().sum::<usize>());
        for ((verb, resource, code), count) in requests {
            println!("| {verb} | {resource} | {code} | {count} |");
        }
    }
    Ok(())
}

struct Burst {
    /// Seconds.
    bound: f64,
    /// MB.
    idle: f64,
    peak: f64,
    processor: f64,
    calls: usize,
    /// By verb, resource and answer.
    requests: BTreeMap<(String, String, u16), usize>,
}

impl Burst {
    async fn measure(programs: &Programs, peer: Peer, flags: &[&str], claims: usize) -> anyhow::Result<Self> {
        let stage = Stage::set(programs, &format!("burst-{}", peer.slug()), Pace::AT_ONCE, 1).await?;
        let sidecar = stage.start(peer, "sidecar", flags)?;
        sleep(IDLE).await;
        let audit = AuditLog::of(stage.state())?;
        let before = audit.entries_of(&stage.user())?.len();
        let pid = sidecar.id().pid;
        let idle = mb(memory(pid, "VmRSS")?);
        let begun = Instant::now();
        let create = |at: usize| {
            let stage = &stage;
            async move { stage.create_claim(&format!("claim-{at}")).await.map(drop) }
        };
        stream::iter(0..claims).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        wait_bound(&stage, claims).await?;
        let bound = begun.elapsed().as_secs_f64();
        let calls = stage.driver.ledger().create_calls;
        // Some events are written later.
        sleep(IDLE).await;
        let mut requests = BTreeMap::new();
        for entry in audit.entries_of(&stage.user())?.split_off(before) {
            *requests.entry((entry.verb, entry.resource, entry.code)).or_default() += 1;
        }
        let (peak, processor) = (mb(memory(pid, "VmHWM")?), processor_time(pid)?.as_secs_f64());
        drop(sidecar);
        stage.forget_all().await?;
        Ok(Self { bound, idle, peak, processor, calls, requests })
    }
}

async fn wait_bound(stage: &Stage, count: usize) -> anyhow::Result<()> {
    until(PATIENCE, Duration::from_millis(200), async || {
        let claims = stage.claims().list(&ListParams::default().match_any()).await?.items;
        let bound = claims.iter().filter(|claim| is_bound(claim)).count();
        Ok(if bound == count { Break(()) } else { Continue(format!("only {bound} of {count} claims are bound")) })
    })
    .await
}

async fn beside_others(programs: &Programs, settings: Settings) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for pairs in [0, settings.foreign] {
        if pairs > 0 {
            foreign::create(&Cluster::connect().await?, pairs).await?;
            eprintln!("{pairs} claims and volumes are made");
        }
        for _ in 0..settings.rounds {
            for peer in Peer::BOTH {
                rows.push((pairs, peer, Memory::measure(programs, peer).await?));
            }
        }
    }
    println!(
        "| foreign claims and volumes | | first CreateVolume after | resident memory then, 10 s later | peak |\n|---|---|---|---|---|"
    );
    for (pairs, peer, Memory { ready, then, later, peak }) in rows {
        println!(
            "| {pairs} + {pairs} | {} | {ready:.2} s | {then:.1} MB, {later:.1} MB | {peak:.1} MB |",
            peer.title()
        );
    }
    Ok(())
}

struct Memory {
    /// Seconds from the start until it provisions a pending claim.
    ready: f64,
    /// MB.
    then: f64,
    later: f64,
    peak: f64,
}

impl Memory {
    async fn measure(programs: &Programs, peer: Peer) -> anyhow::Result<Self> {
        let stage = Stage::set(programs, &format!("memory-{}", peer.slug()), Pace::AT_ONCE, 1).await?;
        // The controller-manager is busy with so many other claims.
        let volume = stage.create_waiting_claim("waiting").await?;
        let begun = Instant::now();
        let mut sidecar = stage.start(peer, "sidecar", &[])?;
        let ready = tokio::select! {
            called = stage.called(PATIENCE, |ledger| ledger.first_call(&volume)) => called? - begun,
            _ = sidecar.ended(PATIENCE) => bail!("the sidecar has ended"),
        };
        let pid = sidecar.id().pid;
        let then = mb(memory(pid, "VmRSS")?);
        sleep(IDLE).await;
        let (later, peak) = (mb(memory(pid, "VmRSS")?), mb(memory(pid, "VmHWM")?));
        Ok(Self { ready: ready.as_secs_f64(), then, later, peak })
    }
}
