//! Storms: many simultaneous disturbances, drawn from a seed.

use std::time::Duration;

use kube_sim::{Actors, Fault, Faults, Pace};
use tokio::time::{Instant, sleep_until};

use super::fixture::{Fixture, Plan, Sharing};
use super::spy::Calls;
use super::subject::Subject;
use super::tempo::Tempo;
use super::verdict::{CheckResult, RuleVerdict, Violation};

const CLAIMS: usize = 12;

/// The events in a storm, in addition to faults and claims that are deleted at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StormKind {
    /// Processes are killed, one after the other.
    Crashes,
    /// Of two processes that share a Lease, the older one is killed.
    Replicas,
    /// Two processes work without coordination. Neither is killed: no process would finish its attempts.
    Strangers,
}

#[derive(Clone, Copy, Debug)]
enum StormAction {
    Create(usize),
    Delete(usize),
    Crash,
}

pub(super) async fn storms(subject: &Subject) -> CheckResult {
    for seed in subject.seeds.iter().copied() {
        storm(subject, seed).await.map_err(|Violation(seen)| {
            Violation(format!("seed {seed}: {seen}\nagain: `.only(\"storm\").seeds([{seed}])`"))
        })?;
    }
    Ok(RuleVerdict::Kept)
}

async fn storm(subject: &Subject, seed: u64) -> Result<(), Violation> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5707_2331);
    let kind = [StormKind::Crashes, StormKind::Replicas, StormKind::Strangers][random.usize(..3)];
    let sharing = match kind {
        StormKind::Crashes => Sharing::Successors,
        StormKind::Replicas => Sharing::Lease,
        StormKind::Strangers => Sharing::Strangers,
    };
    let (faults, actors) = faults_and_actors(subject.tempo, seed);
    let plan = Plan { seed, sharing, actors, faults: &faults, calls: Calls::delayed(subject.tempo, seed) };
    let mut fixture = Fixture::new(subject, &subject.class(&subject.parameters), plan).await?;
    fixture.cluster.note(format!("a storm with {kind:?}"));
    fixture.start();
    if kind != StormKind::Crashes {
        fixture.start();
    }
    let start = Instant::now();
    for (after, action) in actions(&mut random, kind, subject.tempo.storm()) {
        sleep_until(start + after).await;
        match action {
            StormAction::Create(claim) => fixture.create_claim(&name(claim)),
            StormAction::Delete(claim) => {
                fixture.cluster.note(format!("{} is deleted", name(claim)));
                fixture.delete_claim(&name(claim));
            }
            StormAction::Crash => {
                fixture.kill().await;
                fixture.start();
            }
        }
    }
    faults.stop();
    fixture.cluster.note("the storm is over");
    fixture.wait_until_all_bound().await?;
    fixture.wait_until_all_deleted().await
}

/// Returns the faults between the controller and the API server, and the speed of the cluster's own controllers.
fn faults_and_actors(tempo: Tempo, seed: u64) -> (Faults, Actors) {
    match tempo {
        Tempo::Virtual => (Faults::storm(seed), Actors::random(seed)),
        // Only faults that pass without long waits.
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

/// Returns the actions of a storm, ordered by time.
fn actions(random: &mut fastrand::Rng, kind: StormKind, time: Duration) -> Vec<(Duration, StormAction)> {
    let mut at = |from: f64, to: f64| time.mul_f64(from + random.f64() * (to - from));
    let mut actions = Vec::new();
    for claim in 0..CLAIMS {
        let created = at(0.0, 0.6);
        actions.push((created, StormAction::Create(claim)));
        if claim % 3 != 0 {
            actions.push((created + at(0.0, 0.4), StormAction::Delete(claim)));
        }
    }
    if kind != StormKind::Strangers {
        actions.extend((0..8).map(|_| (at(0.0, 1.0), StormAction::Crash)));
    }
    actions.sort_by_key(|(after, _)| *after);
    actions
}

fn name(claim: usize) -> String {
    format!("claim-{claim}")
}
