//! The rules of the contract, and their checks.

use std::time::Duration;

use objectbucket_api::names::generated_bucket_name;
use tokio::time::sleep;

use super::direct::Direct;
use super::fixture::{Fixture, OVERLAP};
use super::{Subject, names, separate_calls, settings};
use crate::bucket::{Account, BucketAccess};
use crate::conformance::suite::{Rule, rules};
use crate::conformance::tempo::Tempo;
use crate::conformance::verdict::{CheckResult, RuleVerdict, Violation};

pub(in crate::conformance) const RULES: &[Rule<Subject>] = rules! {
    "bucket-provision" (provision): "a claim receives a bucket, and its Secret a key";
    "bucket-repeat" (again): "the same request again returns the same key and creates nothing else";
    "bucket-isolation" (isolation): "two claims have nothing in common";
    "bucket-delete" (delete): "deleting a claim removes everything, and deleting again succeeds";
    "bucket-missing" (missing): "cleaning up what was never created succeeds and removes nothing";
    "bucket-foreign" (foreign): "a bucket of another claim is refused, and survives";
    "bucket-one-name" (names::one_name):
        "two claims race for one bucket name: one receives it, and deleting the other does not affect it";
    "bucket-concurrent-creation" (names::concurrent_creation):
        "a bucket that another owner creates in the meantime is neither taken over nor removed";
    "bucket-other-cluster" (names::other_cluster):
        "a claim does not affect the bucket of the same claim in another cluster";
    "bucket-grant" (grant): "claims gain and lose access to an existing bucket, and the bucket stays";
    "bucket-share" (share): "a claim uses the bucket of another claim only if that bucket was created for the named claim";
    "bucket-separate-removal" (separate_calls::separate_removal):
        "`revoke` removes only what `grant` created, and `delete_bucket` only what `create_bucket` created";
    "bucket-multiple" (separate_calls::several): "one account receives access to several buckets, and loses access to all of them";
    "bucket-rotate" (rotate): "a new key and the old key both work until the old key expires";
    "bucket-keys" (separate_calls::keys): "`list_keys` returns the keys of the account, and no others";
    "bucket-list-assets" (separate_calls::list_assets): "`list_assets` returns the bucket of a claim";
    "bucket-settings" (settings::settings): "access modes and limits are applied or refused, never ignored";
    "bucket-refuse" (refuse): "unknown parameters are refused";
    "bucket-standby" (standby): "a standby process reports ready and changes nothing";
    "bucket-storm" (storms):
        "with crashes at any moment, each claim receives one bucket and one key, and nothing is left at the end";
};

async fn provision(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    if fixture.key("one").is_none_or(|key| key.is_empty()) {
        return Err(Violation("the claim's Secret has no key".to_owned()));
    }
    if (subject.assets)().await == fixture.before {
        return Err(Violation("the claim is bound, and the backend has nothing more than before".to_owned()));
    }
    // Another rule checks that everything is removed.
    fixture.remove("one").await?;
    process.abort();
    Ok(RuleVerdict::Kept)
}

async fn isolation(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    let alone = (subject.assets)().await;
    let key = fixture.key("one");
    fixture.claim("two", "class", None);
    fixture.wait_until_bound("two").await?;
    if fixture.key("two") == key {
        return Err(Violation("two claims have the same key".to_owned()));
    }
    fixture.remove("two").await?;
    fixture.assets("the second claim is deleted", &alone).await?;
    fixture.end(&["one"], process).await
}

async fn delete(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    let uid = fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    fixture.end(&["one"], process).await?;
    remove(subject, "one", &uid).await?;
    fixture.wait_for_initial_assets("deleted again").await.map(|()| RuleVerdict::Kept)
}

async fn missing(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    remove(subject, "never", "00000000-0000-4000-8000-00000000dead").await?;
    fixture.wait_for_initial_assets("cleaned up").await.map(|()| RuleVerdict::Kept)
}

async fn refuse(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    fixture.bad_class();
    fixture.claim("one", "bad", None);
    let failed = || fixture.get_claim("one").is_some_and(|claim| claim["status"]["phase"] == "Failed");
    fixture.wait_until("a class with an unknown parameter is refused", failed).await?;
    fixture.end(&["one"], process).await
}

async fn standby(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    // As in a rolling update: the new process has no Lease yet, so `start` has not been called.
    let ready = (subject.start)(fixture.cluster.client("kit")).probe().await;
    ready.map_err(|error| Violation(format!("`probe` before `start`: {error}")))?;
    fixture.wait_for_initial_assets("asked whether it is ready").await.map(|()| RuleVerdict::Kept)
}

async fn storms(subject: &Subject) -> CheckResult {
    for seed in &subject.seeds {
        storm(subject, *seed).await.map_err(|Violation(seen)| {
            Violation(format!("seed {seed}: {seen}\nagain: `.only(\"bucket-storm\").seeds([{seed}])`"))
        })?;
    }
    Ok(RuleVerdict::Kept)
}

async fn again(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    let uid = fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    let (assets, key) = ((subject.assets)().await, fixture.credentials("one"));
    process.abort();
    // After a Secret is lost, another process calls again.
    let target = kube_sim::Target { group: "", plural: "secrets", namespace: "default", name: "one" };
    let _ = fixture.cluster.delete(&target, kube_sim::DeleteOptions::default());
    let process = fixture.start(2);
    fixture.wait_until("the Secret is back", || fixture.key("one").is_some()).await?;
    let again = fixture.credentials("one");
    if again == key {
        fixture.assets("asked again", &assets).await?;
    } else if !subject.keys_shown_once {
        let what =
            if fixture.key("one") == key.map(|(id, _)| id) { "another secret for its key" } else { "another key" };
        return Err(Violation(format!("the claim {uid} has {what} than before")));
    } else if !(assets.len()..=assets.len() + 1).contains(&(subject.assets)().await.len()) {
        // The lost key may remain during the overlap.
        return Err(Violation("more than another key was created".to_owned()));
    }
    fixture.end(&["one"], process).await?;
    // A claim whose Secret is not lost, such as after a change of `additionalConfig`.
    let mut claim = Direct::new(subject, &fixture, Fixture::claim_name("two", "00000000-0000-4000-8000-00000000a9a1"))?;
    let own = [claim.create_bucket("conformance-again").await?];
    claim.grant(&own).await?;
    let key = claim.credentials().cloned();
    claim.grant(&own).await?;
    if claim.credentials() != key.as_ref() {
        return Err(Violation(
            "`grant` again, with the key of the claim's Secret, returned another key or secret".to_owned(),
        ));
    }
    claim.revoke(&own).await?;
    claim.delete_bucket("conformance-again").await?;
    fixture.wait_for_initial_assets("all claims are deleted").await.map(|()| RuleVerdict::Kept)
}

async fn foreign(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    fixture.claim("first", "class", Some("conformance-foreign"));
    fixture.wait_until_bound("first").await?;
    let assets = (subject.assets)().await;
    fixture.claim("second", "class", Some("conformance-foreign"));
    let refused = || fixture.get_claim("second").is_some_and(|claim| claim["status"]["phase"] == "Failed");
    fixture.wait_until("a claim on another claim's bucket is refused permanently", refused).await?;
    fixture.assets("refused", &assets).await?;
    fixture.remove("second").await?;
    fixture.assets("the refused claim is deleted", &assets).await?;
    fixture.end(&["first"], process).await
}

async fn grant(subject: &Subject) -> CheckResult {
    if subject.existing.is_none() {
        return Ok(RuleVerdict::NotApplicable("`.existing_bucket(..)` names no bucket".to_owned()));
    }
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    fixture.claim("one", "granted", None);
    fixture.wait_until_bound("one").await?;
    let alone = (subject.assets)().await;
    if alone == fixture.before {
        return Err(Violation("the claim is bound, and the backend has nothing more than before".to_owned()));
    }
    fixture.claim("two", "granted", None);
    fixture.wait_until_bound("two").await?;
    fixture.remove("two").await?;
    fixture.assets("the second claim is deleted", &alone).await?;
    fixture.end(&["one"], process).await
}

async fn share(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let process = fixture.start(1);
    let uid = fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    let alone = (subject.assets)().await;
    fixture.claim_of("two", "one");
    let phase =
        |claim: &str| fixture.get_claim(claim).map(|claim| claim["status"]["phase"].clone()).unwrap_or_default();
    fixture
        .wait_until("a claim on another claim's bucket is bound, or refused permanently", || {
            phase("two") == "Bound" || phase("two") == "Failed"
        })
        .await?;
    if phase("two") == "Failed" {
        fixture.remove("two").await?;
        fixture.end(&["one"], process).await?;
        return Ok(RuleVerdict::NotApplicable("`grant` refuses the bucket of another claim".to_owned()));
    }
    if fixture.key("two") == fixture.key("one") {
        return Err(Violation("two claims have the same key".to_owned()));
    }
    let shared = (subject.assets)().await;
    // Repeat the check as if the bucket had been created for a claim that never owned one.
    let direct = Direct::new(subject, &fixture, Fixture::claim_name("three", "00000000-0000-4000-8000-00000000dead"))?;
    let bucket = generated_bucket_name("conformance", &uid);
    for uid in ["00000000-0000-4000-8000-00000000beef", ""] {
        let access = [BucketAccess::new(&*bucket, Some(Account::of(Fixture::claim_name("one", uid))))];
        if direct.backend.grant(direct.claim.grant(access.to_vec())).await.is_ok() {
            return Err(Violation(
                "`grant` gives a claim access to a bucket that was created for another claim than the named one"
                    .to_owned(),
            ));
        }
        direct.revoke(&access).await?;
        fixture.assets("refused", &shared).await?;
    }
    fixture.delete("one");
    sleep(subject.tempo.step() * 4).await;
    fixture.assets("its bucket is in use", &shared).await?;
    fixture.remove("two").await?;
    fixture.wait_until_deleted("one").await?;
    fixture.wait_for_initial_assets("both claims are deleted").await?;
    // The claim that the bucket was created for may also outlive the other claim.
    fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    let alone_again = (subject.assets)().await.len();
    fixture.claim_of("two", "one");
    fixture.wait_until_bound("two").await?;
    fixture.remove("two").await?;
    if alone.len() != alone_again || (subject.assets)().await.len() != alone.len() {
        return Err(Violation("the second claim is deleted, and it has left assets".to_owned()));
    }
    fixture.end(&["one"], process).await
}

async fn rotate(subject: &Subject) -> CheckResult {
    let fixture = Fixture::new(subject).await;
    let backend = (subject.start)(fixture.cluster.client("kit"));
    if !backend.capabilities().rotation {
        return Ok(RuleVerdict::NotApplicable("the provisioner does not rotate keys".to_owned()));
    }
    let process = fixture.start(1);
    fixture.claim("one", "class", None);
    fixture.wait_until_bound("one").await?;
    let (key, count) = (fixture.key("one"), (subject.assets)().await.len());
    fixture.rotate("one", "now");
    fixture.wait_until("the Secret has another key", || fixture.key("one") != key).await?;
    sleep(OVERLAP).await;
    let start = tokio::time::Instant::now();
    while (subject.assets)().await.len() != count {
        if start.elapsed() > subject.tempo.limit() {
            return Err(Violation("the old key is not removed".to_owned()));
        }
        sleep(subject.tempo.step()).await;
    }
    fixture.end(&["one"], process).await
}

async fn storm(subject: &Subject, seed: u64) -> CheckResult {
    let mut random = fastrand::Rng::with_seed(seed);
    let fixture = Fixture::new(subject).await;
    let longest = match subject.tempo {
        Tempo::Virtual => 8000,
        Tempo::Real => 300,
    };
    let claims = ["one", "two", "three"];
    for round in 0..6 {
        let process = fixture.start(100 + round);
        for claim in claims {
            match random.u8(0..4) {
                0 | 1 if fixture.get_claim(claim).is_none() => drop(fixture.claim(claim, "class", None)),
                2 => fixture.delete(claim),
                3 => fixture.rotate(claim, &round.to_string()),
                _ => {}
            }
        }
        sleep(Duration::from_millis(random.u64(0..longest))).await;
        process.abort();
        let _ = process.await;
        subject.tempo.settle().await;
    }
    let process = fixture.start(200);
    fixture.end(&claims, process).await
}

/// Calls the provisioner as for a deleted claim.
async fn remove(subject: &Subject, name: &str, uid: &str) -> Result<(), Violation> {
    let fixture = Fixture::new(subject).await;
    let direct = Direct::new(subject, &fixture, Fixture::claim_name(name, uid))?;
    let bucket = generated_bucket_name("conformance", uid);
    for access in [direct.claim.own(&bucket), direct.claim.own(&bucket), BucketAccess::new(bucket, None)] {
        direct.delete_missing(&access).await?;
    }
    Ok(())
}
