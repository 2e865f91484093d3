//! The controller's use of the journal: when it records attempts, and how it handles failures to record them.

use std::time::Duration;

use kube_sim::Verb::{Create, List, Update};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES};
use super::outages::Outage::{Hang, Refuse};

const CONFIG_MAPS: &str = "configmaps";
/// The journal of a shard in a former layout, which no process writes to now.
const FORMER: &str = "example.com-fixture-journal-0-of-2";

fn put_former_journal(fixture: &Fixture, entries: &str) {
    put_journal(fixture, FORMER, "2", entries);
}

fn put_journal(fixture: &Fixture, name: &str, layout: &str, entries: &str) {
    let labels = json!({"app.kubernetes.io/component": "journal", "app.kubernetes.io/instance": "example.com-fixture"});
    let annotations = json!({"kube-provisioner/holder": "former", "kube-provisioner/layout": layout});
    let metadata = json!({"name": name, "namespace": "default", "labels": labels, "annotations": annotations});
    let data = json!({"version": "1", "entries": entries});
    let journal = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    fixture.cluster.create(&journal).unwrap();
}

// Rules: G37.
#[tokio::test(start_paused = true)]
async fn an_attempt_stays_in_the_journal_until_its_volume_is_seen() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    let _running = fixture.start(1);
    // The volume cannot be saved for some time.
    outages.schedule(Create, VOLUMES, [Refuse(500); 2]);
    let volume = fixture.claim("one", "class");
    fixture.until("provisioned", || fixture.calls.count("provision one") == 1).await;
    assert_eq!(fixture.entries(), [volume]);
    fixture.until("bound", || fixture.is_bound("one")).await;
    fixture.until("removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("provision one"), 1);
}

// Rules: G37.
#[tokio::test(start_paused = true)]
async fn the_next_process_finishes_an_attempt_whose_claim_was_deleted() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    let first = fixture.start(1);
    outages.schedule(Create, VOLUMES, [Hang]);
    let volume = fixture.claim("one", "class");
    fixture.until("provisioned", || outages.are_over()).await;
    first.abort();
    // No process is running that could observe the deletion.
    fixture.delete(CLAIMS, "one");
    let _second = fixture.start(2);
    fixture.until("cleaned up", || fixture.calls.count("clean_up one") == 1).await;
    fixture.until("removed", || fixture.entries().is_empty()).await;
    assert_eq!((fixture.calls.count("provision one"), fixture.get(VOLUMES, &volume)), (1, None));
}

// Rules: G38.
#[tokio::test(start_paused = true)]
async fn provisions_nothing_without_a_journal_and_reports_the_reason() {
    let refusals = [
        (403, "does not allow"),
        // The response when etcd is full.
        (500, "not available"),
    ];
    for (code, text) in refusals {
        for verb in [Create, Update] {
            let (outages, fixture) = Fixture::with_outages(Script::default());
            // The first write creates the journal, the second one records the first claim.
            outages.schedule(verb, CONFIG_MAPS, [Refuse(code); 3]);
            let running = fixture.start(1);
            fixture.claim("one", "class");
            fixture.until("the claim has an event", || !fixture.events("one").is_empty()).await;
            let events = fixture.events("one").join(" ");
            let has_reason = events.contains(text) || events.contains("the provisioner cannot work");
            assert!(events.contains("ProvisioningFailed") && has_reason, "{verb:?} {code}: {events}");
            assert_eq!(fixture.calls.count("provision one"), 0, "{verb:?} {code}");
            // The controller recovers without a restart.
            fixture.until("bound", || fixture.is_bound("one")).await;
            running.abort();
        }
    }
}

// Rules: G38.
#[tokio::test(start_paused = true)]
async fn reports_a_former_journal_that_cannot_be_written() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    put_former_journal(&fixture, "pvc-1 - {}\n");
    // The current journal is created, so the first update concerns the former one.
    outages.schedule(Update, CONFIG_MAPS, [Refuse(403); 6]);
    fixture.claim("one", "class");
    let _running = fixture.start(1);
    let has_event = || fixture.events("one").iter().any(|text| text.contains("the provisioner cannot work"));
    fixture.until("the claim has an event", has_event).await;
    assert_eq!(fixture.calls.count("provision one"), 0);
    fixture.until("bound", || fixture.is_bound("one")).await;
}

// Rules: G38.
#[tokio::test(start_paused = true)]
async fn only_the_claim_whose_entry_does_not_fit_is_blocked() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    fixture.class("options", json!({"mountOptions": ["ro"]}));
    let volume = fixture.claim("one", "class");
    fixture.claim("two", "options");
    put_former_journal(&fixture, &format!("{volume} - {}\n", "x".repeat(460_000)));
    let _running = fixture.start(1);
    fixture.until("refused", || !fixture.events("two").is_empty()).await;
    outages.schedule(List, CONFIG_MAPS, [Refuse(403); 3]);
    fixture.until("the journals were not listed", || outages.are_over()).await;
    // Events may wait for each other.
    sleep(Duration::from_secs(600)).await;
    let blocked = |claim: &str| fixture.events(claim).iter().any(|text| text.contains("the provisioner cannot work"));
    assert_eq!((blocked("one"), blocked("two")), (true, false));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_provisioned_after_its_former_entry_is_dropped() {
    let (_outages, fixture) = Fixture::with_outages(Script::default());
    let volume = fixture.claim("one", "class");
    // The entry does not fit into the current journal.
    put_former_journal(&fixture, &format!("{volume} - {}\n", "x".repeat(460_000)));
    let _running = fixture.start(1);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.calls.count("provision one"), 0);
    fixture.patch(CONFIG_MAPS, FORMER, json!({"metadata": {"annotations": {"kube-provisioner/drop": volume}}}));
    fixture.until("bound", || fixture.is_bound("one")).await;
}

#[tokio::test(start_paused = true)]
async fn an_unusable_entry_remains_until_a_new_attempt_replaces_it() {
    let (_outages, fixture) = Fixture::with_outages(Script::default());
    fixture.class("options", json!({"mountOptions": ["ro"]}));
    let volumes = ["options", "class"].map(|class| fixture.claim(class, class));
    let entries: String = volumes.iter().map(|volume| format!("{volume} - {{}}\n")).collect();
    put_journal(&fixture, "example.com-fixture-journal", "1", &entries);
    let _running = fixture.start(1);
    fixture.until("refused", || !fixture.events("options").is_empty()).await;
    fixture.until("bound", || fixture.is_bound("class")).await;
    // The removal of an entry may wait for other changes.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.entries(), [volumes[0].clone()]);
    fixture.delete(CLAIMS, "options");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.entries(), [volumes[0].clone()]);
}

// Rules: G39.
#[tokio::test(start_paused = true)]
async fn a_second_process_takes_over_and_the_first_reports_it() {
    let (outages, fixture) = Fixture::with_outages(Script::default());
    let first = fixture.start(1);
    fixture.claim("one", "class");
    fixture.until("the first is bound", || fixture.is_bound("one")).await;
    let holder = || -> Value {
        fixture.get(CONFIG_MAPS, "example.com-fixture-journal").unwrap()["metadata"]["annotations"].take()
    };
    let before = holder();
    let _second = fixture.start(2);
    fixture.until("taken over", || holder() != before).await;
    fixture.claim("two", "class");
    fixture.until("the second is bound", || fixture.is_bound("two")).await;
    assert_eq!(fixture.calls.count("provision two"), 1);
    let savers: Vec<_> = outages.requests_of(Create, VOLUMES).into_iter().map(|asked| asked.user).collect();
    assert_eq!(savers.iter().map(|user| &**user).collect::<Vec<_>>(), ["ours-1", "ours-2"]);
    let error = first.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("has taken over"), "{error}");
}
