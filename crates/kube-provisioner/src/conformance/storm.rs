//! Everything at once, drawn from a seed.

use std::time::Duration;

use kube_sim::{Actors, Fault, Faults, Pace};
use tokio::time::{Instant, sleep_until};

use super::lab::{Lab, Plan, Sharing};
use super::spy::Calls;
use super::subject::Subject;
use super::tempo::Tempo;
use super::verdict::{Broken, CheckResult, Judgement};

const CLAIMS: usize = 12;

/// What happens in a storm beside faults, and claims that are deleted at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Processes are killed, one after the other.
    Crashes,
    /// Of two processes that share a Lease the older one is killed.
    Replicas,
    /// Two processes that know nothing of each other. Neither is killed: nobody would finish what it had begun.
    Strangers,
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Create(usize),
    Delete(usize),
    Crash,
}

pub(super) async fn storms(subject: &Subject) -> CheckResult {
    for seed in subject.seeds.iter().copied() {
        storm(subject, seed).await.map_err(|Broken(seen)| {
            Broken(format!("seed {seed}: {seen}\nagain: `.only(\"storm\").seeds([{seed}])`"))
        })?;
    }
    Ok(Judgement::Kept)
}

async fn storm(subject: &Subject, seed: u64) -> Result<(), Broken> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5707_2331);
    let kind = [Kind::Crashes, Kind::Replicas, Kind::Strangers][random.usize(..3)];
    let sharing = match kind {
        Kind::Crashes => Sharing::Successors,
        Kind::Replicas => Sharing::Lease,
        Kind::Strangers => Sharing::Strangers,
    };
    let (faults, actors) = weather(subject.tempo, seed);
    let plan = Plan { seed, sharing, actors, faults: &faults, calls: Calls::delayed(subject.tempo, seed) };
    let mut lab = Lab::new(subject, &subject.class(&subject.parameters), plan).await?;
    lab.cluster.note(format!("a storm with {kind:?}"));
    lab.start();
    if kind != Kind::Crashes {
        lab.start();
    }
    let start = Instant::now();
    for (after, deed) in deeds(&mut random, kind, subject.tempo.storm()) {
        sleep_until(start + after).await;
        match deed {
            Deed::Create(claim) => lab.create_claim(&name(claim)),
            Deed::Delete(claim) => {
                lab.cluster.note(format!("{} is deleted", name(claim)));
                lab.delete_claim(&name(claim));
            }
            Deed::Crash => {
                lab.kill().await;
                lab.start();
            }
        }
    }
    faults.stop();
    lab.cluster.note("the storm is over");
    lab.all_bound().await?;
    lab.all_gone().await
}

/// What goes wrong between the controller and the API server, and how fast the cluster's own controllers are.
fn weather(tempo: Tempo, seed: u64) -> (Faults, Actors) {
    match tempo {
        Tempo::Virtual => (Faults::storm(seed), Actors::drawn(seed)),
        // Nothing that has to be waited out.
        Tempo::Real => {
            let quick = [
                Fault::Conflict,
                Fault::InternalError,
                Fault::LostAnswer,
                Fault::Break,
                Fault::BreakAfter,
                Fault::WatchEnd,
                Fault::WatchBreak,
                Fault::WatchExpired,
            ];
            let faults = quick.into_iter().fold(Faults::none(seed), |faults, fault| faults.with(fault, 0.03));
            (faults.latency(Duration::ZERO..=Duration::from_millis(5)), Actors::all().at(&Pace::PROMPT))
        }
    }
}

/// When what happens, in order.
fn deeds(random: &mut fastrand::Rng, kind: Kind, time: Duration) -> Vec<(Duration, Deed)> {
    let mut at = |from: f64, to: f64| time.mul_f64(from + random.f64() * (to - from));
    let mut deeds = Vec::new();
    for claim in 0..CLAIMS {
        let created = at(0.0, 0.6);
        deeds.push((created, Deed::Create(claim)));
        if claim % 3 != 0 {
            deeds.push((created + at(0.0, 0.4), Deed::Delete(claim)));
        }
    }
    if kind != Kind::Strangers {
        deeds.extend((0..8).map(|_| (at(0.0, 1.0), Deed::Crash)));
    }
    deeds.sort_by_key(|(after, _)| *after);
    deeds
}

fn name(claim: usize) -> String {
    format!("claim-{claim}")
}
