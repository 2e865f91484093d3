//! Rotation of keys with an overlap.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture};
use super::store::Failure;

// Rules: Z9.
#[tokio::test(start_paused = true)]
async fn the_old_key_works_during_the_overlap() {
    let fixture = Fixture::new();
    fixture.overlap("1h");
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.store.fail("rotate", Failure::Retry);
    fixture.patch(
        CLAIMS,
        "photos",
        json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "monday"}}}),
    );
    let keys = || fixture.store.state().users.values().map(Vec::len).sum::<usize>();
    let key = || fixture.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].as_str().unwrap().to_owned();
    let first = key();
    fixture.until("there is a new key", || key() != first).await;
    assert_eq!((keys(), fixture.phase("photos").as_str()), (2, "Bound"));
    sleep(Duration::from_secs(50 * 60)).await;
    running.abort();
    let _another = fixture.start(2);
    assert_eq!(keys(), 2);
    // The clock of a simulated process starts with the process.
    sleep(Duration::from_secs(70 * 60)).await;
    assert_eq!(keys(), 1);
    assert_eq!(fixture.store.calls("rotate"), 2);
    // A lost Secret is restored with the new key.
    let second = key();
    fixture.delete("secrets", "photos");
    fixture.until("it is back", || fixture.get("secrets", "photos").is_some()).await;
    assert_eq!(key(), second);
    assert_eq!(keys(), 1);
}

// Rules: Z9.
#[tokio::test(start_paused = true)]
async fn a_bucket_stays_ready_while_its_keys_cannot_be_changed() {
    let fixture = Fixture::new();
    fixture.overlap("10s");
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for method in ["rotate", "retire"] {
        fixture.store.fail(method, Failure::Panic);
        fixture.store.fail(method, Failure::Retry);
    }
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let is_reported = |text: &str| fixture.events("photos").iter().any(|event| event.contains(text));
    let retired = || {
        assert_eq!(fixture.ready("photos").0, "Bound");
        is_reported("CredentialsRetired")
    };
    fixture.until("the old key is gone", retired).await;
    assert!(
        is_reported("Warning RotationFailed: The provisioner's code crashed in `rotate`"),
        "{:?}",
        fixture.events("photos")
    );
    assert_eq!((fixture.store.calls("rotate"), fixture.store.calls("retire")), (3, 3));
}

// Rules: Z8.
/// On a store that shows a key only once, such as AWS, an edited or deleted Secret receives another key. Running pods
/// use the former one.
#[tokio::test(start_paused = true)]
async fn former_keys_work_for_the_overlap_after_a_secret_is_replaced() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    fixture.overlap("1h");
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let keys = || fixture.store.state().users.values().map(Vec::len).sum::<usize>();
    let secret = || fixture.get("secrets", "photos").map(|secret| secret["data"].clone()).unwrap_or_default();
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("there is a second key", || keys() == 2).await;
    sleep(Duration::from_secs(60)).await;
    for number in 3..5 {
        let before = secret();
        if number == 3 {
            fixture.patch("secrets", "photos", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
        } else {
            fixture.delete("secrets", "photos");
        }
        let is_other = || !secret().is_null() && secret()["AWS_ACCESS_KEY_ID"] != before["AWS_ACCESS_KEY_ID"];
        fixture.until("there is another key", is_other).await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(keys(), number, "the former keys still work");
    }
    let events = |reason: &str| fixture.events("photos").iter().filter(|event| event.contains(reason)).count();
    fixture.until("it is reported", || events("Warning CredentialsReplaced") > 0).await;
    assert_eq!(fixture.ready("photos").0, "Bound");
    fixture.until("the former ones are removed", || keys() == 1).await;
    assert_eq!(events("UnknownKeysRemoved"), 0, "{:?}", fixture.events("photos"));
}

// Rules: Z41.
#[tokio::test(start_paused = true)]
async fn reports_the_removal_of_keys_that_were_not_delivered() {
    let fixture = Fixture::new();
    fixture.overlap("1h");
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let add = |id: &str| {
        let key = kube_provisioner::bucket::Credentials::new(id, "by hand");
        fixture.store.state().users.values_mut().for_each(|keys| keys.push(key.clone()));
    };
    add("monday");
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let is_reported = |id: &str| {
        let text = format!(
            "Warning UnknownKeysRemoved: Removed keys of the claim's account that the provisioner has not delivered: {id};"
        );
        fixture.events("photos").iter().any(|event| event.starts_with(&text))
    };
    fixture.until("it is reported", || is_reported("monday")).await;
    add("tuesday");
    fixture.until("it is reported", || is_reported("tuesday")).await;
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

// Rules: Z42.
#[tokio::test(start_paused = true)]
async fn a_key_that_no_longer_works_is_replaced_after_a_resync() {
    for shows_keys_once in [false, true] {
        let mut fixture = Fixture::new();
        fixture.options.options.resync_period = Duration::from_secs(120);
        fixture.store.state().shows_keys_once = shows_keys_once;
        fixture.claim("photos", json!({}));
        let running = fixture.start(1);
        fixture.until_bound("photos").await;
        let keys = || fixture.store.state().users.values().flatten().map(|key| key.access_key_id.clone()).collect();
        let delete = || fixture.store.state().users.values_mut().for_each(Vec::clear);
        let works = || {
            let id =
                fixture.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].as_str().unwrap().to_owned();
            let keys: Vec<String> = keys();
            keys.iter().any(|key| k8s_openapi::ByteString(key.clone().into_bytes()) == decoded(&id))
        };
        // The first of two lists fails.
        fixture.store.fail("list_keys", Failure::Retry);
        delete();
        let took = fixture.until("the key is replaced", works).await;
        assert!(took < Duration::from_secs(370), "{took:?}");
        let is_reported = || fixture.events("photos").iter().any(|event| event.contains("Warning CredentialsReplaced"));
        fixture.until("it is reported", is_reported).await;
        running.abort();
        delete();
        let _another = fixture.start(2);
        let took = fixture.until("the key is replaced", works).await;
        assert!(took < Duration::from_secs(250), "{took:?}");
        let lists = fixture.store.calls("list_keys");
        sleep(Duration::from_secs(480)).await;
        let lists = fixture.store.calls("list_keys") - lists;
        assert!((3..=5).contains(&lists), "expected one per resync: {lists}");
    }
}

fn decoded(text: &str) -> k8s_openapi::ByteString {
    serde_json::from_value(json!(text)).unwrap()
}
