//! The guarantees for authors of provisioners, tested on a simulated cluster.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::protocol::{FINALIZER, PROVISIONED_BY, STORAGE_PROVISIONER};
use kube_provisioner::{Coordination, DeleteError, ProvisionError, StartError, Volume};
use kube_sim::{Actor, Actors, Cluster, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{Answer, CLAIMS, CLASSES, Fixture, PROVISIONER, Request, Script, VOLUMES, secret, volume};
use super::outages::{Outage, Outages};

fn flag() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let flag = Arc::new(AtomicBool::new(false));
    (flag.clone(), flag)
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

// Rules: S9, S10.
#[tokio::test(start_paused = true)]
async fn vetoed_claims_are_offered_again_with_every_resync() {
    let (willing, seen) = flag();
    let accepts = move |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
        claim.metadata.name.as_deref() != Some("vetoed") || is_set(&seen)
    };
    let fixture = Fixture::new(Script { accepts: Box::new(accepts), ..Script::default() });
    let _running = fixture.start(1);
    fixture.claim("vetoed", "class");
    fixture.claim("unknown-class-vetoed", "none");
    fixture.claim("accepted", "class");
    fixture.until("the accepted one is bound", || fixture.is_bound("accepted")).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((fixture.calls.count("provision vetoed"), fixture.events("vetoed")), (0, Vec::new()));
    willing.store(true, Ordering::Relaxed);
    let took = fixture.until("the vetoed one is bound", || fixture.is_bound("vetoed")).await;
    assert!(took <= fixture.options.resync_period, "{took:?}");
}

// Rules: G18.
#[tokio::test(start_paused = true)]
async fn a_panic_in_any_method_fails_only_that_attempt() {
    let accepts = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
        assert_ne!(claim.metadata.name.as_deref(), Some("crash"), "the author's veto crashes");
        true
    };
    let guard = |volume: kube_provisioner::ProvisionedVolume| -> BoxFuture<'static, Result<(), DeleteError>> {
        Box::pin(async move { panic!("the author's guard of {} crashes", volume.name) })
    };
    let script = Script { accepts: Box::new(accepts), should_delete: Box::new(guard), ..Script::default() };
    let fixture = Fixture::new(script);
    let _running = fixture.start(1);
    fixture.class("crashes", json!({"parameters": {"server": "crash"}}));
    fixture.claim("crash", "class");
    fixture.claim("of-a-bad-class", "crashes");
    let fine = fixture.claim("fine", "class");
    fixture.until("the other claim is bound", || fixture.is_bound("fine")).await;
    fixture.delete(CLAIMS, "fine");
    let has_event = |name: &str, text: &str| fixture.events(name).iter().any(|event| event.contains(text));
    fixture.until("the veto's crash is reported", || has_event("crash", "crashed in `accepts`")).await;
    fixture
        .until("the parser's crash is reported", || has_event("of-a-bad-class", "crashed in `Parameters::deserialize`"))
        .await;
    fixture.until("the guard's crash is reported", || has_event(&fine, "crashed in `should_delete`")).await;
    assert!(
        fixture.get(VOLUMES, &fine).unwrap()["metadata"]["deletionTimestamp"].is_null(),
        "the guard is called before the object is deleted"
    );
}

/// Returns calls that fail until the flag is set, and leave something in the backend.
fn fails_until(flag: Arc<AtomicBool>) -> Box<dyn Fn(Request) -> Answer<Volume, ProvisionError> + Send + Sync> {
    Box::new(move |request| {
        let flag = flag.clone();
        Box::pin(async move {
            if !is_set(&flag) {
                Err(std::io::Error::other("half of it is made"))?;
            }
            Ok(volume(&request.name))
        })
    })
}

/// Starts an attempt for a new claim, and kills the process. Returns the volume's name.
async fn abandoned_attempt(fixture: &Fixture, claim: &str) -> String {
    let process = fixture.start(1);
    let name = fixture.claim(claim, "class");
    fixture.until("it has failed", || !fixture.entries().is_empty()).await;
    process.abort();
    name
}

/// Replaces the class of the claim by one with another server.
fn replace_class(fixture: &Fixture) {
    fixture.delete(CLASSES, "class");
    fixture.class("class", json!({"parameters": {"server": "other"}}));
}

/// Returns the volume that an earlier request saves for a claim.
fn saved_volume(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "class",
            "nfs": {"server": "server", "path": format!("/{name}")},
            "claimRef": {"namespace": "default", "name": claim, "uid": name.trim_start_matches("pvc-")},
        },
    })
}

// Rules: G53.
#[tokio::test(start_paused = true)]
async fn failed_attempt_is_cleaned_up_when_its_claim_is_deleted() {
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let first = fixture.start(1);
    let name = fixture.claim("fails", "class");
    fixture.until("it has failed", || fixture.calls.count("provision fails") > 1).await;
    fixture.until("the failure is reported", || !fixture.events("fails").is_empty()).await;
    assert_eq!(fixture.entries(), [name.as_str()], "the attempt remains recorded");
    // Another process cleans it up.
    first.abort();
    fixture.delete(CLAIMS, "fails");
    let _second = fixture.start(2);
    fixture.until("it is cleaned up", || fixture.calls.count("clean_up fails") == 1).await;
    fixture.until("its entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("delete"), 0);
}

// Rules: G53.
#[tokio::test(start_paused = true)]
async fn keeps_the_asset_of_a_bound_claim_after_forced_volume_removal() {
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let name = abandoned_attempt(&fixture, "bound").await;
    // The volume was saved before the process ended.
    fixture.cluster.create(&saved_volume(&name, "bound")).unwrap();
    fixture.until("it is bound", || fixture.is_bound("bound")).await;
    fixture.remove_volume(&name);
    fixture.until("it is lost", || fixture.get(CLAIMS, "bound").unwrap()["status"]["phase"] == "Lost").await;
    let _second = fixture.start(2);
    fixture.until("its entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up") + fixture.calls.count("delete"), 0);
}

// Rules: G53.
#[tokio::test(start_paused = true)]
async fn keeps_the_asset_of_a_terminating_claim_after_forced_volume_removal() {
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let name = abandoned_attempt(&fixture, "bound").await;
    fixture.cluster.create(&saved_volume(&name, "bound")).unwrap();
    fixture.until("it is bound", || fixture.is_bound("bound")).await;
    let held_by = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    fixture.patch(CLAIMS, "bound", held_by(json!(["example.com/in-use"])));
    fixture.delete(CLAIMS, "bound");
    fixture.remove_volume(&name);
    let _second = fixture.start(2);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.calls.count("clean_up") + fixture.calls.count("delete"), 0);
    fixture.patch(CLAIMS, "bound", held_by(Value::Null));
    fixture.until("its entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up bound"), 1);
}

// Rules: G50.
/// While the next process reads the volume that it has listed, another claim's volume replaces that volume. The watch
/// is silent.
#[tokio::test(start_paused = true)]
async fn another_claims_volume_does_not_end_an_attempt() {
    let ((works, seen), outages) = (flag(), Outages::default());
    let cluster = Cluster::builder().hide_managed_fields().interceptor(Arc::new(outages.clone())).build();
    let script = Script { provision: fails_until(seen), ..Script::default() };
    let mut fixture = Fixture::with_actors(cluster, Actors::all().without(Actor::Binder), script);
    fixture.options.coordination = Coordination::None;
    let first = fixture.start(1);
    let asked = json!({"metadata": {"annotations": {STORAGE_PROVISIONER: PROVISIONER}}});
    let name = fixture.claim_with("one", "class", asked);
    fixture.until("it has failed", || !fixture.entries().is_empty()).await;
    first.abort();
    fixture.cluster.create(&saved_volume(&name, "one")).unwrap();
    outages.schedule(Verb::Watch, VOLUMES, [Outage::Silence, Outage::Silence]);
    outages.schedule(Verb::Get, VOLUMES, [Outage::Late(Duration::from_secs(5))]);
    let _second = fixture.start(2);
    fixture.until("it reads the volume", || outages.are_over()).await;
    fixture.remove_volume(&name);
    fixture.released(&name, json!({}));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.entries(), [name.as_str()]);
    works.store(true, Ordering::Relaxed);
    fixture.remove_volume(&name);
    fixture.until("it is saved", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.get(VOLUMES, &name).unwrap()["spec"]["claimRef"]["name"], "one");
    assert_eq!(fixture.calls.count("clean_up"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_claim_loses_its_annotation_is_reported() {
    let (works, seen) = flag();
    let cluster = Cluster::builder().hide_managed_fields().build();
    let script = Script { provision: fails_until(seen), ..Script::default() };
    let fixture = Fixture::with_actors(cluster, Actors::all().without(Actor::Binder), script);
    let _running = fixture.start(1);
    let naming = |name: Option<&str>| json!({"metadata": {"annotations": {STORAGE_PROVISIONER: name}}});
    fixture.claim_with("one", "class", naming(Some(PROVISIONER)));
    fixture.until("it has failed", || !fixture.entries().is_empty()).await;
    fixture.patch(CLAIMS, "one", naming(None));
    let is_reported = || fixture.events("one").iter().any(|text| text.contains("the claim names no provisioner"));
    fixture.until("it is reported", is_reported).await;
    works.store(true, Ordering::Relaxed);
    fixture.patch(CLAIMS, "one", naming(Some(PROVISIONER)));
    fixture.until("it is saved", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up"), 0);
}

// Rules: G53.
#[tokio::test(start_paused = true)]
async fn keeps_the_asset_of_a_volume_that_a_restored_claim_names() {
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let name = abandoned_attempt(&fixture, "restored").await;
    let mut copy = fixture.get(CLAIMS, "restored").unwrap();
    fixture.delete(CLAIMS, "restored");
    fixture.until("it is gone", || fixture.get(CLAIMS, "restored").is_none()).await;
    copy["metadata"] = json!({"name": "restored", "namespace": "default"});
    copy["spec"]["volumeName"] = json!(name);
    fixture.cluster.create(&copy).unwrap();
    let _second = fixture.start(2);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.calls.count("clean_up") + fixture.calls.count("delete"), 0);
    let is_reported = |text: &String| text.contains("a new claim of this name may need the volume");
    assert!(fixture.events("restored").iter().any(is_reported), "{:?}", fixture.events("restored"));
    fixture.delete(CLAIMS, "restored");
    fixture.until("its entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up restored"), 1);
}

// Rules: G53.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_left_nothing_is_removed_from_the_journal() {
    let provision = |_: Request| -> Answer<Volume, ProvisionError> {
        Box::pin(async { Err(ProvisionError::nothing_left("the pool is full")) })
    };
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    let _running = fixture.start(1);
    fixture.claim("full", "class");
    fixture.until("it has failed", || fixture.calls.count("provision full") > 3).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.entries(), Vec::<String>::new());
    fixture.delete(CLAIMS, "full");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.calls.count("clean_up"), 0);
}

// Rules: G49.
#[tokio::test(start_paused = true)]
async fn a_claim_continues_with_a_recreated_class() {
    let servers = Arc::new(Mutex::new(Vec::new()));
    let seen = servers.clone();
    let provision = move |request: Request| -> Answer<Volume, ProvisionError> {
        seen.lock().unwrap().push(request.parameters.server.clone());
        Box::pin(async move {
            match request.parameters.server.as_str() {
                "right" => Ok(volume(&request.name)),
                _ => Err(ProvisionError::retry("there is no such server")),
            }
        })
    };
    let cleaned = Arc::new(Mutex::new(Vec::new()));
    let seen = cleaned.clone();
    let clean_up = move |attempt: Request| -> BoxFuture<'static, Result<(), DeleteError>> {
        seen.lock().unwrap().push(attempt.parameters.server.clone());
        Box::pin(async { Ok(()) })
    };
    let script = Script { provision: Box::new(provision), clean_up: Box::new(clean_up), ..Script::default() };
    let fixture = Fixture::new(script);
    let _running = fixture.start(1);
    fixture.class("typo", json!({"parameters": {"server": "wrong"}}));
    fixture.claim("waits", "typo");
    fixture.until("it has failed", || fixture.calls.count("provision waits") > 1).await;
    fixture.delete(CLASSES, "typo");
    let has_event = || {
        fixture
            .events("waits")
            .iter()
            .any(|event| event.contains("which no longer exists") && event.contains("journal drop"))
    };
    fixture.until("the event reports the deleted class", has_event).await;
    fixture.class("typo", json!({"parameters": {"server": "right"}}));
    fixture.until("it is bound", || fixture.is_bound("waits")).await;
    assert_eq!(*cleaned.lock().unwrap(), ["wrong"], "the parameters with which the attempt began");
}

// Rules: G49.
#[tokio::test(start_paused = true)]
async fn an_attempt_is_cleaned_up_when_its_claim_changes_provisioner() {
    const OTHER: &str = "example.com/other";
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let _running = fixture.start(1);
    fixture.claim("turns", "class");
    fixture.until("it has failed", || fixture.calls.count("provision turns") > 1).await;
    // Set the annotations as kube-controller-manager does for the new class.
    let names = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
    let asked: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), json!(OTHER))).into_iter().collect();
    fixture.delete(CLASSES, "class");
    fixture.class("class", json!({"provisioner": OTHER}));
    fixture.patch(CLAIMS, "turns", json!({"metadata": {"annotations": asked}}));
    fixture.until("its entry is removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up turns"), 1);
    assert!(!fixture.is_bound("turns") && fixture.get(CLAIMS, "turns").is_some());
}

// Rules: G49.
#[tokio::test(start_paused = true)]
async fn waits_for_late_saves_before_cleaning_up_an_attempt() {
    let (_, never) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(never), ..Script::default() });
    let name = abandoned_attempt(&fixture, "late").await;
    replace_class(&fixture);
    let _second = fixture.start(2);
    sleep(Duration::from_secs(60)).await;
    fixture.cluster.create(&saved_volume(&name, "late")).unwrap();
    fixture.until("the attempt has ended", || fixture.entries().is_empty()).await;
    fixture.until("it is bound", || fixture.is_bound("late")).await;
    assert_eq!(fixture.calls.count("clean_up"), 0);
}

// Rules: G49.
#[tokio::test(start_paused = true)]
async fn an_attempt_with_a_replaced_class_is_cleaned_up_after_a_restart() {
    let (works, seen) = flag();
    let fixture = Fixture::new(Script { provision: fails_until(seen), ..Script::default() });
    abandoned_attempt(&fixture, "typo").await;
    replace_class(&fixture);
    works.store(true, Ordering::Relaxed);
    let _second = fixture.start(2);
    fixture.until("it is bound", || fixture.is_bound("typo")).await;
    assert_eq!(fixture.calls.count("clean_up typo"), 1);
}

// Rules: G54.
#[tokio::test(start_paused = true)]
async fn should_delete_can_keep_object_and_asset() {
    let (free, seen) = flag();
    let guard = move |_| -> BoxFuture<'static, Result<(), DeleteError>> {
        let free = is_set(&seen);
        Box::pin(async move { if free { Ok(()) } else { Err(DeleteError::in_use("two snapshots need it")) } })
    };
    let fixture = Fixture::new(Script { should_delete: Box::new(guard), ..Script::default() });
    let _running = fixture.start(1);
    let name = fixture.claim("kept", "class");
    fixture.until("it is bound", || fixture.is_bound("kept")).await;
    fixture.delete(CLAIMS, "kept");
    let has_event = || fixture.events(&name).iter().any(|event| event == "Normal VolumeDelete: two snapshots need it");
    fixture.until("the guard's reason is reported", has_event).await;
    let kept = fixture.get(VOLUMES, &name).unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null() && fixture.calls.count("delete ") == 0);
    // If the policy changes to Retain in time, the volume is not deleted.
    fixture.patch(VOLUMES, &name, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    free.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(900)).await;
    assert!(fixture.get(VOLUMES, &name).is_some() && fixture.calls.count("delete ") == 0);
    fixture.patch(VOLUMES, &name, json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    fixture.until("it is gone", || fixture.get(VOLUMES, &name).is_none()).await;
}

// Rules: G47.
#[tokio::test(start_paused = true)]
async fn keeps_the_object_when_its_policy_becomes_retain_during_deletion() {
    let (works, seen) = flag();
    let delete = move |_| -> BoxFuture<'static, Result<(), DeleteError>> {
        let works = is_set(&seen);
        Box::pin(async move { if works { Ok(()) } else { Err(DeleteError::retry("half of it is gone")) } })
    };
    let fixture = Fixture::new(Script { delete: Box::new(delete), ..Script::default() });
    let _running = fixture.start(1);
    let name = fixture.claim("kept", "class");
    fixture.until("it is bound", || fixture.is_bound("kept")).await;
    fixture.delete(CLAIMS, "kept");
    fixture.until("its deletion has begun", || fixture.calls.count("delete ") > 0).await;
    fixture.patch(VOLUMES, &name, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    let has_event = || fixture.events(&name).iter().any(|event| event.contains("became Retain after its deletion"));
    fixture.until("the change is reported", has_event).await;
    let calls = fixture.calls.count("delete ");
    sleep(Duration::from_secs(1800)).await;
    assert!(fixture.get(VOLUMES, &name).is_some());
    assert_eq!(fixture.calls.count("delete "), calls);
    works.store(true, Ordering::Relaxed);
    fixture.patch(VOLUMES, &name, json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    fixture.until("it is gone", || fixture.get(VOLUMES, &name).is_none()).await;
}

// Rules: G55.
#[tokio::test(start_paused = true)]
async fn start_receives_the_existing_volumes() {
    let known = Arc::new(Mutex::new(Vec::new()));
    let (ready, seen) = flag();
    let names = known.clone();
    let start = move |start: kube_provisioner::StartContext| -> BoxFuture<'static, Result<(), StartError>> {
        let (names, ready) = (names.clone(), is_set(&seen));
        Box::pin(async move {
            if !ready {
                return Err(StartError::new("the gids cannot be restored"));
            }
            let volumes = start.volumes().await?;
            names.lock().unwrap().extend(volumes.iter().map(|volume| volume.name.clone()));
            Ok(())
        })
    };
    let fixture = Fixture::new(Script { start: Box::new(start), ..Script::default() });
    let mut expected = Vec::new();
    for index in 0..3 {
        let (by, name) =
            (if index == 2 { "example.com/other" } else { "example.com/fixture" }, format!("static-{index}"));
        fixture.cluster.create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": by}},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/p"}},
        })).unwrap();
        expected.extend((index != 2).then_some(name));
    }
    fixture.claim("waits", "class");
    let _running = fixture.start(1);
    let has_event = || fixture.events("waits").iter().any(|event| event.contains("the provisioner cannot work"));
    fixture.until("the claim reports why it waits", has_event).await;
    assert_eq!(fixture.calls.count("provision"), 0);
    ready.store(true, Ordering::Relaxed);
    fixture.until("it is bound", || fixture.is_bound("waits")).await;
    assert_eq!(*known.lock().unwrap(), expected);
}

// Rules: G56.
#[tokio::test(start_paused = true)]
async fn secrets_reach_only_the_author() {
    let got = Arc::new(Mutex::new(Vec::new()));
    let seen = got.clone();
    let provision = move |request: Request| -> Answer<Volume, ProvisionError> {
        seen.lock().unwrap().push(format!("provision {:?}", request.secrets.text("admin", "password")));
        Box::pin(async move { Ok(volume(&request.name)) })
    };
    let seen = got.clone();
    let delete = move |volume: kube_provisioner::ProvisionedVolume| -> BoxFuture<'static, Result<(), DeleteError>> {
        seen.lock().unwrap().push(format!("delete {:?}", volume.secrets.text("admin", "password")));
        Box::pin(async { Ok(()) })
    };
    let script = Script { provision: Box::new(provision), delete: Box::new(delete), ..Script::default() };
    let fixture = Fixture::new(script);
    let _running = fixture.start(1);
    let names =
        json!({"parameters": {"adminSecretName": "${pvc.name}-key", "adminSecretNamespace": "${pvc.namespace}"}});
    fixture.class("secret", names);
    let name = fixture.claim("data", "secret");
    let has_event = || {
        fixture.events("data").iter().any(|event| {
            event.contains("the Secret default/data-key does not exist")
                || event.contains("The Secret default/data-key does not exist")
        })
    };
    fixture.until("the missing Secret is reported", has_event).await;
    fixture.cluster.create(&secret("data-key", &[("password", "open sesame")])).unwrap();
    fixture.until("it is bound", || fixture.is_bound("data")).await;
    fixture.delete("storageclasses", "secret");
    fixture.delete(CLAIMS, "data");
    fixture.until("it is gone", || fixture.get(VOLUMES, &name).is_none()).await;
    assert_eq!(*got.lock().unwrap(), ["provision Some(\"open sesame\")", "delete Some(\"open sesame\")"]);
    let everything = format!("{:?}", fixture.cluster.list("", "events", None).unwrap());
    assert!(!everything.contains("sesame"));
}

// Rules: G57.
#[tokio::test(start_paused = true)]
async fn every_call_of_an_attempt_receives_the_same_request() {
    let got = Arc::new(Mutex::new(Vec::new()));
    let (seen, calls) = (got.clone(), AtomicUsize::new(0));
    let provision = move |request: Request| -> Answer<Volume, ProvisionError> {
        seen.lock().unwrap().push((request.idempotency_token.clone(), request.claim.clone(), request.class.clone()));
        let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
        Box::pin(async move {
            if first {
                std::future::pending::<()>().await;
            }
            Ok(volume(&request.name))
        })
    };
    let fixture = Fixture::new(Script { provision: Box::new(provision), ..Script::default() });
    let owner = fixture
        .cluster
        .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "db", "namespace": "default"}}));
    let metadata = json!({
        "annotations": {"example.com/read": "yes", "example.com/unread": "no"}, "labels": {"app": "db"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "db", "uid": owner.unwrap()["metadata"]["uid"]}],
    });
    fixture.claim_with("data", "class", json!({"metadata": metadata}));
    let first = fixture.start(1);
    fixture.until("it is begun", || fixture.calls.count("provision") == 1).await;
    first.abort();
    let _second = fixture.start(2);
    fixture.until("it is bound", || fixture.is_bound("data")).await;
    let got = got.lock().unwrap();
    assert_eq!((got.len(), &got[0]), (2, &got[1]));
    let claim = &got[0].1.metadata;
    let annotations = claim.annotations.as_ref().unwrap();
    assert_eq!(annotations.get("example.com/read").map(String::as_str), Some("yes"));
    assert!(!annotations.contains_key("example.com/unread"));
    assert!(claim.creation_timestamp.is_some() && claim.owner_references.as_ref().is_some_and(|all| all.len() == 1));
    assert!(annotations.contains_key("volume.kubernetes.io/storage-provisioner"));
}

// Rules: G58.
#[tokio::test(start_paused = true)]
async fn a_data_source_for_a_populator_is_not_a_failure() {
    let fixture = Fixture::new(Script::default());
    let _running = fixture.start(1);
    fixture.cluster.create(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "filled", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "class", "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"apiGroup": "example.com", "kind": "Backup", "name": "monday"},
        },
    })).unwrap();
    let has_event = || {
        fixture
            .events("filled")
            .iter()
            .any(|event| event.starts_with("Normal Provisioning: waiting for a volume populator"))
    };
    fixture.until("a populator is expected", has_event).await;
    assert_eq!(fixture.calls.count("provision"), 0);
}

// Rules: G44.
#[tokio::test(start_paused = true)]
async fn a_released_volume_of_a_removed_node_is_reported_once() {
    let mut fixture = Fixture::new(Script::default());
    fixture.cluster.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "there"}})).unwrap();
    for node in ["gone", "there"] {
        let change = json!({"metadata": {"annotations": {"kube-provisioner/identity": node}, "finalizers": null}});
        fixture.released(&format!("of-{node}"), change);
    }
    fixture.options.coordination = Coordination::PerNode;
    for (number, node) in [(1, "node-1"), (2, "node-2")] {
        fixture.options.node_name = Some(node.to_owned());
        drop(fixture.start(number));
    }
    let took = fixture.until("it is reported", || !fixture.events("of-gone").is_empty()).await;
    assert!(took >= Duration::from_secs(300), "reported before the node's own replica had time to act: {took:?}");
    sleep(Duration::from_secs(3600)).await;
    let texts = fixture.events("of-gone");
    assert!(texts.len() == 1 && texts[0].contains("which no longer exists"), "expected one report: {texts:?}");
    assert!(fixture.events("of-there").is_empty() && fixture.calls.count("delete") == 0);
}
