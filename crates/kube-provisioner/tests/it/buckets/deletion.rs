//! Deletion of a bucket after its claim was deleted.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::bucket::objectbucket_api::{Validation, crds};
use kube_sim::{
    After, Cluster, DeleteOptions, Interceptor, PatchKind, Request, Stored, Verb, WatchInterceptor, WatchStep,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::faulty_server::LateList;
use super::fixture::{BUCKETS, CLAIMS, Fixture, target};
use super::store::Failure;

// Rules: Y3.
#[tokio::test(start_paused = true)]
async fn everything_is_deleted_with_the_claim() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.store.fail("delete_bucket", Failure::Retry);
    fixture.store.fail("delete_bucket", Failure::Late);
    fixture.delete(CLAIMS, "photos");
    fixture
        .until("it is reported", || fixture.events("photos").iter().any(|event| event.contains("BucketFailedDelete")))
        .await;
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
    assert_eq!(fixture.store.calls("delete_bucket"), 3);
    for (plural, name) in [(BUCKETS, "obc-default-photos"), ("secrets", "photos"), ("configmaps", "photos")] {
        fixture.until(plural, || fixture.get(plural, name).is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_whose_policy_changes_while_its_deletion_waits() {
    for kept in [
        json!({"spec": {"reclaimPolicy": "Retain"}}),
        json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}),
    ] {
        keeps_a_bucket_while_its_deletion_waits(kept).await;
    }
}

async fn keeps_a_bucket_while_its_deletion_waits(kept: Value) {
    let mut fixture = Fixture::new();
    // Two attempts of a namespace may begin, but only one of them may call the store at a time.
    fixture.options.options.max_concurrent_calls = 2;
    let _running = fixture.start(1);
    for name in ["photos", "films"] {
        fixture.claim(name, json!({}));
        fixture.until_bound(name).await;
    }
    fixture.store.state().pauses.insert("delete_bucket", Duration::from_secs(10));
    fixture.delete(CLAIMS, "photos");
    fixture.until("a deletion begins", || fixture.store.calls("delete_bucket") == 1).await;
    fixture.delete(CLAIMS, "films");
    // The other deletion waits for the permit of the first.
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.get(BUCKETS, "obc-default-films").unwrap()["status"]["phase"], "Released");
    fixture.patch(BUCKETS, "obc-default-films", kept);
    fixture.until_gone("films").await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.state().buckets.len()), (1, 1));
}

/// Silences the watch of ObjectBuckets at the first event with the policy Retain.
struct HidesRetain;

impl Interceptor for HidesRetain {
    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.resource.plural == BUCKETS).then(|| Box::new(Self) as Box<dyn WatchInterceptor>)
    }
}

impl WatchInterceptor for HidesRetain {
    fn event(&mut self, _: &'static str, object: &Stored) -> WatchStep {
        if object.value()["spec"]["reclaimPolicy"] == "Retain" { WatchStep::Silence } else { WatchStep::Deliver }
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_whose_policy_change_the_watch_missed() {
    let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(HidesRetain)));
    let _running = fixture.start(1);
    fixture.claim("photos", json!({}));
    fixture.until_bound("photos").await;
    (0..3).for_each(|_| fixture.store.fail("delete_bucket", Failure::Retry));
    fixture.delete(CLAIMS, "photos");
    fixture.until("its deletion fails", || fixture.store.calls("delete_bucket") == 1).await;
    fixture.patch(BUCKETS, "obc-default-photos", json!({"spec": {"reclaimPolicy": "Retain"}}));
    fixture.until_gone("photos").await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.state().buckets.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn reports_a_deletion_that_cannot_begin() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    fixture.store.fail("start", Failure::Retry);
    fixture.delete(CLAIMS, "photos");
    let _running = fixture.start(2);
    let text = "BucketFailedDelete: The bucket cannot be deleted at the moment";
    fixture.until("it is reported", || fixture.events("photos").iter().any(|event| event.contains(text))).await;
}

/// The process ends after it has removed its finalizer from the ObjectBucket, which another finalizer holds.
#[tokio::test(start_paused = true)]
async fn a_claim_ignores_foreign_finalizers_of_its_object_bucket() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    fixture.patch(BUCKETS, "obc-default-photos", json!({"metadata": {"finalizers": ["example.com/other"]}}));
    fixture.delete(BUCKETS, "obc-default-photos");
    fixture.delete(CLAIMS, "photos");
    let _running = fixture.start(2);
    fixture.until_gone("photos").await;
    assert!(fixture.get(BUCKETS, "obc-default-photos").is_some());
    assert!(fixture.get("secrets", "photos").is_none());
    assert_eq!(fixture.store.calls("delete_bucket"), 0);
}

/// Another provisioner created the ObjectBucket, and its finalizer was removed.
#[tokio::test(start_paused = true)]
async fn retries_the_deletion_of_a_bucket_without_a_finalizer() {
    let fixture = Fixture::new();
    let uid = fixture.claim("photos", json!({"bucketName": "photos", "objectBucketName": "obc-default-photos"}));
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"finalizers": ["objectbucket.io/finalizer"]}}));
    fixture.create(json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket", "metadata": {"name": "obc-default-photos"},
        "spec": {
            "storageClassName": "class", "reclaimPolicy": "Delete", "endpoint": {"bucketName": "photos"},
            "claimRef": {"namespace": "default", "name": "photos", "uid": uid},
        },
    }));
    fixture.store.state().buckets.insert("photos".to_owned(), format!("obc-default-photos-{uid}"));
    fixture.store.fail("delete_bucket", Failure::Retry);
    fixture.delete(CLAIMS, "photos");
    let _running = fixture.start(1);
    fixture.until_gone("photos").await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.is_empty()), (2, true));
}

// Rules: Y3.
#[tokio::test(start_paused = true)]
async fn keeps_the_account_until_the_bucket_is_deleted() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for method in ["delete_bucket", "revoke"] {
        (0..3).for_each(|_| fixture.store.fail(method, Failure::Retry));
    }
    fixture.delete(CLAIMS, "photos");
    fixture.until("it is tried again", || fixture.store.calls("delete_bucket") == 3).await;
    let keys = fixture.store.state().users.values().flatten().count();
    assert_eq!((fixture.store.calls("revoke"), keys), (0, 1));
    fixture.until_gone("photos").await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.calls("revoke")), (7, 4));
    assert!(fixture.store.is_empty());
}

// Rules: Z3.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_deleted_without_its_class() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.delete("storageclasses", "class");
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.state().buckets.is_empty());
    running.abort();
}

// Rules: Z4.
#[tokio::test(start_paused = true)]
async fn a_recreated_class_does_not_delete_a_granted_bucket() {
    let fixture = Fixture::new();
    fixture.store.state().buckets.insert("shared".to_owned(), "somebody".to_owned());
    fixture.class("granted", json!({"parameters": {"bucketName": "shared"}}));
    fixture.claim("one", json!({"storageClassName": "granted"}));
    let _running = fixture.start(1);
    fixture.until_bound("one").await;
    fixture.delete("storageclasses", "granted");
    fixture.class("granted", json!({}));
    fixture.delete(CLAIMS, "one");
    fixture.until_gone("one").await;
    assert!(fixture.store.state().buckets.contains_key("shared"));
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.calls("revoke")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn deletes_the_user_of_a_retained_bucket() {
    let fixture = Fixture::new();
    fixture.class("kept", json!({"reclaimPolicy": "Retain"}));
    fixture.claim("photos", json!({"storageClassName": "kept"}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    let state = fixture.store.state();
    assert_eq!((state.buckets.len(), state.users.len()), (1, 0));
}

/// An administrator removes the ObjectBucket of a bound claim by force, and the attempt to recreate it keeps failing.
#[tokio::test(start_paused = true)]
async fn a_retained_bucket_survives_the_loss_of_its_object_bucket() {
    let fixture = Fixture::new();
    fixture.class("kept", json!({"reclaimPolicy": "Retain"}));
    fixture.claim("photos", json!({"storageClassName": "kept"}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for _ in 0..1000 {
        fixture.store.fail("create_bucket", Failure::Late);
    }
    fixture.patch(BUCKETS, "obc-default-photos", json!({"metadata": {"finalizers": null}}));
    fixture.delete(BUCKETS, "obc-default-photos");
    fixture.until("the attempt is repeated", || fixture.store.calls("create_bucket") > 2).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    let state = fixture.store.state();
    assert_eq!((state.buckets.len(), state.users.len()), (1, 0));
}

// Rules: Z1.
#[tokio::test(start_paused = true)]
async fn an_unfinished_attempt_is_cleaned_up() {
    let fixture = Fixture::new();
    for _ in 0..1000 {
        fixture.store.fail("create_bucket", Failure::Late);
    }
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until("the bucket exists", || !fixture.store.state().buckets.is_empty()).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

// Rules: Z11.
#[tokio::test(start_paused = true)]
async fn a_recreated_claim_waits_until_its_predecessor_is_cleaned_up() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({"bucketName": "photos"}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    for _ in 0..3 {
        fixture.store.fail("delete_bucket", Failure::Retry);
    }
    fixture.delete(CLAIMS, "photos");
    fixture.until("the deletion has begun", || fixture.store.calls("delete_bucket") > 0).await;
    running.abort();
    // A user removes the claim's finalizer while no process runs.
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"finalizers": null}}));
    assert!(fixture.get(CLAIMS, "photos").is_none());
    let uid = fixture.claim("photos", json!({"bucketName": "photos"}));
    let _running = fixture.start(2);
    fixture.until("it waits", || fixture.ready("photos").0 == "AwaitsFormer").await;
    fixture.until_bound("photos").await;
    assert_eq!(fixture.store.state().buckets["photos"], format!("obc-default-photos-{uid}"));
    assert_eq!(fixture.store.calls("delete_bucket"), 4);
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_claim_is_released_without_deleting_its_bucket() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    for _ in 0..1000 {
        fixture.store.fail("delete_bucket", Failure::Retry);
    }
    fixture.delete(CLAIMS, "photos");
    fixture.until("it fails", || fixture.store.calls("delete_bucket") > 3).await;
    fixture.patch(
        BUCKETS,
        "obc-default-photos",
        json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}),
    );
    fixture.until_gone("photos").await;
    assert_eq!(fixture.store.state().buckets.len(), 1);
    fixture
        .until("it is reported", || fixture.events("photos").iter().any(|event| event.contains("BucketAbandoned")))
        .await;
}

/// Deletes the claim right after its finalizer was written, like an API server that began the deletion earlier.
struct DeletesAfterFinalizer(OnceLock<Cluster>);

impl Interceptor for DeletesAfterFinalizer {
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
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_overtakes_the_finalizer_leaves_nothing_behind() {
    let overtaken = Arc::new(DeletesAfterFinalizer(OnceLock::new()));
    let cluster = Cluster::builder().hide_managed_fields().interceptor(overtaken.clone()).build();
    for definition in crds(Validation::Standard) {
        cluster.create(&serde_json::to_value(&definition).unwrap()).unwrap();
    }
    overtaken.0.set(cluster.clone()).ok().unwrap();
    let fixture = Fixture::on(cluster);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_gone("photos").await;
    sleep(Duration::from_secs(600)).await;
    assert!(fixture.get(BUCKETS, "obc-default-photos").is_none());
    assert_eq!(fixture.store.state().calls, Vec::<String>::new());
}

/// Adds a finalizer to each new ObjectBucket, like an admission webhook.
struct AddsFinalizer(OnceLock<Cluster>);

impl Interceptor for AddsFinalizer {
    fn after<'a>(&'a self, request: &'a Request, status: u16) -> BoxFuture<'a, After> {
        let is_created = status == 201 && request.verb == Verb::Create && request.resource.plural == BUCKETS;
        if let Some(cluster) = self.0.get().filter(|_| is_created) {
            let finalizers = json!({"metadata": {"finalizers": ["objectbucket.io/finalizer", "example.com/other"]}});
            cluster.patch(&target(BUCKETS, "obc-default-photos"), None, PatchKind::Merge, &finalizers).unwrap();
        }
        Box::pin(async { After::Deliver })
    }
}

#[tokio::test(start_paused = true)]
async fn reports_an_object_bucket_that_a_foreign_finalizer_keeps() {
    let holds = Arc::new(AddsFinalizer(OnceLock::new()));
    let fixture = Fixture::built(Cluster::builder().interceptor(holds.clone()));
    holds.0.set(fixture.cluster.clone()).ok().unwrap();
    fixture.store.fail("create_bucket", Failure::NothingLeft);
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    let is_reported =
        || fixture.events("photos").iter().any(|event| event.contains("Creating the ObjectBucket: An object"));
    fixture.until("it is reported", is_reported).await;
    fixture.patch(BUCKETS, "obc-default-photos", json!({"metadata": {"finalizers": null}}));
    fixture.until_bound("photos").await;
}

#[tokio::test(start_paused = true)]
async fn a_late_list_leaves_no_terminating_object_bucket() {
    let list = LateList::default();
    let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(list.clone())));
    fixture.claim("earlier", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("earlier").await;
    list.arm();
    fixture.patch(BUCKETS, "obc-default-earlier", json!({"metadata": {"labels": {"watch": "expires"}}}));
    sleep(LateList::DELAY / 2).await;
    fixture.store.state().pauses.insert("create_bucket", LateList::DELAY * 2);
    fixture.store.fail("create_bucket", Failure::NothingLeft);
    fixture.claim("photos", json!({}));
    fixture.until("the list is complete", || fixture.store.calls("create_bucket") == 2).await;
    sleep(LateList::DELAY * 2 + Duration::from_secs(1)).await;
    let left = fixture.get(BUCKETS, "obc-default-photos").unwrap_or_default();
    assert_eq!(left["metadata"]["deletionTimestamp"], Value::Null, "{left:#}");
}

// Rules: Z38.
/// The claim is replaced as by `kubectl replace`, `helm upgrade --force` and Argo CD with `Replace=true`.
#[tokio::test(start_paused = true)]
async fn the_protection_of_a_bound_claim_is_restored() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let whole = || {
        let claim = fixture.get(CLAIMS, "photos").unwrap();
        let metadata = &claim["metadata"];
        let spec = &claim["spec"];
        (
            metadata["finalizers"].clone(),
            metadata["labels"].clone(),
            spec["bucketName"].clone(),
            spec["objectBucketName"].clone(),
        )
    };
    let before = whole();
    let replaced = json!({
        "metadata": {"finalizers": null, "labels": null}, "spec": {"bucketName": null, "objectBucketName": null},
    });
    // Replace the claim while it is idle, while a former key is still valid, and while no process runs.
    fixture.patch(CLAIMS, "photos", replaced.clone());
    fixture.until("the claim is restored", || whole() == before).await;
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    let rotated = || fixture.events("photos").iter().any(|event| event.contains("CredentialsRotated"));
    fixture.until("it is rotated", rotated).await;
    fixture.patch(CLAIMS, "photos", replaced.clone());
    fixture.until("the claim is restored", || whole() == before).await;
    running.abort();
    fixture.patch(CLAIMS, "photos", replaced);
    let _another = fixture.start(2);
    fixture.until("the claim is restored", || whole() == before).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty(), "{:?}", fixture.store.assets());
}

// Rules: Z39.
/// Users often change a claim to a class that retains buckets to keep its data, which has no effect.
#[tokio::test(start_paused = true)]
async fn the_event_about_a_changed_class_explains_retention() {
    let fixture = Fixture::new();
    fixture.class("keep", json!({"reclaimPolicy": "Retain"}));
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.patch(CLAIMS, "photos", json!({"spec": {"storageClassName": "keep"}}));
    let is_reported = || {
        let remedy =
            "kubectl patch objectbucket obc-default-photos --type=merge -p '{\"spec\":{\"reclaimPolicy\":\"Retain\"}}'";
        fixture
            .events("photos")
            .iter()
            .any(|event| event.contains("Warning ChangeWithoutEffect") && event.contains(remedy))
    };
    fixture.until("it is reported", is_reported).await;
    fixture.patch(BUCKETS, "obc-default-photos", json!({"spec": {"reclaimPolicy": "Retain"}}));
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert_eq!(fixture.store.state().buckets.len(), 1);
}
