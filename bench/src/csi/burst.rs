//! Claims created at once, with a driver that answers immediately; and memory, with and without other provisioners'
//! objects.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use kube::api::ListParams;
use testbed::cluster::{AuditLog, is_bound};
use testbed::figures::Figures;
use testbed::process::memory;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::Stage;
use crate::burst::mb;
use crate::cluster::{Cluster, at_once};
use crate::contender::in_turns;
use crate::foreign::Pairs;
use crate::measurement::Measurement;
use crate::process::processor_time;
use crate::wait::until;

const TUNED: [&str; 3] = ["--kube-api-qps=10000", "--kube-api-burst=10000", "--worker-threads=100"];
const PATIENCE: Duration = Duration::from_secs(1800);
const IDLE: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Copy)]
pub(crate) struct Settings {
    /// Number of claims created at once
    #[arg(long, default_value_t = 1000)]
    claims: usize,
    /// Number of rounds for each
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Measure memory with this number of claims and volumes of another provisioner instead
    #[arg(long, default_value_t = 0)]
    foreign: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// csi-provisioner with its defaults
    Ours,
    /// external-provisioner without limits
    Tuned,
    /// external-provisioner with its defaults, which takes about ten minutes per round
    Defaults,
}

impl Variant {
    const ALL: [Self; 3] = [Self::Ours, Self::Tuned, Self::Defaults];

    fn title(self) -> String {
        match self {
            Self::Ours => Peer::Ours.title().to_owned(),
            Self::Tuned => format!("{}, tuned", Peer::Go.title()),
            Self::Defaults => format!("{}, defaults", Peer::Go.title()),
        }
    }

    fn peer(self) -> Peer {
        if self == Self::Ours { Peer::Ours } else { Peer::Go }
    }

    async fn measure(self, programs: &Programs, claims: usize) -> anyhow::Result<Burst> {
        let flags: &[&str] = if self == Self::Tuned { &TUNED } else { &[] };
        Burst::measure(programs, self.peer(), flags, claims).await
    }
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let programs = Programs::find().await?;
    let mut figures = Figures::default();
    if settings.foreign > 0 {
        measure_with_foreign(&programs, settings, &mut figures).await?;
        return Ok(figures.into());
    }
    let mut requests = Vec::new();
    // A new control plane processes its first requests faster than all later ones.
    Variant::Ours.measure(&programs, settings.claims / 4).await?;
    for round in 0..settings.rounds {
        for &which in in_turns(round, &Variant::ALL) {
            // A round with the defaults takes minutes, and its client-side limits leave little variation.
            if round > 0 && which == Variant::Defaults {
                continue;
            }
            let (name, one) = (which.title(), which.measure(&programs, settings.claims).await?);
            eprintln!("{name}: {:.1} s", one.bound);
            figures.record(&name, "all bound, s", one.bound);
            figures.record(&name, "idle memory, MB", one.idle);
            figures.record(&name, "peak memory, MB", one.peak);
            figures.record(&name, "processor time, s", one.processor);
            figures.record(&name, "calls of CreateVolume", one.calls as f64);
            figures.record(&name, "API requests", one.requests.values().sum::<usize>() as f64);
            let size = std::fs::metadata(programs.path(which.peer()))?.len();
            figures.record(&name, "program, MB", size as f64 / 1e6);
            requests.push((name, one.requests));
        }
    }
    println!("\n| requests for them | | answer | count |\n|---|---|---|---|");
    for (title, requests) in requests {
        println!("| **{title}** | | | **{}** |", requests.values().sum::<usize>());
        for ((verb, resource, code), count) in requests {
            println!("| {verb} | {resource} | {code} | {count} |");
        }
    }
    Ok(figures.into())
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
        let create = async |at: usize| stage.create_claim(&format!("claim-{at}")).await.map(drop);
        at_once(0..claims, create).await?;
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

async fn measure_with_foreign(programs: &Programs, settings: Settings, figures: &mut Figures) -> anyhow::Result<()> {
    let (cluster, mut existing) = (Cluster::connect().await?, Pairs::new(false));
    for pairs in [0, settings.foreign] {
        existing.grow(&cluster, pairs).await?;
        eprintln!("{pairs} claims with a volume exist");
        for round in 0..settings.rounds {
            for peer in in_turns(round, &Peer::BOTH) {
                let Memory { ready, later, peak } = Memory::measure(programs, *peer).await?;
                let name = format!("{}, {pairs} pairs", peer.title());
                figures.record(&name, "first CreateVolume after, s", ready);
                figures.record(&name, "memory after 10 s, MB", later);
                figures.record(&name, "peak memory, MB", peak);
            }
        }
    }
    Ok(())
}

struct Memory {
    /// Seconds from the start until it provisions a pending claim.
    ready: f64,
    /// MB, 10 s later.
    later: f64,
    peak: f64,
}

impl Memory {
    async fn measure(programs: &Programs, peer: Peer) -> anyhow::Result<Self> {
        let stage = Stage::set(programs, &format!("memory-{}", peer.slug()), Pace::AT_ONCE, 1).await?;
        let volume = stage.create_waiting_claim("waiting").await?;
        let begun = Instant::now();
        let mut sidecar = stage.start(peer, "sidecar", &[])?;
        let ready = tokio::select! {
            called = stage.called(PATIENCE, |ledger| ledger.first_call(&volume)) => called? - begun,
            _ = sidecar.ended(PATIENCE) => bail!("the sidecar has ended"),
        };
        let pid = sidecar.id().pid;
        sleep(IDLE).await;
        let (later, peak) = (mb(memory(pid, "VmRSS")?), mb(memory(pid, "VmHWM")?));
        Ok(Self { ready: ready.as_secs_f64(), later, peak })
    }
}
