//! The journal as the controller uses it: what is recorded when, and what happens when it cannot be.

use super::api::{Api, CLAIMS, CONFIG_MAPS, Fault, VOLUMES};
use super::running::{Running, put_claim, volume_of, with_class};
use super::*;

const JOURNAL: &str = "foo.bar-baz-journal";

/// The names of the volumes in the journal.
fn entries(api: &Api) -> Vec<String> {
    let journal = api.get(CONFIG_MAPS, JOURNAL).unwrap_or_default();
    let lines = journal["data"]["entries"].as_str().unwrap_or_default().lines();
    lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn g37_an_attempt_is_in_the_journal_from_before_it_begins_until_its_volume_is_seen() {
    let api = with_class();
    let running = Running::start(&api);
    // The volume cannot be saved for a while.
    api.fail("create", VOLUMES, [Fault::Refuse(500), Fault::Refuse(500)]);
    put_claim(&api, "one", json!({}));
    running.until("provisioned", |running| running.provisions("one") == 1).await;
    assert_eq!(entries(&api), [volume_of("one")]);
    running.until_bound("one").await;
    running.until("removed", |running| entries(&running.api).is_empty()).await;
    assert_eq!(running.provisions("one"), 1);
}

#[tokio::test(start_paused = true)]
async fn g37_what_was_begun_is_finished_by_the_next_process_when_the_claim_is_gone() {
    let api = with_class();
    let first = Running::start(&api);
    api.fail("create", VOLUMES, [Fault::Hang]);
    put_claim(&api, "one", json!({}));
    first.until("provisioned", |running| running.provisions("one") == 1).await;
    drop(first);
    // Nobody lives who could see it go.
    api.remove(CLAIMS, "one");
    let second = Running::start(&api);
    second.until("made again", |running| running.provisions("one") == 1).await;
    second.until("deleted", |running| running.deletes(&volume_of("one")) == 1).await;
    second.until_gone(&volume_of("one")).await;
    second.until("removed", |running| entries(&running.api).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn g38_without_a_journal_nothing_is_provisioned_and_the_claim_says_why() {
    let refusals = [
        (403, "does not allow"),
        // As a full etcd answers.
        (500, "not available"),
    ];
    for (code, text) in refusals {
        for verb in ["create", "update"] {
            let api = with_class();
            // The first write creates, the second is for the first claim.
            api.fail(verb, CONFIG_MAPS, [Fault::Refuse(code); 3]);
            let running = Running::start(&api);
            put_claim(&api, "one", json!({}));
            let messages = |running: &Running| running.api.messages("one", "ProvisioningFailed").join(" ");
            running.until("told", |running| !messages(running).is_empty()).await;
            assert!(messages(&running).contains(text), "{verb} {code}: {}", messages(&running));
            assert_eq!(running.provisions("one"), 0, "{verb} {code}");
            // It continues by itself.
            running.until_bound("one").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g39_a_second_process_takes_the_place_of_the_first_which_says_so() {
    let api = with_class();
    let first = Running::start(&api);
    put_claim(&api, "one", json!({}));
    first.until_bound("one").await;
    let holder = |api: &Api| api.get(CONFIG_MAPS, JOURNAL).unwrap()["metadata"]["annotations"].clone();
    let before = holder(&api);
    let second = Running::start(&api);
    second.until("taken over", |running| holder(&running.api) != before).await;
    put_claim(&api, "two", json!({}));
    second.until_bound("two").await;
    assert_eq!((first.provisions("two"), second.provisions("two")), (0, 1));
    let error = first.ended().await.unwrap_err().to_string();
    assert!(error.contains("has taken over"), "{error}");
}
