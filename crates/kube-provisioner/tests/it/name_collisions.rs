//! Claims whose volumes would have the same name, because names contain only one character of the uid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube_provisioner::protocol::PROVISIONED_BY;
use kube_provisioner::{Coordination, ProvisionError, Volume};
use kube_sim::{Cluster, Verb};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::{Answer, CLAIMS, Fixture, Request, Script, VOLUMES, volume};
use super::outages::{Outage, Outages};

/// A backend whose assets are named after the volumes.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Assets>>);

#[derive(Default)]
struct Assets {
    /// The claims for which assets were created, by name.
    owners: BTreeMap<String, String>,
    /// The calls for a claim that found another claim's asset.
    mistakes: Vec<String>,
}

impl Store {
    /// Duration of each step of a call, during which other events can occur.
    const STEP: Duration = Duration::from_millis(100);

    fn script(&self) -> Script {
        let (makes, cleans, deletes) = (self.clone(), self.clone(), self.clone());
        Script {
            provision: Box::new(move |request| {
                let store = makes.clone();
                Box::pin(async move {
                    sleep(Self::STEP).await;
                    store.check(&request, "provision").owners.insert(request.name.clone(), claim_of(&request));
                    sleep(Self::STEP).await;
                    Ok(volume(&request.name))
                })
            }),
            clean_up: Box::new(move |request| {
                let store = cleans.clone();
                Box::pin(async move {
                    sleep(Self::STEP).await;
                    store.check(&request, "clean_up").owners.remove(&request.name);
                    Ok(())
                })
            }),
            delete: Box::new(move |volume| {
                let store = deletes.clone();
                Box::pin(async move {
                    sleep(Self::STEP).await;
                    store.lock().owners.remove(&volume.name);
                    Ok(())
                })
            }),
            ..Script::default()
        }
    }

    /// Returns the assets, and records a mistake if the asset belongs to another claim.
    fn check(&self, request: &Request, method: &str) -> MutexGuard<'_, Assets> {
        let mut assets = self.lock();
        if let Some(owner) = assets.owners.get(&request.name).filter(|owner| **owner != claim_of(request)) {
            let seen = format!("{method} for {} finds the asset of {owner}", claim_of(request));
            assets.mistakes.push(seen);
        }
        assets
    }

    /// Returns the claims that have an asset, and the mistakes.
    fn owners_and_mistakes(&self) -> (Vec<String>, Vec<String>) {
        let assets = self.lock();
        (assets.owners.values().cloned().collect(), assets.mistakes.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Assets> {
        self.0.lock().unwrap()
    }
}

fn claim_of(request: &Request) -> String {
    request.claim.metadata.name.clone().unwrap_or_default()
}

/// Creates a cluster with two claims that share a name. Returns the older claim, the younger claim and the name.
fn two_claims_with_one_name(store: &Store, seed: u64) -> (Fixture, String, String, String) {
    let cluster = Cluster::builder().seed(seed).hide_managed_fields().build();
    let mut fixture = Fixture::on(cluster, store.script());
    fixture.options.volume_name_uid_length = Some(1);
    let mut known: BTreeMap<String, (String, String)> = BTreeMap::new();
    for number in 0.. {
        let claim = format!("claim-{number:02}");
        let uid = fixture.claim(&claim, "class").trim_start_matches("pvc-").to_owned();
        let name = format!("pvc-{}", &uid[..1]);
        if let Some((first, first_uid)) = known.remove(&name) {
            known.values().for_each(|(claim, _)| fixture.delete(CLAIMS, claim));
            // Both were created in the same second, so their uids decide which is older.
            let (older, younger) = if first_uid < uid { (first, claim) } else { (claim, first) };
            return (fixture, older, younger, name);
        }
        known.insert(name, (claim, uid));
    }
    unreachable!("there are only sixteen names")
}

// Rules: G70.
#[tokio::test(start_paused = true)]
async fn a_claim_with_a_taken_volume_name_reports_the_other_claim() {
    let store = Store::default();
    let (fixture, first, second, name) = two_claims_with_one_name(&store, 1);
    let running = fixture.start(1);
    fixture.until("the first is bound", || fixture.is_bound(&first)).await;
    fixture.until("the second has an event", || !fixture.events(&second).is_empty()).await;
    let expected = format!(
        "Warning ProvisioningFailed: the volume name {name} is already used by the claim \"default/{first}\"; this claim waits \
         until that claim and its volume are deleted; to avoid the wait, delete this claim and create it again, or ask the administrator for a \
         greater --volume-name-uuid-length"
    );
    assert_eq!(fixture.events(&second), [&*expected]);
    // A process that begins later also reports it.
    running.abort();
    fixture.cluster.list("", "events", None).unwrap().iter().for_each(|event| {
        fixture.delete("events", event["metadata"]["name"].as_str().unwrap());
    });
    let _running = fixture.start(2);
    fixture.until("the second has an event again", || !fixture.events(&second).is_empty()).await;
    assert_eq!(fixture.events(&second), [&*expected]);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.calls.count("provision"), 1);
    fixture.delete(CLAIMS, &first);
    let took = fixture.until("the second is bound", || fixture.is_bound(&second)).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!((fixture.calls.count("provision"), fixture.calls.count("delete")), (2, 1));
    assert_eq!(store.owners_and_mistakes(), (vec![second], vec![]));
}

/// Deletes one of two claims at some moment, and optionally restarts the process.
async fn delete_one(seed: u64, after: Duration, first_goes: bool, restarts: bool) {
    let store = Store::default();
    let (fixture, first, second, name) = two_claims_with_one_name(&store, seed);
    let mut running = fixture.start(1);
    sleep(after).await;
    let (gone, stays) = if first_goes { (&first, &second) } else { (&second, &first) };
    let case = format!("seed {seed}, {gone} is deleted after {after:?}, restarts: {restarts}");
    fixture.delete(CLAIMS, gone);
    if restarts {
        running.abort();
        running = fixture.start(2);
    }
    fixture.until(&case, || fixture.is_bound(stays) && fixture.entries().is_empty()).await;
    assert_eq!(store.owners_and_mistakes(), (vec![stays.clone()], vec![]), "{case}");
    assert_eq!(fixture.get(VOLUMES, &name).unwrap()["spec"]["claimRef"]["name"], **stays, "{case}");
    // Deleting the last claim leaves nothing behind.
    fixture.delete(CLAIMS, stays);
    fixture.until(&case, || fixture.get(VOLUMES, &name).is_none() && fixture.entries().is_empty()).await;
    assert_eq!(store.owners_and_mistakes(), (vec![], vec![]), "{case}");
    assert!(!running.is_finished(), "{case}");
}

async fn delete_one_at_each_moment(restarts: bool) {
    for moment in 0..8 {
        for first_goes in [true, false] {
            delete_one(1 + moment % 2, Duration::from_millis(1 + moment * 80), first_goes, restarts).await;
        }
    }
}

// Rules: G70.
#[tokio::test(start_paused = true)]
async fn each_claim_uses_its_own_volume_after_a_deletion() {
    delete_one_at_each_moment(false).await;
}

// Rules: G70.
#[tokio::test(start_paused = true)]
async fn each_claim_uses_its_own_volume_after_deletion_and_restart() {
    delete_one_at_each_moment(true).await;
}

// Rules: G70.
/// Another program has created a volume for the second claim while the author created one for the first.
#[tokio::test(start_paused = true)]
async fn keeps_a_foreign_volume_with_the_same_name() {
    let store = Store::default();
    let (fixture, first, second, name) = two_claims_with_one_name(&store, 3);
    let _running = fixture.start(1);
    fixture.until("the call", || fixture.calls.count("provision") == 1).await;
    let uid = fixture.get(CLAIMS, &second).unwrap()["metadata"]["uid"].clone();
    let claim = json!({"namespace": "default", "name": second, "uid": uid});
    fixture.released(&name, json!({"spec": {"claimRef": claim, "storageClassName": "class"}}));
    fixture.until("the second is bound", || fixture.is_bound(&second)).await;
    fixture.until("the first has an event", || !fixture.events(&first).is_empty()).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.calls.all(), ["start ".to_owned(), format!("provision {first}")]);
    assert_eq!(fixture.entries(), [&*name]);
    fixture.delete(CLAIMS, &second);
    fixture.until("the first is bound", || fixture.is_bound(&first) && fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up"), 0);
    assert_eq!((fixture.calls.count("provision"), fixture.calls.count("delete")), (2, 1));
    assert_eq!(store.owners_and_mistakes(), (vec![first], vec![]));
}

// Rules: G70.
/// The watch does not show the volume of a deleted claim.
#[tokio::test(start_paused = true)]
async fn looks_up_a_volume_name_before_reusing_it() {
    let (store, outages) = (Store::default(), Outages::default());
    let cluster = Cluster::builder().hide_managed_fields().interceptor(Arc::new(outages.clone())).build();
    let mut fixture = Fixture::on(cluster, store.script());
    fixture.options.volume_name_uid_length = Some(1);
    fixture.options.coordination = Coordination::None;
    outages.schedule(Verb::Watch, VOLUMES, [Outage::Silence]);
    let _running = fixture.start(1);
    fixture.until("the watch", || outages.requests_of(Verb::Watch, VOLUMES).len() == 1).await;
    // The claim's class does not exist yet.
    let name = fixture.claim("one", "late")[..5].to_owned();
    let uid = format!("{}0000000-0000-4000-8000-000000000000", &name[4..]);
    let claim = json!({"namespace": "default", "name": "gone", "uid": uid});
    fixture.released(&name, json!({"spec": {"claimRef": claim, "storageClassName": "late"}}));
    store.lock().owners.insert(name.clone(), "gone".to_owned());
    fixture.class("late", json!({}));
    fixture.until("bound", || fixture.is_bound("one") && fixture.entries().is_empty()).await;
    assert_eq!((fixture.calls.count("provision"), fixture.calls.count("delete")), (1, 1));
    assert_eq!(store.owners_and_mistakes(), (vec!["one".to_owned()], vec![]));
}

// Rules: G49, G70.
/// The volume of another provisioner may use the asset, so the attempt waits. The watch does not show it at first.
#[tokio::test(start_paused = true)]
async fn cleans_up_after_another_provisioners_volume_of_this_name_is_removed() {
    let fails = |_: Request| -> Answer<Volume, ProvisionError> {
        Box::pin(async { Err(ProvisionError::retry("the backend is busy")) })
    };
    let (outages, fixture) = Fixture::with_outages(Script { provision: Box::new(fails), ..Script::default() });
    outages.schedule(Verb::Watch, VOLUMES, [Outage::Silence]);
    let _running = fixture.start(1);
    let name = fixture.claim("data", "class");
    fixture.until("the call", || fixture.calls.count("provision") == 1).await;
    let annotations = json!({PROVISIONED_BY: "example.com/other"});
    fixture.released(&name, json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": null}}));
    fixture.delete(CLAIMS, "data");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((fixture.entries(), fixture.calls.count("clean_up")), (vec![name.clone()], 0));
    fixture.remove_volume(&name);
    fixture.until("the entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up"), 1);
}
