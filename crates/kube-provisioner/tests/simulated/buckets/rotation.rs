//! New keys with an overlap.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::stand::{CLAIMS, Stand};
use super::store::Failure;

#[tokio::test(start_paused = true)]
async fn z9_the_old_key_lives_for_the_overlap() {
    let stand = Stand::new();
    stand.class("short", json!({"parameters": {"credentialsOverlap": "1h"}}));
    stand.claim("photos", json!({"storageClassName": "short"}));
    let running = stand.start(1);
    stand.bound("photos").await;
    stand.store.fail("rotate", Failure::Retry);
    stand.patch(
        CLAIMS,
        "photos",
        json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "monday"}}}),
    );
    let keys = || stand.store.state().users.values().map(Vec::len).sum::<usize>();
    let key = || stand.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].as_str().unwrap().to_owned();
    let first = key();
    stand.until("there is a new key", || key() != first).await;
    assert_eq!((keys(), stand.phase("photos").as_str()), (2, "Bound"));
    sleep(Duration::from_secs(50 * 60)).await;
    running.abort();
    let _another = stand.start(2);
    assert_eq!(keys(), 2);
    // The clock of a simulated process begins with it.
    sleep(Duration::from_secs(70 * 60)).await;
    assert_eq!(keys(), 1);
    assert_eq!(stand.store.calls("rotate"), 2);
    // A lost Secret comes back with the new key.
    let second = key();
    stand.delete("secrets", "photos");
    stand.until("it is back", || stand.get("secrets", "photos").is_some()).await;
    assert_eq!(key(), second);
    assert_eq!(keys(), 1);
}

#[tokio::test(start_paused = true)]
async fn z9_a_bucket_stays_ready_while_its_keys_cannot_be_changed() {
    let stand = Stand::new();
    stand.class("short", json!({"parameters": {"credentialsOverlap": "10s"}}));
    stand.claim("photos", json!({"storageClassName": "short"}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    for method in ["rotate", "retire"] {
        stand.store.fail(method, Failure::Panic);
        stand.store.fail(method, Failure::Retry);
    }
    stand.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let told = |text: &str| stand.events("photos").iter().any(|event| event.contains(text));
    let retired = || {
        assert_eq!(stand.ready("photos").0, "Bound");
        told("CredentialsRetired")
    };
    stand.until("the old key is gone", retired).await;
    assert!(told("Warning RotationFailed: The provisioner's code crashed in `rotate`"), "{:?}", stand.events("photos"));
    assert_eq!((stand.store.calls("rotate"), stand.store.calls("retire")), (3, 3));
}
