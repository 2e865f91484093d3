//! What happens to a bucket when its claim is deleted.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::bucket::objectbucket_api::{Validation, crds};
use kube_sim::{After, Before, Cluster, DeleteOptions, Interceptor, PatchKind, Request, Verb, WatchInterceptor};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::refusing::LateList;
use super::stand::{BUCKETS, CLAIMS, Stand, target};
use super::store::Failure;

#[tokio::test(start_paused = true)]
async fn y3_everything_goes_with_the_claim() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    stand.store.fail("delete", Failure::Retry);
    stand.store.fail("delete", Failure::Late);
    stand.delete(CLAIMS, "photos");
    stand.until("it is told", || stand.events("photos").iter().any(|event| event.contains("BucketFailedDelete"))).await;
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
    assert_eq!(stand.store.calls("delete"), 3);
    for (plural, name) in [(BUCKETS, "obc-default-photos"), ("secrets", "photos"), ("configmaps", "photos")] {
        stand.until(plural, || stand.get(plural, name).is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn z3_the_class_is_not_needed_to_delete() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    stand.delete("storageclasses", "class");
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.state().buckets.is_empty());
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn z4_a_class_made_anew_cannot_turn_a_granted_bucket_into_a_provisioned_one() {
    let stand = Stand::new();
    stand.store.state().buckets.insert("shared".to_owned(), "somebody".to_owned());
    stand.class("granted", json!({"parameters": {"bucketName": "shared"}}));
    stand.claim("one", json!({"storageClassName": "granted"}));
    let _running = stand.start(1);
    stand.bound("one").await;
    stand.delete("storageclasses", "granted");
    stand.class("granted", json!({}));
    stand.delete(CLAIMS, "one");
    stand.gone("one").await;
    assert!(stand.store.state().buckets.contains_key("shared"));
    assert_eq!((stand.store.calls("delete"), stand.store.calls("revoke")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn retained_buckets_lose_their_user() {
    let stand = Stand::new();
    stand.class("kept", json!({"reclaimPolicy": "Retain"}));
    stand.claim("photos", json!({"storageClassName": "kept"}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    let state = stand.store.state();
    assert_eq!((state.buckets.len(), state.users.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn z1_an_unfinished_attempt_is_cleaned_up() {
    let stand = Stand::new();
    for _ in 0..1000 {
        stand.store.fail("provision", Failure::Late);
    }
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.until("it is made", || !stand.store.state().buckets.is_empty()).await;
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z11_a_claim_made_anew_waits_for_the_end_of_the_one_before() {
    let stand = Stand::new();
    stand.claim("photos", json!({"bucketName": "photos"}));
    let running = stand.start(1);
    stand.bound("photos").await;
    for _ in 0..3 {
        stand.store.fail("delete", Failure::Retry);
    }
    stand.delete(CLAIMS, "photos");
    stand.until("the end has begun", || stand.store.calls("delete") > 0).await;
    running.abort();
    // Somebody takes the claim's finalizer off while nobody looks after it.
    stand.patch(CLAIMS, "photos", json!({"metadata": {"finalizers": null}}));
    assert!(stand.get(CLAIMS, "photos").is_none());
    let uid = stand.claim("photos", json!({"bucketName": "photos"}));
    let _running = stand.start(2);
    stand.until("it waits", || stand.ready("photos").0 == "AwaitsFormer").await;
    stand.bound("photos").await;
    assert_eq!(stand.store.state().buckets["photos"], format!("obc-default-photos-{uid}"));
    assert_eq!(stand.store.calls("delete"), 4);
}

#[tokio::test(start_paused = true)]
async fn what_a_person_gives_up_goes_without_the_backend() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    for _ in 0..1000 {
        stand.store.fail("delete", Failure::Retry);
    }
    stand.delete(CLAIMS, "photos");
    stand.until("it fails", || stand.store.calls("delete") > 3).await;
    stand.patch(
        BUCKETS,
        "obc-default-photos",
        json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}),
    );
    stand.gone("photos").await;
    assert_eq!(stand.store.state().buckets.len(), 1);
    stand.until("it is told", || stand.events("photos").iter().any(|event| event.contains("BucketAbandoned"))).await;
}

/// Takes the claim away right after its finalizer was written, as the API server does for a deletion that began before.
struct Overtaken(OnceLock<Cluster>);

impl Interceptor for Overtaken {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Before> {
        Box::pin(async { Before::Handle })
    }

    fn after<'a>(&'a self, request: &'a Request, status: u16) -> BoxFuture<'a, After> {
        let of_claim = request.resource.plural == CLAIMS && request.subresource.is_none();
        let patched = status == 200 && request.verb == Verb::Patch && of_claim;
        if let Some(cluster) = self.0.get().filter(|_| patched) {
            let (claim, none) = (target(CLAIMS, "photos"), json!({"metadata": {"finalizers": null}}));
            cluster.patch(&claim, None, PatchKind::Merge, &none).unwrap();
            cluster.delete(&claim, DeleteOptions::default()).unwrap();
        }
        Box::pin(async { After::Deliver })
    }

    fn watch(&self, _: &Request) -> Option<Box<dyn WatchInterceptor>> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_overtakes_the_finalizer_leaves_nothing() {
    let overtaken = Arc::new(Overtaken(OnceLock::new()));
    let cluster = Cluster::builder().hide_managed_fields().interceptor(overtaken.clone()).build();
    for definition in crds(Validation::Standard) {
        cluster.create(&serde_json::to_value(&definition).unwrap()).unwrap();
    }
    overtaken.0.set(cluster.clone()).ok().unwrap();
    let stand = Stand::on(cluster);
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.gone("photos").await;
    sleep(Duration::from_secs(600)).await;
    assert!(stand.get(BUCKETS, "obc-default-photos").is_none());
    assert_eq!(stand.store.state().calls, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_of_a_new_object_bucket_is_removed_although_a_late_list_does_not_have_it() {
    let list = LateList::default();
    let stand = Stand::built(Cluster::builder().interceptor(Arc::new(list.clone())));
    stand.claim("earlier", json!({}));
    let _running = stand.start(1);
    stand.bound("earlier").await;
    list.arm();
    stand.patch(BUCKETS, "obc-default-earlier", json!({"metadata": {"labels": {"watch": "expires"}}}));
    sleep(LateList::DELAY / 2).await;
    stand.store.state().pauses.insert("provision", LateList::DELAY * 2);
    stand.store.fail("provision", Failure::NothingLeft);
    stand.claim("photos", json!({}));
    stand.until("the list is complete", || stand.store.calls("provision") == 2).await;
    sleep(LateList::DELAY * 2 + Duration::from_secs(1)).await;
    let left = stand.get(BUCKETS, "obc-default-photos").unwrap_or_default();
    assert_eq!(left["metadata"]["deletionTimestamp"], Value::Null, "{left:#}");
}
