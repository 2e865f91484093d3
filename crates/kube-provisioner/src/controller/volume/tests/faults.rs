//! The whole controller against an API server that hangs, falls silent, refuses, or loses its answers.

use std::time::Duration;

use super::api::Fault::{Busy, Hang, Late, Lose, Refuse, Still, Swallow};
use super::api::{CLAIMS, CLASSES, CONFIG_MAPS, EVENTS, Fault, VOLUMES, WATCHED};
use super::running::{Running, put_claim, put_released, put_volume, volume_of, with_class};
use super::*;
use crate::protocol::SELECTED_NODE;

const SECOND: Duration = Duration::from_secs(1);
/// Time limit of one call.
const LIMIT: Duration = Duration::from_secs(30);
/// More than any pause before the second attempt.
const PAUSE: Duration = Duration::from_secs(2);

#[tokio::test(start_paused = true)]
async fn g24_a_list_that_hangs_is_cut_off_and_asked_for_again() {
    for resource in WATCHED {
        let api = with_class();
        put_claim(&api, "a", json!({}));
        api.fail("list", resource, [Hang]);
        let running = Running::start(&api);
        let took = running.until_bound("a").await;
        assert!((LIMIT..LIMIT + PAUSE).contains(&took), "{resource}: {took:?}");
    }
}

/// The controller acts within this time on changes that a silent watch does not show.
async fn nothing_is_lost(resource: &str, fault: Fault, limit: Duration) {
    let api = with_class();
    put_volume(&api, "old", "Bound", json!({}));
    api.fail("watch", WATCHED.into_iter().find(|watched| *watched == resource).unwrap(), [fault]);
    let running = Running::start(&api);
    tokio::time::sleep(SECOND).await;
    assert!(api.has_failed(), "the watch of {resource} began");
    api.put(CLASSES, class(json!({"metadata": {"name": "class-2"}})));
    put_claim(&api, "a", json!({}));
    put_claim(&api, "b", json!({"spec": {"storageClassName": "class-2"}}));
    put_released(&api, "old");
    let took = running.until_bound("a").await.max(running.until_bound("b").await);
    let took = took.max(running.until_gone("old").await);
    assert!((limit..limit + PAUSE).contains(&took), "{resource}: {took:?}");
    assert_eq!((running.provisions("a"), running.provisions("b"), running.deletes("old")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn g24_a_watch_whose_start_hangs_is_cut_off_and_nothing_is_lost() {
    for resource in WATCHED {
        nothing_is_lost(resource, Hang, 15 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn g25_a_watch_that_lies_still_is_noticed_and_nothing_is_lost() {
    nothing_is_lost(CLASSES, Still, 65 * SECOND).await;
    // The claim of the volume that is to be deleted is asked for, and is gone.
    nothing_is_lost(CLAIMS, Still, 5 * SECOND).await;
    // The answer shows the volume that is saved for `a`.
    nothing_is_lost(VOLUMES, Still, 5 * SECOND).await;
}

/// Nothing is saved here, but the volume that is to be deleted is not there any more.
#[tokio::test(start_paused = true)]
async fn g25_a_watch_that_does_not_tell_that_a_volume_is_gone_is_begun_anew() {
    let api = with_class();
    put_released(&api, "old");
    api.fail("delete", VOLUMES, [Busy(3)]);
    api.fail("watch", VOLUMES, [Still]);
    let running = Running::start(&api);
    tokio::time::sleep(SECOND).await;
    api.remove(VOLUMES, "old");
    put_released(&api, "next");
    let took = running.until_gone("next").await;
    // Of which the busy server is left alone for up to 5.5 s.
    assert!(took < 12 * SECOND, "{took:?}");
}

/// The asset is gone; what the server says of the object need not mean that it is gone too.
#[tokio::test(start_paused = true)]
async fn g27_a_volume_whose_deletion_meets_a_conflict_is_deleted_later() {
    let api = with_class();
    put_volume(&api, "bare", "Released", json!({"metadata": {"finalizers": null}}));
    api.fail("delete", VOLUMES, [Refuse(409)]);
    let running = Running::start(&api);
    running.until_gone("bare").await;
    assert_eq!(running.deletes("bare"), 1);
}

#[tokio::test(start_paused = true)]
async fn g24_what_changed_while_an_attempt_waited_is_what_the_author_is_asked_for() {
    let api = with_class();
    api.put(CLASSES, waiting_class());
    let selects = |node: &str| json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
    let running = Running::start(&api);
    running.until("the journal is there", |_| !api.all(CONFIG_MAPS).is_empty()).await;
    api.fail("update", CONFIG_MAPS, [Late(5 * SECOND)]);
    put_claim(&api, "a", selects("first"));
    running.until("the attempt is being recorded", |_| api.has_failed()).await;
    put_claim(&api, "a", selects("second"));
    running.until_bound("a").await;
    assert_eq!(running.nodes(), [Some("second".to_owned())]);
}

/// The watch of claims does not show that the scheduler was asked for another node.
#[tokio::test(start_paused = true)]
async fn g25_a_node_that_was_taken_back_is_not_served_again() {
    for lost in [None, Some(Swallow)] {
        let api = with_class();
        api.put(CLASSES, waiting_class());
        put_claim(&api, "no-room", json!({"metadata": {"annotations": {SELECTED_NODE: "n"}}}));
        api.fail("watch", CLAIMS, [Still]);
        api.fail("patch", CLAIMS, lost);
        let running = Running::start(&api);
        let selected = || api.get(CLAIMS, "no-room").unwrap()["metadata"]["annotations"].get(SELECTED_NODE).is_some();
        running.until("the node is taken back", |_| !selected()).await;
        api.put(CLASSES, with(waiting_class(), json!({"metadata": {"labels": {"touched": "yes"}}})));
        tokio::time::sleep(50 * SECOND).await;
        assert_eq!(running.provisions("no-room"), 1);
    }
}

/// The watch of claims does not show that the claim and its volume are gone and that another claim has the name.
#[tokio::test(start_paused = true)]
async fn g25_another_claim_of_the_same_name_is_not_taken_for_the_one_that_is_known() {
    let api = with_class();
    put_claim(&api, "a", json!({}));
    api.fail("watch", CLAIMS, [Still]);
    let running = Running::start(&api);
    running.until("the volume is saved", |_| api.get(VOLUMES, &volume_of("a")).is_some()).await;
    api.remove(CLAIMS, "a");
    put_claim(&api, "a", json!({"metadata": {"uid": "uid-another"}}));
    api.remove(VOLUMES, &volume_of("a"));
    tokio::time::sleep(10 * SECOND).await;
    assert!(api.requests() < 50, "{} requests", api.requests());
    let took = running.until_bound("a").await;
    assert!(took < 65 * SECOND + PAUSE, "{took:?}");
    assert!(api.get(VOLUMES, &volume_of("another")).is_some());
    assert_eq!(running.provisions("a"), 2);
}

#[tokio::test(start_paused = true)]
async fn g24_a_save_that_hangs_holds_up_no_other_claim() {
    let api = with_class();
    api.fail("create", VOLUMES, [Hang]);
    put_claim(&api, "slow", json!({}));
    let running = Running::start(&api);
    running.until("the save began", |running| running.api.has_failed()).await;
    for claim in ["a", "b", "c"] {
        put_claim(&api, claim, json!({}));
        assert!(running.until_bound(claim).await < PAUSE);
    }
    let took = running.until_bound("slow").await;
    assert!((LIMIT..LIMIT + PAUSE).contains(&took), "{took:?}");
    assert_eq!(running.provisions("slow"), 1, "saving again is not provisioning again");
    running
        .until("the user is told", |running| !running.api.messages("slow", "ProvisioningSucceeded").is_empty())
        .await;
    let warnings = api.messages("slow", "ProvisioningFailed");
    assert!(warnings[0].contains("made but not saved yet"), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn g24_a_deletion_that_hangs_holds_up_no_other_volume() {
    for verb in ["delete", "patch"] {
        let api = with_class();
        api.fail(verb, VOLUMES, [Hang]);
        put_released(&api, "slow");
        let running = Running::start(&api);
        running.until("the deletion began", |running| running.api.has_failed()).await;
        put_released(&api, "quick");
        assert!(running.until_gone("quick").await < PAUSE, "{verb}");
        let took = running.until_gone("slow").await;
        assert!((LIMIT..LIMIT + PAUSE).contains(&took), "{verb}: {took:?}");
        assert_eq!((running.deletes("quick"), running.deletes("slow")), (1, 1), "{verb}");
    }
}

#[tokio::test(start_paused = true)]
async fn g24_events_that_hang_hold_up_no_work_and_come_later() {
    const CLAIMS_MADE: usize = 40;
    let api = with_class();
    api.fail("create", EVENTS, [Hang; 16]);
    let claims: Vec<String> = (0..CLAIMS_MADE).map(|at| format!("claim-{at}")).collect();
    claims.iter().for_each(|claim| put_claim(&api, claim, json!({})));
    let running = Running::start(&api);
    for claim in &claims {
        assert!(running.until_bound(claim).await < PAUSE);
    }
    let all_have_events = |running: &Running| running.api.all(EVENTS).len() == CLAIMS_MADE;
    assert!(running.until("all are told", all_have_events).await < LIMIT);
    assert!(api.has_failed());
    for claim in &claims {
        assert_eq!(api.messages(claim, "ProvisioningSucceeded").len(), 1, "{claim}");
    }
}

/// One of each thing that the controller writes.
fn all_kinds_of_work(api: &api::Api) {
    put_claim(api, "a", json!({}));
    put_claim(api, "no-room", json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}}));
    put_released(api, "old");
}

fn is_moved(running: &Running) -> bool {
    let claim = running.api.get(CLAIMS, "no-room").unwrap();
    claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null()
}

/// Waits until all is as it should be: the end is the same whatever failed on the way.
async fn until_all_is_done(running: &Running) {
    running.until_bound("a").await;
    running.until_gone("old").await;
    running.until("the node is taken back", is_moved).await;
    let messages = |running: &Running| running.api.messages("no-room", "ProvisioningFailed").len();
    running.until("the user is told", |running| messages(running) > 0).await;
}

/// Every request that changes something.
const WRITES: [(&str, &str); 5] =
    [("create", VOLUMES), ("delete", VOLUMES), ("patch", VOLUMES), ("patch", CLAIMS), ("create", EVENTS)];

#[tokio::test(start_paused = true)]
async fn g26_a_server_that_asks_to_wait_is_left_alone_for_as_long() {
    for (verb, resource) in WRITES {
        let api = with_class();
        api.fail(verb, resource, [Busy(60)]);
        all_kinds_of_work(&api);
        if (verb, resource) == ("patch", VOLUMES) {
            // Or the watch's word that the object is being deleted, which is a change that matters, ends the pause.
            put_volume(&api, "old", "Released", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        }
        let running = Running::start(&api);
        running.until("the server was busy", |running| running.api.has_failed()).await;
        tokio::time::sleep(59 * SECOND).await;
        // Events of several claims are several requests, and were under way together.
        let together = |at: &tokio::time::Instant| at.duration_since(running.started) < SECOND;
        assert!(
            api.asked(verb, resource).iter().all(together),
            "{verb} {resource}: asked while it was to be left alone"
        );
        until_all_is_done(&running).await;
        let again = |running: &Running| running.api.asked(verb, resource).iter().any(|at| !together(at));
        running.until("the server is asked again", again).await;
        let last = api.asked(verb, resource).last().unwrap().duration_since(running.started);
        assert!((60 * SECOND..80 * SECOND).contains(&last), "{verb} {resource}: {last:?}");
        assert_eq!((running.provisions("a"), running.deletes("old")), (1, 1), "{verb} {resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn g26_a_server_that_stays_busy_is_not_flooded() {
    for (verb, resource) in WRITES {
        let api = with_class();
        api.fail(verb, resource, [Busy(1); 2_000]);
        all_kinds_of_work(&api);
        let running = Running::start(&api);
        tokio::time::sleep(60 * SECOND).await;
        let asked = api.asked(verb, resource).len();
        assert!((2..=70).contains(&asked), "{verb} {resource}: {asked} requests in a minute");
        assert!(api.requests() < 400, "{verb} {resource}: {} requests in a minute", api.requests());
        assert!(running.provisions("a") == 1 && running.deletes("old") <= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn g27_refused_writes_are_repeated_and_the_author_is_not_asked_again() {
    let refusals: [&[Fault]; 4] = [&[Refuse(500); 3], &[Refuse(503)], &[Refuse(409)], &[Refuse(409), Refuse(500)]];
    for (verb, resource) in WRITES {
        for faults in refusals {
            // A new event is never in conflict with another but by its name, which stands for itself.
            if resource == EVENTS && faults.contains(&Refuse(409)) {
                continue;
            }
            let api = with_class();
            api.fail(verb, resource, faults.iter().copied());
            all_kinds_of_work(&api);
            let running = Running::start(&api);
            until_all_is_done(&running).await;
            let case = format!("{verb} {resource} {faults:?}");
            assert!(api.has_failed(), "{case}");
            assert_eq!((running.provisions("a"), running.deletes("old")), (1, 1), "{case}");
            assert_eq!(api.all(VOLUMES).len(), 1, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g28_lost_answers_do_not_double_what_was_done() {
    for (verb, resource) in WRITES {
        for fault in [Lose(504), Lose(500), Swallow] {
            let api = with_class();
            api.fail(verb, resource, [fault]);
            all_kinds_of_work(&api);
            let running = Running::start(&api);
            until_all_is_done(&running).await;
            // Long enough for whatever might still come.
            tokio::time::sleep(60 * SECOND).await;
            let case = format!("{verb} {resource} {fault:?}");
            assert!(api.has_failed(), "{case}");
            assert_eq!((running.provisions("a"), running.deletes("old")), (1, 1), "{case}");
            let volumes: Vec<Value> = api.all(VOLUMES);
            assert_eq!(volumes.len(), 1, "{case}");
            assert_eq!(volumes[0]["metadata"]["name"], volume_of("a"), "{case}");
            assert!(api.messages("a", "ProvisioningSucceeded").len() <= 1, "{case}");
        }
    }
}

/// While keys are ready, events wait; when the controller stops under load, keys stay ready.
#[tokio::test(start_paused = true)]
async fn g35_stopping_under_load_tells_of_every_volume_that_was_saved() {
    let api = with_class();
    let claims: Vec<String> = (0..400).map(|at| format!("claim-{at}")).collect();
    claims.iter().for_each(|claim| put_claim(&api, claim, json!({})));
    api.fail("create", VOLUMES, [Late(SECOND / 10); 400]);
    // One after the other they take longer than a controller that stops has time for last words.
    api.fail("create", EVENTS, [Late(SECOND / 5); 400]);
    let running = Running::start(&api);
    running.until("a quarter is done", |running| running.api.all(VOLUMES).len() >= 100).await;
    assert!(api.all(VOLUMES).len() < 400 && api.all(EVENTS).len() < 50, "stopped in the middle, with much to tell");
    running.stop().await;
    assert!(api.all(VOLUMES).len() < 400);
    for claim in claims.iter().filter(|claim| api.is_bound(claim)) {
        assert_eq!(api.messages(claim, "ProvisioningSucceeded").len(), 1, "{claim}");
    }
}

/// The wall clock is not asked: it nearly stands still while the controller's time goes on, and goes on while that
/// stands still.
#[tokio::test(start_paused = true)]
async fn g32_pauses_do_not_depend_on_the_wall_clock() {
    let api = with_class();
    api.fail("create", VOLUMES, [Busy(600)]);
    put_claim(&api, "a", json!({}));
    let wall = std::time::SystemTime::now();
    let running = Running::start(&api);
    let took = running.until_bound("a").await;
    assert!((600 * SECOND..670 * SECOND).contains(&took), "{took:?}");
    assert!(wall.elapsed().unwrap_or_default() < 120 * SECOND, "a pause of ten minutes in a moment of wall time");

    api.fail("create", VOLUMES, [Busy(1)]);
    put_claim(&api, "b", json!({}));
    running.until("the server was busy", |running| running.api.has_failed()).await;
    let asked = api.asked("create", VOLUMES).len();
    std::thread::sleep(SECOND + SECOND / 5);
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.asked("create", VOLUMES).len(), asked, "the wall clock has gone on by more than the pause");
    running.until_bound("b").await;
}
