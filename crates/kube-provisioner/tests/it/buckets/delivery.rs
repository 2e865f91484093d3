//! Secrets and ConfigMaps are repaired, and never taken from other owners.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube_sim::Subresource;
use serde_json::json;
use tokio::time::sleep;

use super::faulty_server::refusing;
use super::fixture::{BUCKETS, CLAIMS, Fixture};

// Rules: Z6.
#[tokio::test(start_paused = true)]
async fn a_foreign_secret_or_config_map_is_left_unchanged() {
    for (kind, plural) in [("Secret", "secrets"), ("ConfigMap", "configmaps")] {
        let fixture = Fixture::new();
        let field = if kind == "Secret" { "stringData" } else { "data" };
        fixture.create(json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": "photos", "namespace": "default"},
            field: {"mine": "x"},
        }));
        let before = fixture.get(plural, "photos");
        fixture.claim("photos", json!({}));
        let _running = fixture.start(1);
        fixture.until("it is reported", || fixture.ready("photos").0 == format!("{kind}NotOwned")).await;
        assert_eq!(fixture.phase("photos"), "Pending");
        assert_eq!(fixture.get(plural, "photos"), before);
        fixture.delete(plural, "photos");
        fixture.until_bound("photos").await;
        assert_eq!(fixture.store.state().buckets.len(), 1);
    }
}

// Rules: Z8.
#[tokio::test(start_paused = true)]
async fn lost_or_edited_objects_are_restored_with_the_same_keys() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    sleep(Duration::from_secs(1)).await;
    let data = |plural| fixture.get(plural, "photos").map(|object| object["data"].clone());
    let (secret, map) = (data("secrets"), data("configmaps"));
    fixture.delete("secrets", "photos");
    fixture.delete("configmaps", "photos");
    fixture.until("both are back", || data("secrets") == secret && data("configmaps") == map).await;
    fixture.patch("secrets", "photos", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
    fixture.patch("configmaps", "photos", json!({"data": {"BUCKET_HOST": "elsewhere"}}));
    fixture.until("both are repaired", || data("secrets") == secret && data("configmaps") == map).await;
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn writes_nothing_when_nothing_changes() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    sleep(Duration::from_secs(5)).await;
    let versions = || {
        let version = |plural, name| fixture.get(plural, name).unwrap()["metadata"]["resourceVersion"].clone();
        [
            version(CLAIMS, "photos"),
            version(BUCKETS, "obc-default-photos"),
            version("secrets", "photos"),
            version("configmaps", "photos"),
        ]
    };
    let before = versions();
    sleep(Duration::from_secs(3600)).await;
    running.abort();
    let _another = fixture.start(2);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(versions(), before);
    assert_eq!(fixture.store.calls("create_bucket"), 1);
}

/// The API server does not compare the uid when the status of a custom resource is patched, so the patch could apply to
/// a new claim.
#[tokio::test(start_paused = true)]
async fn status_writes_name_the_version_that_was_read() {
    let (refused, fixture) = refusing(|request| {
        request.resource.plural == CLAIMS
            && request.subresource == Some(Subresource::Status)
            && !format!("{:?}", request.content).contains("resourceVersion")
    });
    refused.store(1, Ordering::Relaxed);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    assert_eq!(refused.load(Ordering::Relaxed), 1, "a status was written without a version");
}

// Rules: Y3.
#[tokio::test(start_paused = true)]
async fn an_event_is_sent_although_the_status_cannot_be_written() {
    let (refused, fixture) =
        refusing(|request| request.resource.plural == CLAIMS && request.subresource == Some(Subresource::Status));
    refused.store(3, Ordering::Relaxed);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let succeeded = || fixture.events("photos").iter().any(|event| event.contains("ProvisioningSucceeded"));
    fixture.until("the event exists", succeeded).await;
    assert_eq!((refused.load(Ordering::Relaxed), fixture.store.calls("create_bucket")), (0, 1));
}

// Rules: Z29.
/// The claim's pods authenticate without a key.
#[tokio::test(start_paused = true)]
async fn the_secret_of_a_claim_without_keys_contains_none() {
    let fixture = Fixture::new();
    let without_key = json!({"spec": {"additionalConfig": {"authentication": "ServiceAccount"}}});
    fixture.claim("photos", without_key["spec"].clone());
    fixture.claim("videos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.until_bound("videos").await;
    let keys = |claim: &str| {
        let secret = fixture.get("secrets", claim)?;
        Some(secret["data"].as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("AWS_")).count())
    };
    let has_role = |claim: &str| fixture.get("configmaps", claim).is_some_and(|map| map["data"]["ROLE"].is_string());
    assert_eq!([keys("photos"), keys("videos")], [Some(0), Some(2)]);
    assert_eq!(fixture.get("configmaps", "photos").unwrap()["data"]["ROLE"], "photos");
    // A key that a user adds is removed, and a lost Secret is restored.
    fixture.patch("secrets", "photos", json!({"stringData": {"AWS_ACCESS_KEY_ID": "mine", "other": "x"}}));
    fixture.until("the foreign key is gone", || keys("photos") == Some(0)).await;
    assert_eq!(fixture.get("secrets", "photos").unwrap()["data"]["other"], "eA==");
    fixture.delete("secrets", "photos");
    fixture.until("it is back", || keys("photos") == Some(0)).await;
    // There is no key to rotate.
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let is_reported = || fixture.events("photos").iter().any(|event| event.contains("The claim has no keys"));
    fixture.until("it is reported", is_reported).await;
    assert_eq!((fixture.store.calls("rotate"), fixture.ready("photos").0.as_str()), (0, "Bound"));
    // A claim may change its authentication later.
    fixture.patch(CLAIMS, "videos", without_key.clone());
    fixture.until("the key is gone", || keys("videos") == Some(0)).await;
    fixture.until("it has the role", || has_role("videos")).await;
    fixture.patch("configmaps", "videos", json!({"data": {"other": "x"}}));
    fixture.patch(CLAIMS, "videos", json!({"spec": {"additionalConfig": null}}));
    fixture.until("there is a key", || keys("videos") == Some(2)).await;
    fixture.until("the role is gone", || !has_role("videos")).await;
    assert_eq!(fixture.get("configmaps", "videos").unwrap()["data"]["other"], "x");
    let calls = fixture.store.calls("create_bucket");
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(fixture.store.calls("create_bucket"), calls, "no further calls");
}
