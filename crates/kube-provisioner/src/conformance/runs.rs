//! Rules about whole runs of the controller, each with one kind of disturbance.

use std::time::Duration;

use kube_sim::{Actors, Faults, Pace};
use tokio::time::{sleep, timeout};

use super::fixture::{Fixture, Plan, Sharing};
use super::spy::Calls;
use super::subject::Subject;
use super::verdict::{CheckResult, RuleVerdict, Violation};

const CLAIMS: usize = 10;
/// The offset of the seeds of these runs, so that no claim has the same uid as in a storm.
const SEEDS: u64 = 1 << 32;

pub(super) async fn restart(subject: &Subject) -> CheckResult {
    const KILLS: u64 = 48;
    let mut random = fastrand::Rng::with_seed(SEEDS);
    let mut fixture = fixture(subject, SEEDS, Sharing::Successors).await?;
    let limit = subject.tempo.step() * 6;
    let mut created = 0;
    for kill in 0..KILLS {
        if kill % 3 == 0 && created < CLAIMS {
            fixture.create_claim(&format!("claim-{created}"));
            created += 1;
        }
        match kill % 8 {
            // Deletes a claim in any state: what was begun for it must still be finished.
            3 => fixture.delete_claim(&format!("claim-{}", created - 1)),
            7 => fixture.bound().first().into_iter().for_each(|claim| fixture.delete_claim(claim)),
            _ => {}
        }
        fixture.start();
        match random.u8(..3) {
            0 => drop(timeout(limit, fixture.calls.wait(random.u64(1..=4))).await),
            1 => fixture.writes(random.u64(1..=12), limit).await,
            _ => sleep(limit.mul_f64(random.f64())).await,
        }
        fixture.kill().await;
    }
    fixture.start();
    fixture.wait_until_all_bound().await?;
    fixture.wait_until_all_deleted().await?;
    Ok(RuleVerdict::Kept)
}

pub(super) async fn two_replicas(subject: &Subject) -> CheckResult {
    // At the same moment: without latencies both see a claim at once.
    let (seed, sharing) = (SEEDS + 1, Sharing::Strangers);
    let plan = Plan { seed, sharing, actors: Actors::all(), faults: &Faults::none(0), calls: Calls::plain() };
    replaced(Fixture::new(subject, &subject.class(&subject.parameters), plan).await?).await?;
    // One after the other.
    replaced(fixture(subject, SEEDS + 2, Sharing::Strangers).await?).await?;
    // With a Lease, as in production.
    replaced(fixture(subject, SEEDS + 4, Sharing::Lease).await?).await?;
    Ok(RuleVerdict::Kept)
}

/// Runs two processes that share the work; one of them receives SIGTERM, and another one starts.
async fn replaced(mut fixture: Fixture<'_>) -> Result<(), Violation> {
    fixture.start();
    for claim in 0..CLAIMS / 2 {
        fixture.create_claim(&format!("claim-{claim}"));
    }
    fixture.start();
    for claim in CLAIMS / 2..CLAIMS {
        fixture.create_claim(&format!("claim-{claim}"));
        fixture.writes(2, fixture.subject.tempo.step()).await;
    }
    for claim in fixture.bound().iter().take(CLAIMS / 3) {
        fixture.delete_claim(claim);
    }
    fixture.stop().await;
    fixture.start();
    fixture.wait_until_all_bound().await?;
    fixture.wait_until_all_deleted().await
}

pub(super) async fn hundred_claims(subject: &Subject) -> CheckResult {
    let mut fixture = fixture(subject, SEEDS + 3, Sharing::Lease).await?;
    fixture.start();
    for claim in 0..100 {
        fixture.create_claim(&format!("claim-{claim}"));
    }
    fixture.wait_until_all_bound().await?;
    fixture.wait_until_all_deleted().await?;
    Ok(RuleVerdict::Kept)
}

/// Creates a cluster without faults, in which every step takes time.
async fn fixture(subject: &Subject, seed: u64, sharing: Sharing) -> Result<Fixture<'_>, Violation> {
    let faults = Faults::none(seed).latency(Duration::from_millis(1)..=Duration::from_millis(15));
    let calls = Calls::delayed(subject.tempo, seed);
    let plan = Plan { seed, sharing, actors: Actors::all().at(&Pace::USUAL), faults: &faults, calls };
    Fixture::new(subject, &subject.class(&subject.parameters), plan).await
}
