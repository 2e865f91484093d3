//! A claim's `additionalConfig`: the controller records the applied keys, regardless of failures.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::ownership::{HOUR, OBJECT, is_reported};
use super::store::Failure;

// Rules: Z24.
#[tokio::test(start_paused = true)]
async fn applied_settings_are_never_refused_later() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({"additionalConfig": {"maxObjects": "2"}}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    // Simulate a claim that another provisioner has provisioned with more keys.
    let object = fixture.get(BUCKETS, OBJECT).unwrap();
    let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap();
    let mut record: Value = serde_json::from_str(record).unwrap();
    record["config"]["theirs"] = json!("x");
    let record = json!({"metadata": {"annotations": {"kube-provisioner/bucket": record.to_string()}}});
    fixture.patch(BUCKETS, OBJECT, record);
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"theirs": "x"}}}));
    let _another = fixture.start(2);
    sleep(HOUR).await;
    fixture.delete("secrets", "photos");
    fixture.until("it is back", || fixture.get("secrets", "photos").is_some()).await;
    // A new unknown key is refused.
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"nobodys": "x"}}}));
    fixture.until("it is reported", || is_reported(&fixture, "photos", "nobodys")).await;
}

// Rules: Z24.
#[tokio::test(start_paused = true)]
async fn records_settings_that_a_failed_attempt_may_have_applied() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let applied = || fixture.store.state().applied.last().cloned().unwrap_or_default();
    for _ in 0..3 {
        fixture.store.fail("create_bucket", Failure::Late);
    }
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "2"}}}));
    fixture.until("it fails", || fixture.store.calls("create_bucket") >= 2).await;
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": null}}));
    fixture.until("the setting is removed", || fixture.store.state().configs.values().next() == Some(&None)).await;
    assert_eq!(applied(), ["maxObjects"]);
    sleep(HOUR).await;
    let calls = fixture.store.calls("create_bucket");
    sleep(HOUR).await;
    assert_eq!((fixture.ready("photos").0.as_str(), fixture.store.calls("create_bucket")), ("Bound", calls));
    // A key that was only attempted does not count as applied.
    fixture.store.fail("create_bucket", Failure::Retry);
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    fixture.until("it is applied", || fixture.store.state().configs.values().next() == Some(&Some(3))).await;
    let shown = || fixture.get(BUCKETS, OBJECT).unwrap()["spec"]["endpoint"]["additionalConfig"]["maxObjects"].clone();
    fixture.until("the ObjectBucket contains the setting", || shown() == "3").await;
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": null}}));
    fixture.until("the ObjectBucket lacks the setting", || shown().is_null()).await;
}

// Rules: Z24.
#[tokio::test(start_paused = true)]
async fn delete_bucket_receives_settings_of_failed_attempts() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for _ in 0..3 {
        fixture.store.fail("create_bucket", Failure::Late);
    }
    fixture.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "2"}}}));
    fixture.until("it fails", || fixture.store.calls("create_bucket") >= 2).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until("it is deleted", || fixture.store.is_empty()).await;
    assert_eq!(fixture.store.state().deleted_with, [["maxObjects"]]);
}

// Rules: Z24.
#[tokio::test(start_paused = true)]
async fn reverts_settings_that_were_applied_but_not_recorded() {
    let fixture = Fixture::new();
    let config = |objects: Value| json!({"spec": {"additionalConfig": {"maxObjects": objects}}});
    fixture.claim("photos", config(json!("1"))["spec"].clone());
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let limit = || fixture.store.state().configs.values().next().copied().flatten();
    assert_eq!(limit(), Some(1));
    for (changed, applied) in [(json!("2"), Some(2)), (Value::Null, None)] {
        fixture.store.fail("create_bucket", Failure::Late);
        fixture.patch(CLAIMS, "photos", config(changed));
        fixture.until("the store has it", || limit() == applied).await;
        fixture.patch(CLAIMS, "photos", config(json!("1")));
        fixture.until("the setting is reverted", || limit() == Some(1)).await;
    }
    sleep(HOUR).await;
    let calls = fixture.store.calls("create_bucket");
    sleep(HOUR).await;
    assert_eq!(fixture.store.calls("create_bucket"), calls, "no further calls");
}

#[tokio::test(start_paused = true)]
async fn refuses_the_config_key_account() {
    let fixture = Fixture::new();
    let _running = fixture.start(1);
    let shared = json!({"additionalConfig": {"account": "team"}});
    fixture.claim("films", shared.clone());
    fixture.until("it is refused", || fixture.phase("films") == "Failed").await;
    let (reason, message) = fixture.ready("films");
    assert!(reason == "InvalidConfig" && message.contains("unknown key \"account\""), "{reason}: {message}");
    assert!(is_reported(&fixture, "films", "unknown key \"account\""));
    assert!(fixture.store.is_empty());
    // A bound claim keeps its bucket.
    fixture.claim("photos", json!({}));
    fixture.until_bound("photos").await;
    fixture.patch(CLAIMS, "photos", json!({"spec": shared}));
    fixture.until("it is reported", || is_reported(&fixture, "photos", "unknown key \"account\"")).await;
    assert_eq!((fixture.phase("photos").as_str(), fixture.store.state().users.len()), ("Bound", 1));
}
