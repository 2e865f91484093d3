//! New keys with an overlap.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture};
use super::store::Failure;

#[tokio::test(start_paused = true)]
async fn z9_the_old_key_lives_for_the_overlap() {
    let fixture = Fixture::new();
    fixture.overlap("1h");
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.bound("photos").await;
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
    // The clock of a simulated process begins with it.
    sleep(Duration::from_secs(70 * 60)).await;
    assert_eq!(keys(), 1);
    assert_eq!(fixture.store.calls("rotate"), 2);
    // A lost Secret comes back with the new key.
    let second = key();
    fixture.delete("secrets", "photos");
    fixture.until("it is back", || fixture.get("secrets", "photos").is_some()).await;
    assert_eq!(key(), second);
    assert_eq!(keys(), 1);
}

#[tokio::test(start_paused = true)]
async fn z9_a_bucket_stays_ready_while_its_keys_cannot_be_changed() {
    let fixture = Fixture::new();
    fixture.overlap("10s");
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.bound("photos").await;
    for method in ["rotate", "retire"] {
        fixture.store.fail(method, Failure::Panic);
        fixture.store.fail(method, Failure::Retry);
    }
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let told = |text: &str| fixture.events("photos").iter().any(|event| event.contains(text));
    let retired = || {
        assert_eq!(fixture.ready("photos").0, "Bound");
        told("CredentialsRetired")
    };
    fixture.until("the old key is gone", retired).await;
    assert!(
        told("Warning RotationFailed: The provisioner's code crashed in `rotate`"),
        "{:?}",
        fixture.events("photos")
    );
    assert_eq!((fixture.store.calls("rotate"), fixture.store.calls("retire")), (3, 3));
}
