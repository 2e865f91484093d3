//! Rules about contested names: two claims at once, a claim and an administrator who creates the bucket manually, and
//! the same claim in two clusters.

use std::pin::pin;

use super::Subject;
use super::direct::Direct;
use super::fixture::Fixture;
use crate::bucket::BucketAccess;
use crate::conformance::cancellation::{MAX_POLLS, cut_off};
use crate::conformance::tempo::Tempo;
use crate::conformance::verdict::{CheckResult, RuleVerdict, Violation};

/// The number of races of two claims for a name.
const RACES: usize = 4;
/// The number of moments, in real time, at which an administrator creates the bucket.
const MOMENTS: usize = 10;

/// Checks two claims that request one name at the same time: only one receives it, and deleting the other claim does
/// not affect it.
pub(super) async fn one_name(subject: &Subject) -> CheckResult {
    for race in 0..RACES {
        let fixture = Fixture::new(subject).await;
        let name = format!("conformance-race-{race}");
        let process = fixture.start(1);
        for claim in ["first", "second"] {
            fixture.claim(claim, "class", Some(&name));
        }
        let phase =
            |claim: &str| fixture.get_claim(claim).map(|claim| claim["status"]["phase"].clone()).unwrap_or_default();
        let settled = || ["first", "second"].iter().all(|claim| phase(claim) == "Bound" || phase(claim) == "Failed");
        fixture
            .wait_until(
                "one of two claims with one bucket name is bound, and the other one is refused permanently",
                settled,
            )
            .await?;
        let (winner, loser) = match (phase("first") == "Bound", phase("second") == "Bound") {
            (true, true) => return Err(Violation(format!("two claims have the bucket {name}"))),
            (false, false) => return Err(Violation(format!("neither of two claims has the bucket {name}"))),
            (true, false) => ("first", "second"),
            (false, true) => ("second", "first"),
        };
        // The assets that the losing claim has created are removed with its attempt.
        let assets = (subject.assets)().await;
        fixture.remove(loser).await?;
        fixture.assets("the refused claim is deleted", &assets).await?;
        fixture.end(&[winner], process).await?;
    }
    Ok(RuleVerdict::Kept)
}

/// Checks that an administrator can create a bucket of the requested name at any moment of an attempt.
pub(super) async fn concurrent_creation(subject: &Subject) -> CheckResult {
    if subject.manually_created.is_none() {
        return Ok(RuleVerdict::NotApplicable("it does not define how another owner creates a bucket".to_owned()));
    }
    for continues in [false, true] {
        let mut number = 0;
        for polls in moments(subject).await? {
            number += 1;
            let name = format!("conformance-hand-{}-{number}", u8::from(continues));
            if !interrupted(subject, &name, polls, continues).await? {
                // The bucket belongs to the claim from here on.
                break;
            }
        }
    }
    Ok(RuleVerdict::Kept)
}

/// Returns the poll counts after which to interrupt an attempt: every count, or a selection if the backend is slow.
async fn moments(subject: &Subject) -> Result<Vec<usize>, Violation> {
    if subject.tempo == Tempo::Virtual {
        return Ok((0..=MAX_POLLS).collect());
    }
    let fixture = Fixture::new(subject).await;
    let uid = fixture.claim("one", "class", Some("conformance-count"));
    let direct = Direct::new(subject, &fixture, Fixture::claim_name("one", &uid))?;
    let (request, mut polls) = (direct.claim.request("conformance-count"), 0);
    let mut call = pin!(direct.backend.create_bucket(request));
    let answer = std::future::poll_fn(|context| {
        polls += 1;
        call.as_mut().poll(context)
    });
    // A backend that fails occasionally may also fail here.
    let _ = answer.await;
    let process = fixture.start(1);
    fixture.wait_until_bound("one").await?;
    fixture.remove("one").await?;
    process.abort();
    Ok((0..MOMENTS).map(|moment| polls * moment / MOMENTS).collect())
}

/// Interrupts an attempt, and creates the bucket as an administrator. Returns false if it could not be created.
async fn interrupted(subject: &Subject, name: &str, polls: usize, continues: bool) -> Result<bool, Violation> {
    let Some(hand) = &subject.manually_created else { return Ok(false) };
    let fixture = Fixture::new(subject).await;
    let uid = fixture.claim("one", "class", Some(name));
    let direct = Direct::new(subject, &fixture, Fixture::claim_name("one", &uid))?;
    let when = format!("another owner creates the bucket {name} after {polls} polls of `create_bucket`");
    let mut call = direct.backend.create_bucket(direct.claim.request(name));
    let ended = cut_off(call.as_mut(), polls).await;
    let at_that_time = (subject.assets)().await;
    let made = (hand.make)(name.to_owned()).await;
    let now = (subject.assets)().await;
    // Include what a request of the attempt created while it was in flight.
    let mut theirs: Vec<String> = now.into_iter().filter(|asset| made && !at_that_time.contains(asset)).collect();
    if continues && ended.is_none() {
        let answer = call.await;
        if made && answer.is_ok() {
            return Err(Violation(format!("{when}: the claim has it")));
        }
    } else {
        drop(call);
    }
    subject.tempo.settle().await;
    let process = fixture.start(1);
    if made {
        let refused = || fixture.get_claim("one").is_some_and(|claim| claim["status"]["phase"] == "Failed");
        fixture.wait_until(&format!("{when}: the claim is refused permanently"), refused).await?;
        let now = (subject.assets)().await;
        theirs.retain(|asset| now.contains(asset));
        if theirs.is_empty() {
            return Err(Violation(format!("{when}: the bucket is deleted")));
        }
    } else {
        fixture.wait_until_bound("one").await?;
    }
    let mut left: Vec<String> = fixture.before.iter().cloned().chain(theirs).collect();
    left.sort_unstable();
    fixture.end_with(&["one"], &left, process).await.map_err(Violation::with_context(&when))?;
    if made {
        (hand.remove)(name.to_owned()).await;
        fixture.wait_for_initial_assets("the bucket of the other owner is removed").await?;
    }
    Ok(made)
}

/// Checks the bucket of a claim with the same name and the same uid in another cluster, as after a copy of the whole
/// cluster.
pub(super) async fn other_cluster(subject: &Subject) -> CheckResult {
    const NAME: &str = "conformance-clusters";
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    let uid = fixture.claim("one", "class", Some(NAME));
    fixture.wait_until_bound("one").await?;
    let assets = (subject.assets)().await;
    let mut there = Direct::new(subject, &fixture, Fixture::claim_name("one", &uid))?.in_another_cluster();
    let own = there.claim.own(NAME);
    if there.backend.create_bucket(there.claim.request(NAME)).await.is_ok() {
        return Err(Violation("the claim of another cluster receives the bucket".to_owned()));
    }
    fixture.assets("the claim of another cluster is refused", &assets).await?;
    if there.backend.grant(there.claim.grant(vec![own.clone()])).await.is_ok() {
        return Err(Violation("the claim of another cluster is granted access to the bucket".to_owned()));
    }
    for bucket in [own, BucketAccess::new(NAME, None)] {
        for _ in 0..2 {
            // Any answer is acceptable.
            let _ = there.deprovision(&bucket).await;
        }
        fixture.assets("the claim of another cluster is deleted", &assets).await?;
    }
    if there.backend.capabilities().rotation {
        there.claim.access_key_id = Some("a key of another cluster".to_owned());
        let account = || there.claim.granted_for(vec![there.claim.own(NAME)]);
        // Any answer is acceptable.
        let _ = there.backend.rotate(account()).await;
        let _ = there.backend.revoke_old_keys(account()).await;
        fixture.assets("the keys of the claim of another cluster are rotated", &assets).await?;
    }
    fixture.end(&["one"], process).await
}
