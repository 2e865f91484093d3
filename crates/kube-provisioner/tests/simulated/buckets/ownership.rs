//! The owner of a bucket: objects that were restored, that name nobody or somebody else, and those of other clusters and
//! installations.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::refusing::refusing;
use super::stand::{BUCKETS, CLAIMS, Stand};
use super::store::Failure;

pub(super) const ROOK: &str = include_str!("../../../../objectbucket-api/fixtures/crds/rook.yaml");
const NOOBAA: &str = include_str!("../../../../objectbucket-api/fixtures/crds/noobaa.yaml");
pub(super) const OBJECT: &str = "obc-default-photos";

pub(super) fn stand(definitions: &str) -> Stand {
    seeded(0, definitions)
}

/// Objects of clusters with other seeds have other uids.
fn seeded(seed: u64, definitions: &str) -> Stand {
    let cluster = Cluster::builder().seed(seed).hide_managed_fields().build();
    cluster.create_yaml(definitions).unwrap();
    Stand::on(cluster)
}

/// The object as a backup has it, without its owners as from Velero.
fn backup(stand: &Stand, plural: &str, name: &str) -> Value {
    let mut object = stand.get(plural, name).unwrap();
    object.as_object_mut().unwrap().remove("status");
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "ownerReferences"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

/// Takes objects away as if the cluster had been lost, while nobody looks.
fn lose(stand: &Stand, objects: &[(&str, &str)]) {
    for (plural, name) in objects {
        stand.patch(plural, name, json!({"metadata": {"finalizers": null}}));
        stand.delete(plural, name);
        assert!(stand.get(plural, name).is_none());
    }
}

pub(super) fn told(stand: &Stand, name: &str, reason: &str) -> bool {
    stand.events(name).iter().any(|event| event.contains(reason))
}

pub(super) const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn z20_a_restored_object_bucket_is_kept_and_given_to_its_claim_by_a_person() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let key = stand.get("secrets", "photos").unwrap()["data"].clone();
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT)];
    let [claim, object] = objects.map(|(plural, name)| backup(&stand, plural, name));
    lose(&stand, &[(CLAIMS, "photos"), (BUCKETS, OBJECT)]);
    stand.create(object);
    let _another = stand.start(2);
    stand.until("it is told", || told(&stand, OBJECT, "ClaimMissing")).await;
    sleep(HOUR).await;
    let calls = stand.store.state().calls.len();
    assert_eq!((stand.store.calls("delete"), stand.store.state().buckets.len()), (0, 1));

    stand.create(claim);
    stand.until("it waits", || stand.ready("photos").0 == "BucketLeft").await;
    let (_, text) = stand.ready("photos");
    assert!(
        text.contains("kubectl annotate objectbucket obc-default-photos kube-provisioner/adopt-for=default/photos")
    );
    sleep(HOUR).await;
    assert_eq!(stand.store.state().calls.len(), calls, "nothing is called before a person says so");
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/photos"}}});
    stand.patch(BUCKETS, OBJECT, adopt);
    stand.bound("photos").await;
    assert!(told(&stand, "photos", "Adopted"));
    stand
        .until("the Secret is back", || stand.get("secrets", "photos").is_some_and(|secret| secret["data"] == key))
        .await;
    assert!(stand.get(BUCKETS, OBJECT).unwrap()["metadata"]["annotations"]["kube-provisioner/adopt-for"].is_null());
    assert_eq!(stand.store.state().buckets.len(), 1);
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z20_a_secret_and_a_config_map_that_were_restored_without_an_owner_are_the_claims_again() {
    let stand = Stand::new();
    stand.store.state().shows_keys_once = true;
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT), ("secrets", "photos"), ("configmaps", "photos")];
    let [claim, object, secret, map] = objects.map(|(plural, name)| backup(&stand, plural, name));
    lose(&stand, &objects);
    for object in [object, secret.clone(), map, claim] {
        stand.create(object);
    }
    let _another = stand.start(2);
    stand.until("it waits", || stand.ready("photos").0 == "BucketLeft").await;
    let owners = |plural| stand.get(plural, "photos").unwrap()["metadata"]["ownerReferences"].clone();
    assert!(owners("secrets").is_null(), "nobody has given the bucket to the claim");
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/photos"}}});
    stand.patch(BUCKETS, OBJECT, adopt);
    stand.bound("photos").await;
    let uid = stand.get(CLAIMS, "photos").unwrap()["metadata"]["uid"].clone();
    for plural in ["secrets", "configmaps"] {
        stand.until("it is owned", || owners(plural)[0]["uid"] == uid).await;
    }
    assert_eq!(stand.get("secrets", "photos").unwrap()["data"], secret["data"]);
    assert_eq!(stand.store.calls("provision"), 2, "the bucket may be gone since the backup");
    stand.until("keys that nobody knows are removed", || stand.store.calls("retire") == 1).await;
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z20_a_restored_object_bucket_is_removed_when_a_person_deletes_it() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    running.abort();
    let object = backup(&stand, BUCKETS, OBJECT);
    lose(&stand, &[(CLAIMS, "photos"), (BUCKETS, OBJECT)]);
    stand.create(object);
    let _another = stand.start(2);
    stand.until("it is told", || told(&stand, OBJECT, "ClaimMissing")).await;
    stand.delete(BUCKETS, OBJECT);
    stand.until("it is gone", || stand.get(BUCKETS, OBJECT).is_none()).await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z20_what_rook_left_without_its_claim_is_kept() {
    let mut stand = stand(ROOK);
    let mut object: Value =
        serde_json::from_str(include_str!("../../../../objectbucket-api/fixtures/rook/bucket.json")).unwrap();
    let class = object["spec"]["storageClassName"].as_str().unwrap().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    stand.create(object);
    "rook-ceph.ceph.rook.io/bucket".clone_into(&mut stand.options.options.provisioner_name);
    stand.class(&class, json!({"provisioner": "rook-ceph.ceph.rook.io/bucket"}));
    let _running = stand.start(1);
    stand.until("it is told", || told(&stand, &name, "ClaimMissing")).await;
    sleep(HOUR).await;
    assert!(stand.get(BUCKETS, &name).unwrap()["metadata"]["deletionTimestamp"].is_null());
    // It may be a copy, and the bucket in use in another cluster.
    stand.delete(BUCKETS, &name);
    sleep(HOUR).await;
    assert_eq!(stand.store.state().calls, Vec::<String>::new());
    stand.patch(BUCKETS, &name, json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}));
    stand.until("it is gone", || stand.get(BUCKETS, &name).is_none()).await;
    assert_eq!(stand.store.state().calls, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z20_what_rook_left_is_given_with_the_uid_that_it_was_made_for() {
    let mut stand = stand(ROOK);
    let mut object: Value =
        serde_json::from_str(include_str!("../../../../objectbucket-api/fixtures/rook/bucket.json")).unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    let text = |pointer: &str| object.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let (object_name, class) = (text("/metadata/name"), text("/spec/storageClassName"));
    let [namespace, name, uid] = ["namespace", "name", "uid"].map(|part| text(&format!("/spec/claimRef/{part}")));
    let bucket = text("/spec/endpoint/bucketName");
    stand.store.state().buckets.insert(bucket.clone(), format!("obc-{namespace}-{name}-{uid}"));
    stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
    stand.create(object);
    "rook-ceph.ceph.rook.io/bucket".clone_into(&mut stand.options.options.provisioner_name);
    stand.class(&class, json!({"provisioner": "rook-ceph.ceph.rook.io/bucket"}));
    let path = format!("{namespace}/{name}");
    stand.claim_in(&namespace, &name, json!({"storageClassName": class, "bucketName": bucket}));
    let _running = stand.start(1);
    stand.until("it waits", || told(&stand, &name, "BucketLeft")).await;
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": path}}});
    stand.patch(BUCKETS, &object_name, adopt);
    stand.bound(&path).await;
    assert_eq!(stand.store.state().buckets.len(), 1);
    stand.delete(CLAIMS, &path);
    stand.gone(&path).await;
    assert!(stand.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn z21_who_points_at_anothers_object_bucket_gets_nothing_of_it() {
    let stand = stand(NOOBAA);
    stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}));
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    assert!(stand.get(BUCKETS, OBJECT).unwrap()["spec"]["claimRef"]["uid"].is_null(), "the definition drops it");
    let key = stand.get("secrets", "photos").unwrap()["data"].clone();
    running.abort();
    stand.claim_in("evil", "x", json!({"objectBucketName": OBJECT}));
    let _another = stand.start(2);
    stand.bound("evil/x").await;
    assert_ne!(stand.get("secrets", "evil/x").unwrap()["data"], key);
    assert_eq!(stand.store.state().buckets.len(), 2);
    stand.delete(CLAIMS, "evil/x");
    stand.gone("evil/x").await;
    sleep(HOUR).await;
    assert_eq!((stand.phase("photos"), stand.store.state().buckets.len()), ("Bound".to_owned(), 1));
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    assert!(stand.store.is_empty());
}

/// What NooBaa has left: an ObjectBucket that names no claim.
fn left_by_noobaa() -> Stand {
    let mut stand = stand(NOOBAA);
    let object = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
        "metadata": {
            "name": "obc-shop-backups", "labels": {"bucket-provisioner": "openshift-storage.noobaa.io-obc"},
            "finalizers": ["objectbucket.io/finalizer"],
        },
        "spec": {"storageClassName": "noobaa", "reclaimPolicy": "Delete", "claimRef": {}, "endpoint": {
            "bucketHost": "s3.svc", "bucketPort": 443, "bucketName": "backups-1"}},
    });
    stand.create(object);
    let provisioner = "openshift-storage.noobaa.io/obc";
    provisioner.clone_into(&mut stand.options.options.provisioner_name);
    stand.class("noobaa", json!({"provisioner": provisioner}));
    stand
}

#[tokio::test(start_paused = true)]
async fn z21_an_object_bucket_that_nobody_names_says_so_and_is_forgotten_on_demand() {
    let stand = left_by_noobaa();
    let _running = stand.start(1);
    stand.until("it has an event", || told(&stand, "obc-shop-backups", "ObjectBucketUnclaimed")).await;
    stand.delete(BUCKETS, "obc-shop-backups");
    sleep(HOUR).await;
    assert!(stand.get(BUCKETS, "obc-shop-backups").is_some(), "its bucket would be forgotten");
    let abandon = json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}});
    stand.patch(BUCKETS, "obc-shop-backups", abandon);
    stand.until("it is gone", || stand.get(BUCKETS, "obc-shop-backups").is_none()).await;
    assert_eq!(stand.store.state().calls, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z21_a_claim_that_is_being_deleted_can_be_given_its_object_bucket() {
    let stand = left_by_noobaa();
    stand.store.state().buckets.insert("backups-1".to_owned(), "somebody's".to_owned());
    let spec = json!({"storageClassName": "noobaa", "objectBucketName": "obc-shop-backups"});
    sleep(Duration::from_secs(5)).await;
    stand.claim("backups", spec);
    stand.patch(CLAIMS, "backups", json!({"metadata": {"finalizers": ["objectbucket.io/finalizer"]}}));
    stand.delete(CLAIMS, "backups");
    let _running = stand.start(1);
    stand.until("it says why", || told(&stand, "backups", "ObjectBucketNotProven")).await;
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "default/backups"}}});
    stand.patch(BUCKETS, "obc-shop-backups", adopt);
    stand.gone("backups").await;
    assert!(stand.get(BUCKETS, "obc-shop-backups").is_none());
}

#[tokio::test(start_paused = true)]
async fn z21_an_object_bucket_that_names_nobody_is_given_by_a_person_alone() {
    let stand = left_by_noobaa();
    stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}));
    let spec = json!({"storageClassName": "noobaa", "objectBucketName": "obc-shop-backups"});
    sleep(Duration::from_secs(5)).await;
    stand.claim_in("evil", "x", spec.clone());
    let _running = stand.start(1);
    stand.until("it is told", || told(&stand, "x", "ObjectBucketNotProven")).await;
    // A namespace and a name that give the same, made after the ObjectBucket.
    stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    stand.claim_in("shop", "backups", spec);
    stand.until("it is told", || told(&stand, "backups", "ObjectBucketNotProven")).await;
    sleep(HOUR).await;
    assert_eq!(stand.store.state().calls, Vec::<String>::new());
    let adopt = json!({"metadata": {"annotations": {"kube-provisioner/adopt-for": "shop/backups"}}});
    stand.patch(BUCKETS, "obc-shop-backups", adopt);
    stand.until("it is adopted", || told(&stand, "backups", "Adopted")).await;
    assert!(!told(&stand, "x", "Adopted"));
}

#[tokio::test(start_paused = true)]
async fn z22_what_another_cluster_has_made_is_left_alone() {
    let stand = seeded(1, ROOK);
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    running.abort();
    let objects = [(CLAIMS, "photos"), (BUCKETS, OBJECT)];
    let [claim, object] = objects.map(|(plural, name)| backup(&stand, plural, name));

    let mut other = seeded(2, ROOK);
    other.store = stand.store.clone();
    other.create(object);
    other.create(claim);
    other.claim("videos", json!({}));
    let calls = stand.store.state().calls.len();
    let _running = other.start(7);
    other.until("it is told", || told(&other, OBJECT, "OtherCluster")).await;
    other.until("its claim is told", || other.ready("photos").0 == "OtherCluster").await;
    other.bound("videos").await;
    other.delete(BUCKETS, OBJECT);
    sleep(HOUR).await;
    assert_eq!(stand.store.state().calls.len(), calls + 1, "the other claim's bucket alone");
    // Its objects go on request, and nothing else does.
    other.patch(BUCKETS, OBJECT, json!({"metadata": {"annotations": {"kube-provisioner/abandon": "true"}}}));
    other.until("it is gone", || other.get(BUCKETS, OBJECT).is_none()).await;
    assert_eq!((stand.store.calls("delete"), stand.store.calls("revoke")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn z23_a_claim_that_another_installation_has_to_release_says_so() {
    let mut stand = Stand::new();
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    running.abort();
    stand.options.options.namespace = Some("elsewhere".to_owned());
    stand.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}));
    let _moved = stand.start(2);
    sleep(HOUR).await;
    assert!(!told(&stand, "photos", "OtherInstallation"), "it can be used");
    stand.delete(CLAIMS, "photos");
    let waited = stand.until("it is told", || told(&stand, "photos", "OtherInstallation")).await;
    assert!(waited < Duration::from_secs(120), "{waited:?}");
    assert!(stand.events("photos").iter().any(|event| event.contains("--identity default")));
}

#[tokio::test(start_paused = true)]
async fn z24_what_was_applied_is_never_refused_later() {
    let stand = Stand::new();
    stand.claim("photos", json!({"additionalConfig": {"maxObjects": "2"}}));
    let running = stand.start(1);
    stand.bound("photos").await;
    running.abort();
    // As of a claim that another provisioner has made with more keys.
    let object = stand.get(BUCKETS, OBJECT).unwrap();
    let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap();
    let mut record: Value = serde_json::from_str(record).unwrap();
    record["config"]["theirs"] = json!("x");
    let record = json!({"metadata": {"annotations": {"kube-provisioner/bucket": record.to_string()}}});
    stand.patch(BUCKETS, OBJECT, record);
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"theirs": "x"}}}));
    let _another = stand.start(2);
    sleep(HOUR).await;
    stand.delete("secrets", "photos");
    stand.until("it is back", || stand.get("secrets", "photos").is_some()).await;
    // A new key that nobody knows is refused.
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"nobodys": "x"}}}));
    stand.until("it is told", || told(&stand, "photos", "nobodys")).await;
}

#[tokio::test(start_paused = true)]
async fn z24_what_a_failed_attempt_may_have_applied_is_recorded() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    let applied = || stand.store.state().applied.last().cloned().unwrap_or_default();
    for _ in 0..3 {
        stand.store.fail("provision", Failure::Late);
    }
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "2"}}}));
    stand.until("it fails", || stand.store.calls("provision") >= 2).await;
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": null}}));
    stand.until("it is taken away", || stand.store.state().configs.values().next() == Some(&None)).await;
    assert_eq!(applied(), ["maxObjects"]);
    sleep(HOUR).await;
    let calls = stand.store.calls("provision");
    sleep(HOUR).await;
    assert_eq!((stand.ready("photos").0.as_str(), stand.store.calls("provision")), ("Bound", calls));
    // What was only attempted is not taken for applied.
    stand.store.fail("provision", Failure::Retry);
    stand.patch(CLAIMS, "photos", json!({"spec": {"additionalConfig": {"maxObjects": "3"}}}));
    stand.until("it is applied", || stand.store.state().configs.values().next() == Some(&Some(3))).await;
}

#[tokio::test(start_paused = true)]
async fn z25_the_key_in_the_secret_works_although_the_write_of_the_next_one_fails() {
    let (refused, interceptor) = refusing(|request| request.resource.plural == "secrets");
    let cluster = Cluster::builder().hide_managed_fields().interceptor(interceptor).build();
    cluster.create_yaml(ROOK).unwrap();
    let stand = Stand::on(cluster);
    stand.store.state().shows_keys_once = true;
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    sleep(Duration::from_secs(5)).await;
    let in_secret =
        || stand.get("secrets", "photos").unwrap()["data"]["AWS_ACCESS_KEY_ID"].as_str().unwrap().to_owned();
    let works = |key: &str| {
        let state = stand.store.state();
        let ids = state.users.values().flatten().map(|known| encoded(&known.access_key_id)).collect::<Vec<_>>();
        ids.iter().any(|known| known == key)
    };
    let first = in_secret();
    refused.store(5, Ordering::Relaxed);
    stand.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    for _ in 0..20_000 {
        let key = in_secret();
        assert!(works(&key), "the pods' key is gone");
        if key != first {
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(refused.load(Ordering::Relaxed), 0);
    assert_ne!(in_secret(), first);
    assert!(works(&first), "it lives for the overlap");
    stand
        .until("the record is complete", || {
            let object = stand.get(BUCKETS, OBJECT).unwrap();
            let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap();
            let record: Value = serde_json::from_str(record).unwrap();
            record["rotation"] == "1" && record["newKey"].is_null()
        })
        .await;
    assert_eq!(stand.store.state().users.values().map(Vec::len).sum::<usize>(), 2);
}

#[tokio::test(start_paused = true)]
async fn z25_a_secret_that_is_lost_in_a_rotation_comes_back_with_the_new_key() {
    let (refused, interceptor) = refusing(|request| request.resource.plural == "secrets");
    let cluster = Cluster::builder().hide_managed_fields().interceptor(interceptor).build();
    cluster.create_yaml(ROOK).unwrap();
    let stand = Stand::on(cluster);
    stand.claim("photos", json!({}));
    let running = stand.start(1);
    stand.bound("photos").await;
    let record = || {
        let object = stand.get(BUCKETS, OBJECT).unwrap();
        let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str().unwrap();
        serde_json::from_str::<Value>(record).unwrap()
    };
    refused.store(u32::MAX, Ordering::Relaxed);
    stand.patch(CLAIMS, "photos", json!({"metadata": {"annotations": {"kube-provisioner/rotate-credentials": "1"}}}));
    stand.until("a key is made that the Secret does not get", || !record()["newKey"].is_null()).await;
    running.abort();
    let newest = record()["newKey"]["accessKeyId"].as_str().unwrap().to_owned();
    stand.delete("secrets", "photos");
    stand.patch(CLAIMS, "photos", json!({"metadata": {"annotations": null}}));
    refused.store(0, Ordering::Relaxed);
    let _another = stand.start(2);
    stand.until("it is back", || stand.get("secrets", "photos").is_some()).await;
    let secret = stand.get("secrets", "photos").unwrap();
    assert_eq!(secret["data"]["AWS_ACCESS_KEY_ID"], encoded(&newest));
    sleep(HOUR).await;
    assert_eq!(
        stand.store.state().users.values().map(Vec::len).sum::<usize>(),
        2,
        "the key before lives for the overlap"
    );
    sleep(25 * HOUR).await;
    assert_eq!(stand.store.state().users.values().map(Vec::len).sum::<usize>(), 1);
}

/// A text as the data of a Secret have it.
fn encoded(text: &str) -> String {
    let secret = json!({"data": {"key": k8s_openapi::ByteString(text.as_bytes().to_vec())}});
    secret["data"]["key"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn z26_finalizers_of_others_stay_on_secrets() {
    let stand = Stand::new();
    stand.claim("photos", json!({}));
    let _running = stand.start(1);
    stand.bound("photos").await;
    let finalizers = json!({"metadata": {"finalizers": ["objectbucket.io/finalizer", "example.com/backup"]}});
    stand.patch("secrets", "photos", finalizers);
    sleep(Duration::from_secs(5)).await;
    stand.delete(CLAIMS, "photos");
    stand.gone("photos").await;
    let secret = stand.get("secrets", "photos").unwrap();
    assert_eq!(secret["metadata"]["finalizers"], json!(["example.com/backup"]));
}
