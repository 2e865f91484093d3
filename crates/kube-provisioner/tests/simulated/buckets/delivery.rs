//! Secrets and ConfigMaps: repaired, never taken from others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube_sim::{Cluster, Subresource};
use serde_json::json;
use tokio::time::sleep;

use super::refusing::refusing;
use super::stand::{BUCKETS, CLAIMS, Stand};

#[tokio::test(start_paused = true)]
async fn z6_a_foreign_secret_is_left_alone() {
    for (kind, plural) in [("Secret", "secrets"), ("ConfigMap", "configmaps")] {
        let stand = Stand::new();
        let field = if kind == "Secret" { "stringData" } else { "data" };
        stand.create(json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": "photos", "namespace": "default"},
            field: {"mine": "x"},
        }));
        let before = stand.get(plural, "photos");
        stand.claim("photos", json!({}));
        let _running = stand.start(1);
        stand.until("it is told", || stand.ready("photos").0 == format!("{kind}NotOwned")).await;
        assert_eq!(stand.phase("photos"), "Pending");
        assert_eq!(stand.get(plural, "photos"), before);
        stand.delete(plural, "photos");
        stand.bound("photos").await;
        assert_eq!(stand.store.state().buckets.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn z8_what_is_lost_or_edited_is_written_again_with_the_same_keys() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    sleep(Duration::from_secs(1)).await;
    let data = |plural| stand.get(plural, "photos").map(|object| object["data"].clone());
    let (secret, map) = (data("secrets"), data("configmaps"));
    stand.delete("secrets", "photos");
    stand.delete("configmaps", "photos");
    stand.until("both are back", || data("secrets") == secret && data("configmaps") == map).await;
    stand.patch("secrets", "photos", json!({"data": {"AWS_SECRET_ACCESS_KEY": "eA=="}}));
    stand.patch("configmaps", "photos", json!({"data": {"BUCKET_HOST": "elsewhere"}}));
    stand.until("both are mended", || data("secrets") == secret && data("configmaps") == map).await;
    assert_eq!(stand.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_changes() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    sleep(Duration::from_secs(5)).await;
    let versions = || {
        let version = |plural, name| stand.get(plural, name).unwrap()["metadata"]["resourceVersion"].clone();
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
    let _another = stand.start(2);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(versions(), before);
    assert_eq!(stand.store.calls("provision"), 1);
}

#[tokio::test(start_paused = true)]
async fn y3_a_status_that_cannot_be_written_keeps_no_event_back() {
    let (refused, interceptor) =
        refusing(|request| request.resource.plural == CLAIMS && request.subresource == Some(Subresource::Status));
    let cluster = Cluster::builder().hide_managed_fields().interceptor(interceptor).build();
    cluster.create_yaml(include_str!("../../../../objectbucket-api/fixtures/crds/rook.yaml")).unwrap();
    let stand = Stand::on(cluster);
    refused.store(3, Ordering::Relaxed);
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    let succeeded = || stand.events("photos").iter().any(|event| event.contains("ProvisioningSucceeded"));
    stand.until("the event is there", succeeded).await;
    assert_eq!((refused.load(Ordering::Relaxed), stand.store.calls("provision")), (0, 1));
}
