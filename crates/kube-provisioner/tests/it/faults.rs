//! An API server that hangs, falls silent, refuses requests, or loses its answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::protocol::SELECTED_NODE;
use kube_provisioner::{CancellationToken, ProvisionError, Volume};
use kube_sim::Verb::{self, Create, Delete, List, Patch, Update, Watch};
use kube_sim::{Actor, Actors, Cluster, Pace, PatchKind, Subresource, Target};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::{CLAIMS, CLASSES, Fixture, PROVISIONER, Request, Script, VOLUMES, volume};
use super::nodes::{claim as claim_on, put_node, selected};
use super::outages::Outage::{self, Busy, DropAnswer, Hang, Late, Lose, Refuse, Silence};
use super::outages::Outages;

const EVENTS: &str = "events";
const CONFIG_MAPS: &str = "configmaps";
/// The resources that the controller watches.
const WATCHED: [&str; 3] = [CLAIMS, VOLUMES, CLASSES];

const SECOND: Duration = Duration::from_secs(1);
/// The time limit of one call.
const LIMIT: Duration = Duration::from_secs(30);
/// Longer than any pause before the second attempt.
const PAUSE: Duration = Duration::from_secs(2);

/// The claim `no-room` needs another node; all other calls succeed immediately.
fn fixture() -> (Outages, Fixture) {
    let provision = |request: Request| -> BoxFuture<'static, Result<Volume, ProvisionError>> {
        Box::pin(async move {
            match request.claim.metadata.name.as_deref() {
                Some("no-room") => Err(ProvisionError::reschedule("no room on this node")),
                _ => Ok(volume(&request.name)),
            }
        })
    };
    let (outages, fixture) = Fixture::with_outages(Script { provision: Box::new(provision), ..Script::default() });
    fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    put_node(&fixture, "node");
    (outages, fixture)
}

/// Creates a volume to delete, and waits until the binder has set its phase.
async fn released(fixture: &Fixture, name: &str) {
    fixture.released(name, json!({}));
    fixture.until("released", || fixture.get(VOLUMES, name).unwrap()["status"]["phase"] == "Released").await;
}

async fn until_bound(fixture: &Fixture, claim: &str) -> Duration {
    fixture.until(claim, || fixture.is_bound(claim)).await
}

async fn until_gone(fixture: &Fixture, volume: &str) -> Duration {
    fixture.until(volume, || fixture.get(VOLUMES, volume).is_none()).await
}

fn volumes(fixture: &Fixture) -> usize {
    fixture.cluster.list_stored("", VOLUMES, None).unwrap().len()
}

/// Returns the name of the object of each of our events with this reason.
fn named_in_events(fixture: &Fixture, reason: &str) -> Vec<String> {
    let events = fixture.cluster.list("", EVENTS, None).unwrap();
    let ours = events.iter().filter(|event| event["reportingComponent"] == PROVISIONER && event["reason"] == reason);
    ours.map(|event| event["involvedObject"]["name"].as_str().unwrap().to_owned()).collect()
}

// Rules: G78.
#[tokio::test(start_paused = true)]
async fn a_refused_write_is_retried_within_a_minute() {
    for (verb, resource) in [(Create, VOLUMES), (Patch, VOLUMES), (Delete, VOLUMES), (Create, CONFIG_MAPS)] {
        let (outages, fixture) = fixture();
        outages.schedule(verb, resource, [Refuse(403); 12]);
        released(&fixture, "old").await;
        let _running = fixture.start(1);
        fixture.claim("a", "class");
        until_bound(&fixture, "a").await;
        until_gone(&fixture, "old").await;
        let all: Vec<_> = outages.requests_of(verb, resource).iter().map(|asked| asked.at).collect();
        assert_eq!(all.len(), 13, "{verb:?} {resource}");
        let pauses: Vec<_> = all.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(pauses.iter().all(|pause| *pause <= 61 * SECOND), "{verb:?} {resource}: {pauses:?}");
        assert!(pauses[5..].iter().all(|pause| *pause >= 7 * SECOND), "{verb:?} {resource}: {pauses:?}");
    }
}

// Rules: G79.
#[tokio::test(start_paused = true)]
async fn refused_and_expired_events_are_sent_again() {
    let (outages, fixture) = fixture();
    outages.schedule(Create, EVENTS, [Refuse(403)]);
    let _running = fixture.start(1);
    fixture.class("wrong", json!({"parameters": {"sever": "a"}}));
    fixture.claim("a", "wrong");
    sleep(40 * 60 * SECOND).await;
    assert_eq!(named_in_events(&fixture, "ProvisioningFailed"), [""; 0]);
    sleep(150 * 60 * SECOND).await;
    assert_eq!(named_in_events(&fixture, "ProvisioningFailed"), ["a"; 4]);
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn a_hanging_list_is_cancelled_and_repeated() {
    for resource in WATCHED {
        let (outages, fixture) = fixture();
        fixture.claim("a", "class");
        outages.schedule(List, resource, [Hang]);
        let running = fixture.start(1);
        let took = until_bound(&fixture, "a").await;
        assert!((LIMIT..LIMIT + PAUSE).contains(&took), "{resource}: {took:?}");
        running.abort();
    }
}

/// Checks that the controller acts after this time on changes that the watch does not show.
async fn recovers_after(resource: &'static str, outage: Outage, limit: Duration) {
    let (outages, fixture) = fixture();
    let retained = json!({"metadata": {"finalizers": null}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    fixture.released("old", retained);
    sleep(SECOND).await;
    outages.schedule(Watch, resource, [outage]);
    let running = fixture.start(1);
    sleep(SECOND).await;
    assert!(outages.are_over(), "the watch of {resource} began");
    fixture.class("class-2", json!({}));
    fixture.claim("a", "class");
    fixture.claim("b", "class-2");
    fixture.patch(VOLUMES, "old", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    let all = || fixture.is_bound("a") && fixture.is_bound("b") && fixture.get(VOLUMES, "old").is_none();
    let took = SECOND + fixture.until("all work is done", all).await;
    assert!((limit..limit + PAUSE).contains(&took), "{resource}: {took:?}");
    let calls = ["provision a", "provision b", "delete old"].map(|call| fixture.calls.count(call));
    assert_eq!(calls, [1, 1, 1], "{resource}");
    running.abort();
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn recovers_from_a_watch_whose_start_hangs() {
    for resource in WATCHED {
        recovers_after(resource, Hang, 15 * SECOND).await;
    }
}

// Rules: G25.
#[tokio::test(start_paused = true)]
async fn recovers_from_a_silent_watch() {
    recovers_after(CLASSES, Silence, 65 * SECOND).await;
    // The controller looks up the claim of the volume to delete, and the claim no longer exists.
    recovers_after(CLAIMS, Silence, 5 * SECOND).await;
    // The watch lags behind the response to the save of the volume for `a`.
    recovers_after(VOLUMES, Silence, 5 * SECOND).await;
}

// Rules: G25.
/// The controller saves nothing here, but the volume to delete no longer exists.
#[tokio::test(start_paused = true)]
async fn a_watch_that_misses_the_deletion_of_a_volume_is_restarted() {
    let (outages, fixture) = fixture();
    released(&fixture, "old").await;
    outages.schedule(Delete, VOLUMES, [Busy(3)]);
    outages.schedule(Watch, VOLUMES, [Silence]);
    let _running = fixture.start(1);
    sleep(SECOND).await;
    fixture.remove_volume("old");
    fixture.released("next", json!({}));
    let took = SECOND + until_gone(&fixture, "next").await;
    assert!(outages.are_over());
    // For up to 5.5 s of this time, the controller sends no requests to the busy server.
    assert!(took < 12 * SECOND, "{took:?}");
}

// Rules: G27.
/// The asset is deleted, but the conflict does not mean that the object is deleted as well.
#[tokio::test(start_paused = true)]
async fn volume_deletion_is_retried_after_a_conflict() {
    let (outages, fixture) = fixture();
    fixture.released("bare", json!({"metadata": {"finalizers": null}}));
    outages.schedule(Delete, VOLUMES, [Refuse(409)]);
    let _running = fixture.start(1);
    until_gone(&fixture, "bare").await;
    assert!(outages.are_over());
    assert_eq!(fixture.calls.count("delete bare"), 1);
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn provision_receives_changes_made_while_its_attempt_is_recorded() {
    let nodes = Arc::new(Mutex::new(Vec::new()));
    let seen = nodes.clone();
    let provision = move |request: Request| -> BoxFuture<'static, Result<Volume, ProvisionError>> {
        seen.lock().unwrap().push(request.selected_node.clone());
        Box::pin(async move { Ok(volume(&request.name)) })
    };
    let (outages, fixture) = Fixture::with_outages(Script { provision: Box::new(provision), ..Script::default() });
    fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    ["first", "second"].iter().for_each(|node| put_node(&fixture, node));
    let _running = fixture.start(1);
    fixture.until("the journal exists", || fixture.get(CONFIG_MAPS, "example.com-fixture-journal").is_some()).await;
    outages.schedule(Update, CONFIG_MAPS, [Late(5 * SECOND)]);
    claim_on(&fixture, "a", "first");
    fixture.until("the attempt is being recorded", || outages.are_over()).await;
    fixture.patch(CLAIMS, "a", json!({"metadata": {"annotations": {SELECTED_NODE: "second"}}}));
    until_bound(&fixture, "a").await;
    assert_eq!(*nodes.lock().unwrap(), [Some("second".to_owned())]);
}

// Rules: G25.
/// The watch of claims does not show that the scheduler was asked for another node.
#[tokio::test(start_paused = true)]
async fn a_revoked_node_is_not_used_again() {
    for lost in [None, Some(DropAnswer)] {
        let (outages, fixture) = fixture();
        claim_on(&fixture, "no-room", "node");
        // The binder has set the provisioner's annotation.
        sleep(SECOND).await;
        outages.schedule(Watch, CLAIMS, [Silence]);
        outages.schedule(Patch, CLAIMS, lost);
        let running = fixture.start(1);
        fixture.until("the node is revoked", || selected(&fixture, "no-room").is_none()).await;
        fixture.patch(CLASSES, "late", json!({"metadata": {"labels": {"touched": "yes"}}}));
        sleep(50 * SECOND).await;
        assert!(outages.are_over());
        assert_eq!(fixture.calls.count("provision no-room"), 1);
        running.abort();
    }
}

// Rules: G27.
#[tokio::test(start_paused = true)]
async fn node_revocation_is_retried_soon_after_a_refusal() {
    let (outages, fixture) = fixture();
    outages.schedule(Patch, CLAIMS, [Refuse(409); 3]);
    claim_on(&fixture, "no-room", "node");
    let _running = fixture.start(1);
    let took = fixture.until("the node is revoked", || selected(&fixture, "no-room").is_none()).await;
    assert!(outages.are_over() && took < 10 * SECOND, "{took:?}");
    let events = fixture.events("no-room").join(" ");
    assert!(events.contains("Asking the scheduler for another node: "), "{events}");
}

// Rules: G25.
/// The watch of claims does not show that the claim and its volume were deleted and that another claim has the name.
#[tokio::test(start_paused = true)]
async fn distinguishes_a_new_claim_from_a_deleted_namesake() {
    let (outages, fixture) = fixture();
    let first = fixture.claim("a", "class");
    sleep(SECOND).await;
    outages.schedule(Watch, CLAIMS, [Silence]);
    let _running = fixture.start(1);
    let started = Instant::now();
    fixture.until("the volume is saved", || fixture.get(VOLUMES, &first).is_some()).await;
    assert!(outages.are_over());
    fixture.delete(CLAIMS, "a");
    fixture.until("the claim is gone", || fixture.get(CLAIMS, "a").is_none()).await;
    let another = fixture.claim("a", "class");
    fixture.remove_volume(&first);
    sleep(10 * SECOND).await;
    assert!(outages.requests() < 50, "{} requests", outages.requests());
    until_bound(&fixture, "a").await;
    assert!(started.elapsed() < 65 * SECOND + PAUSE, "{:?}", started.elapsed());
    assert!(fixture.get(VOLUMES, &another).is_some());
    assert_eq!(fixture.calls.count("provision a"), 2);
}

// Rules: G46.
#[tokio::test(start_paused = true)]
async fn refused_volume_is_cleaned_up_once_its_claim_does_not_need_it() {
    for is_deleted in [true, false] {
        let (outages, fixture) = fixture();
        outages.schedule(Create, VOLUMES, [Refuse(403); 1000]);
        fixture.claim("a", "class");
        let running = fixture.start(1);
        let is_refused = || {
            fixture.events("a").iter().any(|text| text.contains("created, but its PersistentVolume is not saved yet"))
        };
        fixture.until("it is refused", is_refused).await;
        if is_deleted {
            fixture.delete(CLAIMS, "a");
        } else {
            fixture.patch(CLAIMS, "a", json!({"spec": {"volumeName": "other"}}));
        }
        fixture.until("it is cleaned up", || fixture.calls.count("clean_up a") == 1).await;
        fixture.until("the attempt ends", || fixture.entries().is_empty()).await;
        assert_eq!(volumes(&fixture), 0);
        running.abort();
    }
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn a_hanging_save_delays_no_other_claim() {
    let (outages, fixture) = fixture();
    outages.schedule(Create, VOLUMES, [Hang]);
    fixture.claim("slow", "class");
    let _running = fixture.start(1);
    let started = Instant::now();
    fixture.until("the save began", || outages.are_over()).await;
    for claim in ["a", "b", "c"] {
        fixture.claim(claim, "class");
        assert!(until_bound(&fixture, claim).await < PAUSE);
    }
    until_bound(&fixture, "slow").await;
    assert!((LIMIT..LIMIT + PAUSE).contains(&started.elapsed()), "{:?}", started.elapsed());
    assert_eq!(fixture.calls.count("provision slow"), 1, "a repeated save does not repeat the call");
    let texts = |reason: &str| -> Vec<String> {
        fixture.events("slow").into_iter().filter(|text| text.contains(reason)).collect()
    };
    fixture.until("it has its event", || !texts("ProvisioningSucceeded").is_empty()).await;
    let warnings = texts("ProvisioningFailed");
    assert!(warnings[0].contains("created, but its PersistentVolume is not saved yet"), "{warnings:?}");
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn a_hanging_deletion_delays_no_other_volume() {
    for verb in [Delete, Patch] {
        let (outages, fixture) = fixture();
        outages.schedule(verb, VOLUMES, [Hang]);
        released(&fixture, "slow").await;
        let running = fixture.start(1);
        let started = Instant::now();
        fixture.until("the deletion began", || outages.are_over()).await;
        fixture.released("quick", json!({}));
        assert!(until_gone(&fixture, "quick").await < PAUSE, "{verb:?}");
        until_gone(&fixture, "slow").await;
        assert!((LIMIT..LIMIT + PAUSE).contains(&started.elapsed()), "{verb:?}: {:?}", started.elapsed());
        assert_eq!(["delete quick", "delete slow"].map(|call| fixture.calls.count(call)), [1, 1], "{verb:?}");
        running.abort();
    }
}

// Rules: G24.
#[tokio::test(start_paused = true)]
async fn hanging_events_delay_no_work_and_arrive_later() {
    let (outages, fixture) = fixture();
    outages.schedule(Create, EVENTS, [Hang; 16]);
    let mut claims: Vec<String> = (0..40).map(|at| format!("claim-{at}")).collect();
    claims.iter().for_each(|claim| drop(fixture.claim(claim, "class")));
    let _running = fixture.start(1);
    let took = fixture.until("all are bound", || claims.iter().all(|claim| fixture.is_bound(claim))).await;
    assert!(took < PAUSE, "{took:?}");
    let named = || named_in_events(&fixture, "ProvisioningSucceeded");
    let took = took + fixture.until("all have events", || named().len() == claims.len()).await;
    assert!(took < LIMIT && outages.are_over(), "{took:?}");
    let mut named = named();
    named.sort();
    claims.sort();
    assert_eq!(named, claims);
}

/// Creates work for every kind of write by the controller.
fn all_kinds_of_work(fixture: &Fixture) -> String {
    fixture.claim_with("no-room", "class", json!({"metadata": {"annotations": {SELECTED_NODE: "node"}}}));
    fixture.released("old", json!({}));
    fixture.claim("a", "class")
}

/// Waits for the expected final state, which does not depend on earlier failures.
async fn until_all_is_done(fixture: &Fixture) {
    until_bound(fixture, "a").await;
    until_gone(fixture, "old").await;
    fixture.until("the node is revoked", || selected(fixture, "no-room").is_none()).await;
    let has_event = || fixture.events("no-room").iter().any(|text| text.contains("ProvisioningFailed"));
    fixture.until("it has its event", has_event).await;
}

fn calls(fixture: &Fixture) -> [usize; 2] {
    ["provision a", "delete old"].map(|call| fixture.calls.count(call))
}

/// All kinds of requests that change objects.
const WRITES: [(Verb, &str); 5] =
    [(Create, VOLUMES), (Delete, VOLUMES), (Patch, VOLUMES), (Patch, CLAIMS), (Create, EVENTS)];

// Rules: G26.
#[tokio::test(start_paused = true)]
async fn honors_the_pause_that_a_busy_server_requests() {
    for (verb, resource) in WRITES {
        let (outages, fixture) = fixture();
        outages.schedule(verb, resource, [Busy(60)]);
        all_kinds_of_work(&fixture);
        if (verb, resource) == (Patch, VOLUMES) {
            // Deleting the volume ends the pause early, since it is a relevant change in the watch.
            fixture.delete(VOLUMES, "old");
        }
        let running = fixture.start(1);
        let started = Instant::now();
        let asked = || -> Vec<Duration> {
            outages.requests_of(verb, resource).iter().map(|asked| asked.at.duration_since(started)).collect()
        };
        fixture.until("the server was busy", || outages.are_over()).await;
        sleep(59 * SECOND).await;
        // Events of several claims are sent as concurrent requests.
        assert!(asked().iter().all(|at| *at < SECOND), "{verb:?} {resource}: {:?}", asked());
        until_all_is_done(&fixture).await;
        fixture.until("the server is asked again", || asked().iter().any(|at| *at >= SECOND)).await;
        let last = *asked().last().unwrap();
        assert!((60 * SECOND..80 * SECOND).contains(&last), "{verb:?} {resource}: {last:?}");
        assert_eq!(calls(&fixture), [1, 1], "{verb:?} {resource}");
        running.abort();
    }
}

// Rules: G26.
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_flooded() {
    for (verb, resource) in WRITES {
        let (outages, fixture) = fixture();
        outages.schedule(verb, resource, [Busy(1); 2_000]);
        all_kinds_of_work(&fixture);
        let running = fixture.start(1);
        sleep(60 * SECOND).await;
        let asked = outages.requests_of(verb, resource).len();
        assert!((2..=70).contains(&asked), "{verb:?} {resource}: {asked} requests in a minute");
        assert!(outages.requests() < 400, "{verb:?} {resource}: {} requests in a minute", outages.requests());
        assert!(matches!(calls(&fixture), [1, 0 | 1]), "{verb:?} {resource}");
        running.abort();
    }
}

// Rules: G27.
#[tokio::test(start_paused = true)]
async fn refused_writes_are_retried_without_calling_the_author_again() {
    let refusals: [&[Outage]; 4] = [&[Refuse(500); 3], &[Refuse(503)], &[Refuse(409)], &[Refuse(409), Refuse(500)]];
    for (verb, resource) in WRITES {
        for refusals in refusals {
            // A new event conflicts only with an event of the same name, which is the same event.
            if resource == EVENTS && refusals.contains(&Refuse(409)) {
                continue;
            }
            let (outages, fixture) = fixture();
            outages.schedule(verb, resource, refusals.iter().copied());
            all_kinds_of_work(&fixture);
            let running = fixture.start(1);
            until_all_is_done(&fixture).await;
            let case = format!("{verb:?} {resource} {refusals:?}");
            assert!(outages.are_over(), "{case}");
            assert_eq!((calls(&fixture), volumes(&fixture)), ([1, 1], 1), "{case}");
            running.abort();
        }
    }
}

// Rules: G28.
#[tokio::test(start_paused = true)]
async fn lost_responses_do_not_duplicate_work() {
    for (verb, resource) in WRITES {
        for outage in [Lose(504), Lose(500), DropAnswer] {
            let (outages, fixture) = fixture();
            outages.schedule(verb, resource, [outage]);
            let volume = all_kinds_of_work(&fixture);
            let running = fixture.start(1);
            until_all_is_done(&fixture).await;
            // Wait for any late requests.
            sleep(60 * SECOND).await;
            let case = format!("{verb:?} {resource} {outage:?}");
            assert!(outages.are_over(), "{case}");
            assert_eq!((calls(&fixture), volumes(&fixture)), ([1, 1], 1), "{case}");
            assert!(fixture.get(VOLUMES, &volume).is_some(), "{case}");
            let named = named_in_events(&fixture, "ProvisioningSucceeded");
            assert_eq!(named.iter().filter(|name| *name == "a").count(), 1, "{case}");
            running.abort();
        }
    }
}

// Rules: G35.
/// Events wait while keys are ready, and keys stay ready when the controller stops under load.
#[tokio::test(start_paused = true)]
async fn stopping_under_load_sends_the_event_of_every_saved_volume() {
    let (outages, fixture) = fixture();
    let claims: Vec<String> = (0..400).map(|at| format!("claim-{at}")).collect();
    claims.iter().for_each(|claim| drop(fixture.claim(claim, "class")));
    outages.schedule(Create, VOLUMES, [Late(SECOND / 10); 400]);
    // Sent sequentially, they would exceed the time that a stopping controller has for its last events.
    outages.schedule(Create, EVENTS, [Late(SECOND / 5); 400]);
    let stop = CancellationToken::new();
    let running = tokio::spawn(fixture.controller().run_with(fixture.cluster.client("ours"), stop.clone()));
    fixture.until("a quarter is done", || volumes(&fixture) >= 100).await;
    let named = || named_in_events(&fixture, "ProvisioningSucceeded");
    assert!(volumes(&fixture) < 400 && named().len() < 50, "most events are not sent yet");
    stop.cancel();
    running.await.unwrap().unwrap();
    assert!(volumes(&fixture) < 400);
    let (mut named, mut bound) = (named(), claims);
    bound.retain(|claim| fixture.is_bound(claim));
    named.sort();
    bound.sort();
    assert_eq!(named, bound);
}

/// While a journal entry is written, no other request is in progress for a moment.
#[tokio::test(start_paused = true)]
async fn no_event_is_sent_until_all_volumes_are_saved() {
    let (outages, fixture) = fixture();
    let claims = (0..400).map(|at| format!("claim-{at}"));
    claims.for_each(|claim| drop(fixture.claim(&claim, "class")));
    outages.schedule(Update, CONFIG_MAPS, [Late(SECOND / 20); 400]);
    outages.schedule(Create, VOLUMES, [Late(SECOND / 50); 400]);
    tokio::spawn(fixture.controller().run_with(fixture.cluster.client("ours"), CancellationToken::new()));
    fixture.until("all volumes are saved", || volumes(&fixture) == 400).await;
    let sent = || named_in_events(&fixture, "ProvisioningSucceeded").len();
    assert_eq!(sent(), 0);
    fixture.until("all claims have events", || sent() == 400).await;
}

// Rules: G32.
/// The pauses do not use the wall clock, which nearly stops while the controller's time advances, and advances while
/// the controller's time stops.
#[tokio::test(start_paused = true)]
async fn pauses_do_not_depend_on_the_wall_clock() {
    let (outages, fixture) = fixture();
    outages.schedule(Create, VOLUMES, [Busy(600)]);
    fixture.claim("a", "class");
    let wall = std::time::SystemTime::now();
    tokio::spawn(fixture.controller().run_with(fixture.cluster.client("ours"), CancellationToken::new()));
    let took = until_bound(&fixture, "a").await;
    assert!((600 * SECOND..670 * SECOND).contains(&took), "{took:?}");
    assert!(wall.elapsed().unwrap_or_default() < 120 * SECOND, "the simulated pause took too much wall time");

    outages.schedule(Create, VOLUMES, [Busy(1)]);
    fixture.claim("b", "class");
    fixture.until("the server was busy", || outages.are_over()).await;
    let asked = outages.requests_of(Create, VOLUMES).len();
    std::thread::sleep(SECOND + SECOND / 5);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(outages.requests_of(Create, VOLUMES).len(), asked, "the wall clock has advanced beyond the pause");
    until_bound(&fixture, "b").await;
}

/// kube-controller-manager may release a volume whose claim exists, and the cache has no claims of in-tree plugins.
#[tokio::test(start_paused = true)]
async fn a_migrated_volume_stays_while_its_claim_exists() {
    const IN_TREE: &str = "kubernetes.io/aws-ebs";
    // Omit the binder, which would bind the volume again.
    let actors = Actors::none().with(Actor::Protection, Pace::PROMPT);
    let fixture = Fixture::with_actors(Cluster::new(), actors, Script::default());
    fixture.class("in-tree", json!({"provisioner": IN_TREE}));
    let volume = fixture.claim("data", "in-tree");
    let annotations = json!({"pv.kubernetes.io/provisioned-by": IN_TREE, "pv.kubernetes.io/migrated-to": PROVISIONER});
    let claim = json!({"name": "data", "uid": volume.strip_prefix("pvc-")});
    fixture.released(&volume, json!({"metadata": {"annotations": annotations}, "spec": {"claimRef": claim}}));
    let target = Target { group: "", plural: VOLUMES, namespace: "", name: &volume };
    let released = json!({"status": {"phase": "Released"}});
    fixture.cluster.patch(&target, Some(Subresource::Status), PatchKind::Merge, &released).unwrap();
    let _running = fixture.start(1);
    sleep(3600 * SECOND).await;
    assert!(fixture.calls.all().iter().all(|call| !call.contains("delete")), "{:?}", fixture.calls.all());
    fixture.delete(CLAIMS, "data");
    until_gone(&fixture, &volume).await;
}
