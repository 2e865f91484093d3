//! The owner of a bucket: restored objects, objects that name no owner or another one, and objects of other clusters
//! and installations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{After, Before, Cluster, Interceptor, Request, Verb};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::faulty_server::refusing;
use super::fixture::{BUCKETS, CLAIMS, Fixture};
use super::store::Failure;

pub(super) const ROOK: &str = include_str!("../../../../objectbucket-api/fixtures/crds/rook.yaml");
const UPSTREAM: &str = include_str!("../../../../objectbucket-api/fixtures/crds/upstream.yaml");
const NOOBAA: &str = include_str!("../../../../objectbucket-api/fixtures/crds/noobaa.yaml");
pub(super) const OBJECT: &str = "obc-default-photos";

pub(super) fn fixture(definitions: &str) -> Fixture {
    seeded(0, definitions)
}

/// Creates a fixture whose objects have other uids than the objects of clusters with other seeds.
fn seeded(seed: u64, definitions: &str) -> Fixture {
    let cluster = Cluster::builder().seed(seed).hide_managed_fields().build();
    cluster.create_yaml(definitions).unwrap();
    Fixture::on(cluster)
}

/// Returns the object as a backup contains it, without its owners, like Velero.
fn backup(fixture: &Fixture, plural: &str, name: &str) -> Value {
    let mut object = fixture.get(plural, name).unwrap();
    object.as_object_mut().unwrap().remove("status");
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Deletes objects as if the cluster had been lost, while no process runs.
fn lose(fixture: &Fixture, objects: &[(&str, &str)]) {
    for (plural, name) in objects {
        fixture.patch(plural, name, json!({"metadata": {"finalizers": null}}));
        fixture.delete(plural, name);
        assert!(fixture.get(plural, name).is_none());
    }
}

pub(super) fn is_reported(fixture: &Fixture, name: &str, reason: &str) -> bool {
    fixture.events(name).iter().any(|event| event.contains(reason))
}

pub(super) const HOUR: Duration = Duration::from_secs(3600);

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn a_restored_object_bucket_waits_until_an_administrator_assigns_it() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let key = fixture.get("secrets", "photos").unwrap()["data"].clone();
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT)];
    let [claim, object] = objects.map(|(plural, name)| backup(&fixture, plural, name));
    lose(&fixture, &[(CLAIMS, "photos"), (BUCKETS, OBJECT)]);
    fixture.create(object);
    let _another = fixture.start(2);
    fixture.until("it is reported", || is_reported(&fixture, OBJECT, "ClaimMissing")).await;
    sleep(HOUR).await;
    let calls = fixture.store.state().calls.len();
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.state().buckets.len()), (0, 1));

    fixture.create(claim);
    fixture.until("it waits", || fixture.ready("photos").0 == "BucketLeft").await;
    let (_, text) = fixture.ready("photos");
    assert!(
        text.contains("kubectl annotate objectbucket obc-default-photos kube-provisioner/adopt-for=default/photos")
    );
    sleep(HOUR).await;
    assert_eq!(fixture.store.state().calls.len(), calls, "no calls before an administrator decides");
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/photos"}}});
    fixture.patch(BUCKETS, OBJECT, adopt);
    fixture.until_bound("photos").await;
    assert!(is_reported(&fixture, "photos", "Adopted"));
    fixture
        .until("the Secret is back", || fixture.get("secrets", "photos").is_some_and(|secret| secret["data"] == key))
        .await;
    assert!(fixture.get(BUCKETS, OBJECT).unwrap()["metadata"]["annotations"]["kube-provisioner/adopt-for"].is_null());
    assert_eq!(fixture.store.state().buckets.len(), 1);
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn adopts_a_secret_and_config_map_restored_without_owner() {
    let fixture = Fixture::new();
    fixture.store.state().shows_keys_once = true;
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT), ("secrets", "photos"), ("configmaps", "photos")];
    let [claim, object, secret, map] = objects.map(|(plural, name)| backup(&fixture, plural, name));
    lose(&fixture, &objects);
    for object in [object, secret.clone(), map, claim] {
        fixture.create(object);
    }
    let _another = fixture.start(2);
    fixture.until("it waits", || fixture.ready("photos").0 == "BucketLeft").await;
    let owners = |plural| fixture.get(plural, "photos").unwrap()["metadata"]["ownerReferences"].clone();
    assert!(owners("secrets").is_null(), "the bucket is not assigned to the claim yet");
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/photos"}}});
    fixture.patch(BUCKETS, OBJECT, adopt);
    fixture.until_bound("photos").await;
    let uid = fixture.get(CLAIMS, "photos").unwrap()["metadata"]["uid"].clone();
    for plural in ["secrets", "configmaps"] {
        fixture.until("it is owned", || owners(plural)[0]["uid"] == uid).await;
    }
    assert_eq!(fixture.get("secrets", "photos").unwrap()["data"], secret["data"]);
    assert_eq!(fixture.store.calls("create_bucket"), 2, "the bucket may have been deleted since the backup");
    fixture.until("unknown keys are removed", || fixture.store.calls("retire") == 1).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn recreates_bucket_and_user_that_were_deleted_after_the_backup() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT), ("secrets", "photos"), ("configmaps", "photos")];
    let copies = objects.map(|(plural, name)| backup(&fixture, plural, name));
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
    running.abort();
    copies.into_iter().for_each(|object| drop(fixture.create(object)));
    fixture.store.fail("grant", Failure::Retry);
    let _another = fixture.start(2);
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/photos"}}});
    fixture.patch(BUCKETS, OBJECT, adopt);
    fixture.until_bound("photos").await;
    sleep(HOUR).await;
    let id = fixture.store.state().users.values().flatten().map(|key| key.access_key_id.clone()).next();
    let id = encoded(&id.expect("the user has a key"));
    assert_eq!(fixture.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"], id);
}

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn an_administrator_can_delete_a_restored_object_bucket() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    let object = backup(&fixture, BUCKETS, OBJECT);
    lose(&fixture, &[(CLAIMS, "photos"), (BUCKETS, OBJECT)]);
    fixture.create(object);
    let _another = fixture.start(2);
    fixture.until("it is reported", || is_reported(&fixture, OBJECT, "ClaimMissing")).await;
    fixture.delete(BUCKETS, OBJECT);
    fixture.until("it is gone", || fixture.get(BUCKETS, OBJECT).is_none()).await;
    assert!(fixture.store.is_empty());
}

// Rules: Z39.
#[tokio::test(start_paused = true)]
async fn provisions_claims_whose_definition_drops_conditions() {
    let fixture = fixture(UPSTREAM);
    fixture.claim("photos", json!({}));
    fixture.claim("named", json!({"generateBucketName": null, "bucketName": "named"}));
    let _running = fixture.start(1);
    for claim in ["photos", "named"] {
        fixture.until_bound(claim).await;
    }
    for claim in ["photos", "named"] {
        fixture.delete(CLAIMS, claim);
        fixture.until_gone(claim).await;
    }
    assert!(fixture.store.is_empty());
}

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn keeps_an_object_bucket_of_rook_without_a_claim() {
    let mut fixture = fixture(ROOK);
    let mut object: Value =
        serde_json::from_str(include_str!("../../../../objectbucket-api/fixtures/rook/bucket.json")).unwrap();
    let class = object["spec"]["storageClassName"].as_str().unwrap().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    fixture.create(object);
    "rook-ceph.ceph.rook.io/bucket".clone_into(&mut fixture.options.options.provisioner_name);
    fixture.class(&class, json!({"provisioner": "rook-ceph.ceph.rook.io/bucket"}));
    let _running = fixture.start(1);
    fixture.until("it is reported", || is_reported(&fixture, &name, "ClaimMissing")).await;
    sleep(HOUR).await;
    assert!(fixture.get(BUCKETS, &name).unwrap()["metadata"]["deletionTimestamp"].is_null());
    // The ObjectBucket may be a copy, and the bucket may be in use in another cluster.
    fixture.delete(BUCKETS, &name);
    sleep(HOUR).await;
    assert_eq!(fixture.store.state().calls, Vec::<String>::new());
    fixture.patch(BUCKETS, &name, json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}));
    fixture.until("it is gone", || fixture.get(BUCKETS, &name).is_none()).await;
    assert_eq!(fixture.store.state().calls, Vec::<String>::new());
}

// Rules: Z20.
#[tokio::test(start_paused = true)]
async fn adopts_an_object_bucket_of_rook_by_its_former_claims_uid() {
    let mut fixture = fixture(ROOK);
    let mut object: Value =
        serde_json::from_str(include_str!("../../../../objectbucket-api/fixtures/rook/bucket.json")).unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let (object_name, class) = (text("/metadata/name"), text("/spec/storageClassName"));
    let [namespace, name, uid] = ["namespace", "name", "uid"].map(|part| text(&format!("/spec/claimRef/{part}")));
    let bucket = text("/spec/endpoint/bucketName");
    fixture.store.state().buckets.insert(bucket.clone(), format!("obc-{namespace}-{name}-{uid}"));
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    fixture.create(object);
    "rook-ceph.ceph.rook.io/bucket".clone_into(&mut fixture.options.options.provisioner_name);
    fixture.class(&class, json!({"provisioner": "rook-ceph.ceph.rook.io/bucket"}));
    let path = format!("{namespace}/{name}");
    fixture.claim_in(&namespace, &name, json!({"storageClassName": class, "bucketName": bucket}));
    let _running = fixture.start(1);
    fixture.until("it waits", || is_reported(&fixture, &name, "BucketLeft")).await;
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": path}}});
    fixture.patch(BUCKETS, &object_name, adopt);
    fixture.until_bound(&path).await;
    assert_eq!(fixture.store.state().buckets.len(), 1);
    fixture.delete(CLAIMS, &path);
    fixture.until_gone(&path).await;
    assert!(fixture.store.is_empty());
}

// Rules: Z21.
#[tokio::test(start_paused = true)]
async fn a_claim_naming_a_foreign_object_bucket_receives_its_own() {
    let fixture = fixture(NOOBAA);
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}));
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    assert!(fixture.get(BUCKETS, OBJECT).unwrap()["spec"]["claimRef"]["uid"].is_null(), "the definition drops it");
    let key = fixture.get("secrets", "photos").unwrap()["data"].clone();
    running.abort();
    fixture.claim_in("evil", "x", json!({"objectBucketName": OBJECT}));
    let _another = fixture.start(2);
    fixture.until_bound("evil/x").await;
    assert_ne!(fixture.get("secrets", "evil/x").unwrap()["data"], key);
    assert_eq!(fixture.store.state().buckets.len(), 2);
    fixture.delete(CLAIMS, "evil/x");
    fixture.until_gone("evil/x").await;
    sleep(HOUR).await;
    assert_eq!((fixture.phase("photos"), fixture.store.state().buckets.len()), ("Bound".to_owned(), 1));
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    assert!(fixture.store.is_empty());
}

/// Creates a fixture with an ObjectBucket of NooBaa that does not name a claim.
fn left_by_noobaa() -> Fixture {
    let mut fixture = fixture(NOOBAA);
    let object = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
        "metadata": {
            "name": "obc-shop-backups", "labels": {"bucket-provisioner": "openshift-storage.noobaa.io-obc"},
            "finalizers": ["objectbucket.io/finalizer"],
        },
        "spec": {"storageClassName": "noobaa", "reclaimPolicy": "Delete", "claimRef": {}, "endpoint": {
            "bucketHost": "s3.svc", "bucketPort": 443, "bucketName": "backups-1"}},
    });
    fixture.create(object);
    let provisioner = "openshift-storage.noobaa.io/obc";
    provisioner.clone_into(&mut fixture.options.options.provisioner_name);
    fixture.class("noobaa", json!({"provisioner": provisioner}));
    fixture
}

// Rules: Z21.
#[tokio::test(start_paused = true)]
async fn an_unclaimed_object_bucket_is_reported_and_removed_on_request() {
    let fixture = left_by_noobaa();
    let _running = fixture.start(1);
    fixture.until("it has an event", || is_reported(&fixture, "obc-shop-backups", "ObjectBucketUnclaimed")).await;
    fixture.delete(BUCKETS, "obc-shop-backups");
    sleep(HOUR).await;
    assert!(fixture.get(BUCKETS, "obc-shop-backups").is_some(), "the record of its bucket would be lost");
    let abandon = json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}});
    fixture.patch(BUCKETS, "obc-shop-backups", abandon);
    fixture.until("it is gone", || fixture.get(BUCKETS, "obc-shop-backups").is_none()).await;
    assert_eq!(fixture.store.state().calls, Vec::<String>::new());
}

// Rules: Z21.
#[tokio::test(start_paused = true)]
async fn an_object_bucket_can_be_assigned_to_a_terminating_claim() {
    let fixture = left_by_noobaa();
    fixture.store.state().buckets.insert("backups-1".to_owned(), "somebody's".to_owned());
    let spec = json!({"storageClassName": "noobaa", "objectBucketName": "obc-shop-backups"});
    sleep(Duration::from_secs(5)).await;
    fixture.claim("backups", spec);
    fixture.patch(CLAIMS, "backups", json!({"metadata": {"finalizers": ["objectbucket.io/finalizer"]}}));
    fixture.delete(CLAIMS, "backups");
    let _running = fixture.start(1);
    fixture.until("it is reported", || is_reported(&fixture, "backups", "ObjectBucketNotProven")).await;
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/backups"}}});
    fixture.patch(BUCKETS, "obc-shop-backups", adopt);
    fixture.until_gone("backups").await;
    assert!(fixture.get(BUCKETS, "obc-shop-backups").is_none());
}

// Rules: Z21.
#[tokio::test(start_paused = true)]
async fn only_an_administrator_assigns_an_unclaimed_object_bucket() {
    let fixture = left_by_noobaa();
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}));
    let spec = json!({"storageClassName": "noobaa", "objectBucketName": "obc-shop-backups"});
    sleep(Duration::from_secs(5)).await;
    fixture.claim_in("evil", "x", spec.clone());
    let _running = fixture.start(1);
    fixture.until("it is reported", || is_reported(&fixture, "x", "ObjectBucketNotProven")).await;
    // Create, after the ObjectBucket, a claim whose namespace and name result in the same ObjectBucket name.
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    fixture.claim_in("shop", "backups", spec);
    fixture.until("it is reported", || is_reported(&fixture, "backups", "ObjectBucketNotProven")).await;
    sleep(HOUR).await;
    assert_eq!(fixture.store.state().calls, Vec::<String>::new());
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "shop/backups"}}});
    fixture.patch(BUCKETS, "obc-shop-backups", adopt);
    fixture.until("it is adopted", || is_reported(&fixture, "backups", "Adopted")).await;
    assert!(!is_reported(&fixture, "x", "Adopted"));
}

// Rules: Z22.
#[tokio::test(start_paused = true)]
async fn objects_of_another_cluster_are_left_unchanged() {
    let fixture = seeded(1, ROOK);
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT)];
    let [claim, object] = objects.map(|(plural, name)| backup(&fixture, plural, name));

    let mut other = seeded(2, ROOK);
    other.store = fixture.store.clone();
    other.create(object);
    other.create(claim);
    other.claim("videos", json!({}));
    let all = || fixture.store.state().calls.iter().filter(|call| !call.starts_with("list_keys")).count();
    let calls = all();
    let _running = other.start(7);
    other.until("it is reported", || is_reported(&other, OBJECT, "OtherCluster")).await;
    other.until("its claim reports it", || other.ready("photos").0 == "OtherCluster").await;
    other.until_bound("videos").await;
    other.delete(BUCKETS, OBJECT);
    sleep(HOUR).await;
    assert_eq!(all(), calls + 2, "only the other claim's bucket and account");
    // An administrator can request the removal of its objects, but nothing else is removed.
    other.patch(BUCKETS, OBJECT, json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}));
    other.until("it is gone", || other.get(BUCKETS, OBJECT).is_none()).await;
    assert_eq!((fixture.store.calls("delete_bucket"), fixture.store.calls("revoke")), (0, 0));
}

// Rules: Z23.
#[tokio::test(start_paused = true)]
async fn a_terminating_claim_reports_the_installation_that_owns_it() {
    let mut fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    running.abort();
    fixture.options.options.namespace = Some("elsewhere".to_owned());
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}));
    let _moved = fixture.start(2);
    sleep(HOUR).await;
    assert!(!is_reported(&fixture, "photos", "OtherInstallation"), "the bucket can still be used");
    fixture.delete(CLAIMS, "photos");
    let waited = fixture.until("it is reported", || is_reported(&fixture, "photos", "OtherInstallation")).await;
    assert!(waited < Duration::from_secs(120), "{waited:?}");
    assert!(fixture.events("photos").iter().any(|event| event.contains("--identity default")));
}

// Rules: Z25.
#[tokio::test(start_paused = true)]
async fn the_current_key_works_while_the_next_cannot_be_written() {
    let (refused, fixture) = refusing(|request| request.resource.plural == "secrets");
    fixture.store.state().shows_keys_once = true;
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    sleep(Duration::from_secs(5)).await;
    let in_secret =
        || fixture.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].as_str().unwrap().to_owned();
    let works = |key: &str| {
        let state = fixture.store.state();
        let ids = state.users.values().flatten().map(|known| encoded(&known.access_key_id)).collect::<Vec<_>>();
        ids.iter().any(|known| known == key)
    };
    let first = in_secret();
    refused.store(5, Ordering::Relaxed);
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    for _ in 0..20_000 {
        let key = in_secret();
        assert!(works(&key), "the pods' key was removed");
        if key != first {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(refused.load(Ordering::Relaxed), 0);
    assert_ne!(in_secret(), first);
    assert!(works(&first), "it works during the overlap");
    fixture
        .until("the record is complete", || {
            let record = record(&fixture);
            record["rotation"] == "1" && record["newKey"].is_null()
        })
        .await;
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 2);
}

// Rules: Z25.
#[tokio::test(start_paused = true)]
async fn a_secret_lost_during_rotation_is_restored_with_the_new_key() {
    let (refused, fixture) = refusing(|request| request.resource.plural == "secrets" && !request.options.dry_run);
    fixture.overlap("2h");
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until_bound("photos").await;
    refused.store(u32::MAX, Ordering::Relaxed);
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("a key is recorded but not delivered", || !record(&fixture)["newKey"].is_null()).await;
    running.abort();
    let newest = record(&fixture)["newKey"]["accessKeyId"].as_str().unwrap().to_owned();
    fixture.delete("secrets", "photos");
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": null}}));
    refused.store(0, Ordering::Relaxed);
    let _another = fixture.start(2);
    fixture.until("it is back", || fixture.get("secrets", "photos").is_some()).await;
    let secret = fixture.get("secrets", "photos").unwrap();
    assert_eq!(secret["data"]["AWS_ACCESS_KEY_ID"], encoded(&newest));
    sleep(HOUR).await;
    assert_eq!(
        fixture.store.state().users.values().map(Vec::len).sum::<usize>(),
        2,
        "the former key works during the overlap"
    );
    sleep(2 * HOUR).await;
    assert_eq!(fixture.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

// Rules: Z25.
#[tokio::test(start_paused = true)]
async fn losing_the_secret_of_an_unbound_claim_keeps_the_rotation() {
    let is_refused = |request: &Request| match request.resource.plural.as_str() {
        "configmaps" => format!("{:?}", request.content).contains("BUCKET_NAME"),
        "secrets" => request.verb == Verb::Patch && !request.options.dry_run,
        _ => false,
    };
    let (refused, fixture) = refusing(is_refused);
    refused.store(u32::MAX, Ordering::Relaxed);
    fixture.claim("photos", json!({}));
    let running = fixture.start(1);
    fixture.until("there is a Secret", || fixture.get("secrets", "photos").is_some()).await;
    let in_secret = || fixture.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].clone();
    let first = in_secret();
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("a key is created", || record(&fixture)["newKey"].is_object()).await;
    running.abort();
    fixture.delete("secrets", "photos");
    refused.store(0, Ordering::Relaxed);
    let _another = fixture.start(2);
    fixture.until_bound("photos").await;
    assert_ne!(in_secret(), first);
}

/// Delivers the patch of a Secret, once, some time after its connection broke.
#[derive(Default)]
struct LatePatch(AtomicBool);

impl Interceptor for LatePatch {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let is_write = request.verb == Verb::Patch && request.resource.plural == "secrets" && !request.options.dry_run;
        let is_late = is_write && !self.0.swap(true, Ordering::Relaxed);
        let answer = if is_late { Before::BreakAndHandle(Duration::from_secs(20)) } else { Before::Handle };
        Box::pin(async move { answer })
    }

    fn after<'a>(&'a self, _: &'a Request, _: u16) -> BoxFuture<'a, After> {
        Box::pin(async { After::Deliver })
    }
}

// Rules: Z25.
#[tokio::test(start_paused = true)]
async fn a_late_write_of_a_replaced_key_fails() {
    let fixture = Fixture::built(Cluster::builder().interceptor(Arc::new(LatePatch::default())));
    fixture.store.state().shows_keys_once = true;
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    fixture.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    fixture.until("a key is created", || fixture.store.calls("rotate") == 1).await;
    // Each call removes the key of the previous call.
    for _ in 0..20 {
        fixture.store.fail("rotate", Failure::Late);
    }
    sleep(Duration::from_secs(60)).await;
    let secret = fixture.get("secrets", "photos").unwrap();
    let works = fixture
        .store
        .state()
        .users
        .values()
        .flatten()
        .any(|key| secret["data"]["AWS_ACCESS_KEY_ID"] == encoded(&key.access_key_id));
    assert!(works, "{:?}", fixture.store.assets());
}

/// Returns the record in the ObjectBucket.
fn record(fixture: &Fixture) -> Value {
    let object = fixture.get(BUCKETS, OBJECT).unwrap();
    let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap();
    serde_json::from_str(record).unwrap()
}

/// Returns a text in the encoding of a Secret's data.
fn encoded(text: &str) -> String {
    let secret = json!({"data": {"key": k8s_openapi::ByteString(text.as_bytes().to_vec())}});
    secret["data"]["key"].as_str().unwrap().to_owned()
}

// Rules: Z26.
#[tokio::test(start_paused = true)]
async fn foreign_finalizers_stay_on_secrets() {
    let fixture = Fixture::new();
    fixture.claim("photos", json!({}));
    let _running = fixture.start(1);
    fixture.until_bound("photos").await;
    let finalizers = json!({"metadata": {"finalizers": ["objectbucket.io/finalizer", "example.com/backup"]}});
    fixture.patch("secrets", "photos", finalizers);
    sleep(Duration::from_secs(5)).await;
    fixture.delete(CLAIMS, "photos");
    fixture.until_gone("photos").await;
    let secret = fixture.get("secrets", "photos").unwrap();
    assert_eq!(secret["metadata"]["finalizers"], json!(["example.com/backup"]));
}
