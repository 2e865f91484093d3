//! Rules for Buckets, BucketAccesses and Secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_sim::{
    Before, Cluster, Interceptor, PatchKind, Request, Status, Stored, Target, Verb, WatchInterceptor, WatchStep,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Bed, Crash, DRIVER, ENDS, FINALIZER, NAMESPACE, target};
use crate::buckets::store::Failure;

/// Long enough for all expected actions, and for most of the back-off.
const LONG: Duration = Duration::from_secs(300);

// Rules: J3, J6, J14, J17.
#[tokio::test(start_paused = true)]
async fn a_bucket_and_its_access_are_created_and_deleted() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({"spec": {"protocols": ["S3"]}}));
    bed.bucket_ready("bc-1").await;
    let bucket = bed.get("buckets", "bc-1").unwrap();
    assert_eq!(bucket["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!((&bucket["status"]["bucketID"], &bucket["status"]["protocols"]), (&json!("bc-1"), &json!(["S3"])));
    assert_eq!(bucket["status"]["bucketInfo"]["AWS_ENDPOINT_URL"], "https://store.example.com");
    assert_eq!(bed.store.assets(), ["bucket bc-1 of obc-bucket.bc-1", "user obc-bucket.bc-1"]);

    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    let access = bed.get("bucketaccesses", "web").unwrap();
    let uid = access["metadata"]["uid"].as_str().unwrap();
    assert_eq!(access["status"]["accountID"], format!("ba-{uid}"));
    let secret = bed.secret("web-bc-1");
    let key = bed.store.state().users[&format!("obc-access.ba-{uid}")][0].clone();
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", &*key.access_key_id),
        ("AWS_SECRET_ACCESS_KEY", &key.secret_access_key),
        ("COSI_S3_ACCESS_SECRET_KEY", &key.secret_access_key),
        ("BUCKET_NAME", "bc-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("COSI_PROTOCOL", "S3"),
    ] {
        assert_eq!(secret[name], value);
    }
    let owner = &bed.get("secrets", "web-bc-1").unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("BucketAccess"), &json!(uid), &json!(true))
    );
    bed.until_event("web", "Normal AccessGranted").await;
    bed.until_event("bc-1", "Normal Provisioned: Created bucket bc-1").await;

    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    assert_eq!(
        bed.get("bucketaccesses", "web").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER]),
        "the central controller removes it"
    );
    assert!(!bed.is_ready("bucketaccesses", "web"));
    assert_eq!(bed.store.assets(), ["bucket bc-1 of obc-bucket.bc-1", "user obc-bucket.bc-1"]);
    bed.finish_access("web");
    bed.end_bucket("bc-1");
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
    bed.assert_empty();
}

// Rules: J4.
#[tokio::test(start_paused = true)]
async fn an_existing_bucket_is_found_and_never_deleted() {
    let bed = Bed::new();
    let _running = bed.start();
    let unbound = json!({"existingBucketID": "photos", "bucketClaimRef": {"uid": null}});
    bed.bucket("static", json!({"spec": unbound}));
    bed.until_event("static", "The bucket photos does not exist").await;
    bed.until("the status contains it", || !bed.error("buckets", "static").is_empty()).await;
    bed.store.state().buckets.insert("photos".to_owned(), "somebody".to_owned());
    bed.bucket_ready("static").await;
    assert_eq!(bed.error("buckets", "static"), "");
    assert_eq!(bed.get("buckets", "static").unwrap()["status"]["bucketID"], "photos");
    // The class does not set `existingBuckets`.
    bed.access("web", &["photos"]);
    bed.patch_status(
        "bucketaccesses",
        "web",
        json!({"status": {
            "readyToUse": false, "driverName": DRIVER, "authenticationType": "Key",
            "accessedBuckets": [{"bucketName": "static", "bucketID": "photos", "bucketClaimName": "photos"}],
        }}),
    );
    bed.until_event("web", "existingBuckets").await;
    assert!(bed.store.assets().iter().all(|asset| !asset.contains("access")), "{:?}", bed.store.assets());
    bed.patch(
        "buckets",
        "static",
        json!({"spec": {"bucketClaimRef": {"uid": "00000000-0000-4000-8000-000000000001"}}}),
    );
    bed.end_bucket("static");
    bed.until("the Bucket is gone", || bed.get("buckets", "static").is_none()).await;
    assert!(bed.store.state().buckets.contains_key("photos"), "it has another owner");
}

// Rules: J1, J5, J7, J8.
#[tokio::test(start_paused = true)]
async fn keeps_buckets_that_must_not_be_deleted() {
    let bed = Bed::new();
    let _running = bed.start();
    for (name, change) in [
        ("bc-foreign", json!({"driverName": "other.example.com"})),
        ("bc-bound", json!({})),
        ("bc-kept", json!({"deletionPolicy": "Retain"})),
        ("bc-shared", json!({})),
    ] {
        bed.bucket(name, json!({"spec": change}));
    }
    for name in ["bc-bound", "bc-kept", "bc-shared"] {
        bed.bucket_ready(name).await;
    }
    bed.bucket("twin", json!({"spec": {"existingBucketID": "bc-shared"}}));
    bed.bucket_ready("twin").await;
    let before = bed.store.assets();
    bed.patch("buckets", "bc-foreign", json!({"metadata": {"finalizers": [FINALIZER]}}));
    bed.end_bucket("bc-foreign");
    bed.delete("buckets", "bc-bound");
    bed.patch("buckets", "bc-kept", json!({"metadata": {"annotations": {ENDS: ""}}}));
    bed.end_bucket("bc-shared");
    bed.until_event("bc-bound", "kept until its BucketClaim is deleted").await;
    bed.until_event("bc-shared", "Normal Released").await;
    sleep(LONG).await;
    assert_eq!(bed.store.assets(), before);
    let left = ["bc-foreign", "bc-bound", "bc-kept", "bc-shared"].map(|name| bed.get("buckets", name).is_some());
    assert_eq!(left, [true, true, true, false]);
    assert!(bed.get("buckets", "bc-foreign").unwrap()["status"].is_null());
    // An administrator deletes the object of a retained bucket, and the last object of the shared one.
    bed.delete("buckets", "bc-kept");
    bed.end_bucket("twin");
    bed.patch(
        "buckets",
        "bc-bound",
        json!({"metadata": {"annotations": {"objectstorage.k8.io/bucketclaim-being-deleted": ""}}}),
    );
    for name in ["bc-kept", "twin", "bc-bound"] {
        bed.until(name, || bed.get("buckets", name).is_none()).await;
    }
    assert_eq!(bed.store.state().buckets.keys().collect::<Vec<_>>(), ["bc-kept"]);
}

// Rules: J8.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_deleted_with_its_last_two_objects() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.bucket("twin", json!({"spec": {"existingBucketID": "bc-1"}}));
    bed.bucket_ready("twin").await;
    for name in ["bc-1", "twin"] {
        bed.end_bucket(name);
    }
    for name in ["bc-1", "twin"] {
        bed.until(name, || bed.get("buckets", name).is_none()).await;
    }
    bed.assert_empty();
}

// Rules: J13.
#[tokio::test(start_paused = true)]
async fn a_foreign_secret_is_not_touched() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    let before = bed.store.assets();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-bc-1", "namespace": "shop"}, "data": {"mine": "eA=="},
    });
    let secret = bed.cluster.create(&secret).unwrap();
    bed.granted("web", &["bc-1"]);
    bed.until_event("web", "Warning GrantFailed: Secret web-bc-1 exists").await;
    assert!(bed.error("bucketaccesses", "web").contains("does not belong to this BucketAccess"));
    assert_eq!(
        (bed.get("secrets", "web-bc-1").unwrap(), bed.store.assets(), bed.records()),
        (secret.clone(), before.clone(), 0)
    );
    // The access can be deleted.
    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    bed.finish_access("web");
    assert_eq!((bed.get("secrets", "web-bc-1").unwrap(), bed.store.assets()), (secret, before));
    // The Secret can also be deleted.
    bed.granted("web", &["bc-1"]);
    sleep(LONG).await;
    bed.delete("secrets", "web-bc-1");
    bed.access_ready("web").await;
    assert_eq!(bed.error("bucketaccesses", "web"), "");
}

// Rules: J15.
#[tokio::test(start_paused = true)]
async fn a_restart_makes_no_calls() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    let (calls, secret) = (bed.store.state().calls.clone(), bed.get("secrets", "web-bc-1"));
    for running in [running, bed.start(), bed.start()] {
        sleep(LONG).await;
        drop(running);
    }
    assert_eq!((bed.store.state().calls.clone(), bed.get("secrets", "web-bc-1")), (calls, secret));
}

// Rules: J16.
#[tokio::test(start_paused = true)]
async fn a_lost_or_edited_secret_is_restored() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    let secret = bed.secret("web-bc-1");
    let back = || bed.secret("web-bc-1") == secret;
    bed.delete("secrets", "web-bc-1");
    bed.until("it is back", back).await;
    bed.until_event("web", "Normal SecretsRestored").await;
    for change in [
        json!({"data": {"BUCKET_NAME": "eA=="}}),
        json!({"data": {"AWS_SECRET_ACCESS_KEY": null}}),
        json!({"data": null}),
        json!({"metadata": {"labels": null}, "data": {"BUCKET_NAME": "eA=="}}),
    ] {
        bed.patch("secrets", "web-bc-1", change);
        bed.until("it is restored", back).await;
    }
    // Entries of other writers are kept.
    bed.patch("secrets", "web-bc-1", json!({"data": {"mine": "eA=="}}));
    drop(running);
    // Simulate a Secret that also has the finalizer of an upstream sidecar.
    bed.patch("secrets", "web-bc-1", json!({"metadata": {"finalizers": [FINALIZER]}}));
    bed.delete("secrets", "web-bc-1");
    let _running = bed.start();
    bed.until("it is back", back).await;
    assert!(bed.is_ready("bucketaccesses", "web"));
    assert_eq!(bed.store.state().users.len(), 2, "the account is the same");
}

// Rules: J19.
#[tokio::test(start_paused = true)]
async fn does_nothing_while_a_sidecar_holds_its_lease() {
    let bed = Bed::new();
    let now = || format!("{:.6}", bed.cluster.clock().now());
    let lease = |renewed: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("cosi-sidecar-leader-{DRIVER}"), "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": "sidecar_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": renewed, "renewTime": renewed,
            },
        })
    };
    bed.cluster.create(&lease(&now())).unwrap();
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    let of_sidecar = Target { group: "coordination.k8s.io", plural: "leases", namespace: NAMESPACE, ..target("", "") };
    let name = format!("cosi-sidecar-leader-{DRIVER}");
    for _ in 0..30 {
        let renewed = json!({"spec": {"renewTime": now()}});
        bed.cluster.patch(&Target { name: &name, ..of_sidecar }, None, PatchKind::Merge, &renewed).unwrap();
        sleep(Duration::from_secs(5)).await;
    }
    assert!(bed.get("buckets", "bc-1").unwrap()["metadata"]["finalizers"].is_null());
    assert!(bed.store.state().calls.is_empty());
    // The sidecar no longer runs.
    bed.bucket_ready("bc-1").await;
}

// Rules: J20.
#[tokio::test(start_paused = true)]
async fn calls_to_a_failing_store_back_off() {
    let bed = Bed::new();
    let _running = bed.start();
    for _ in 0..6 {
        bed.store.fail("create_bucket", Failure::Retry);
    }
    bed.bucket("bc-1", json!({}));
    bed.until_event("bc-1", "Warning ProvisioningFailed: The store does not answer").await;
    bed.until("the status", || bed.error("buckets", "bc-1") == "The store does not answer").await;
    let time = bed.get("buckets", "bc-1").unwrap()["status"]["error"]["time"].clone();
    let start = Instant::now();
    bed.until("the sixth call", || bed.store.calls("create_bucket") == 6).await;
    assert!(start.elapsed() > Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(bed.get("buckets", "bc-1").unwrap()["status"]["error"]["time"], time, "the same text is written once");
    bed.bucket_ready("bc-1").await;
    assert_eq!(bed.error("buckets", "bc-1"), "");
    // A call that cannot succeed is not repeated.
    bed.store.fail("grant", Failure::Invalid);
    bed.granted("web", &["bc-1"]);
    bed.until_event("web", "Warning GrantFailed: The store wants no such user").await;
    let calls = bed.store.calls("grant");
    sleep(LONG).await;
    assert_eq!(bed.store.calls("grant"), calls);
    // A removal that fails is repeated until it succeeds.
    for _ in 0..3 {
        bed.store.fail("delete_bucket", Failure::Retry);
    }
    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    bed.end_bucket("bc-1");
    bed.until_event("bc-1", "Warning DeletionFailed: The store does not answer").await;
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
    bed.assert_empty();
}

// Rules: J10, J12.
#[tokio::test(start_paused = true)]
async fn an_access_waits_for_its_driver_and_its_buckets() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.access("web", &["bc-1"]);
    sleep(LONG).await;
    assert!(bed.get("bucketaccesses", "web").unwrap()["status"].is_null(), "it is not handed over yet");
    bed.hand_over("web", &["bc-1"], DRIVER);
    bed.until_event("web", "Warning GrantFailed: Bucket bc-1 does not exist").await;
    let start = Instant::now();
    bed.bucket("bc-1", json!({}));
    bed.access_ready("web").await;
    assert!(start.elapsed() < LONG, "the new Bucket triggers a retry: {:?}", start.elapsed());
    // Access to another driver's Bucket is not granted.
    bed.bucket("bc-foreign", json!({"spec": {"driverName": "other.example.com"}}));
    bed.patch_status("buckets", "bc-foreign", json!({"status": {"readyToUse": true, "bucketID": "bc-foreign"}}));
    bed.granted("other", &["bc-foreign"]);
    bed.until_event("other", "Bucket bc-foreign belongs to another driver").await;
    // Access to a Bucket that is being deleted is not granted either.
    bed.bucket("bc-3", json!({}));
    bed.bucket_ready("bc-3").await;
    bed.patch("buckets", "bc-3", json!({"metadata": {"annotations": {ENDS: ""}}}));
    bed.granted("late", &["bc-3"]);
    bed.until_event("late", "Bucket bc-3 or its BucketClaim is being deleted").await;
    let users: Vec<_> = bed.store.state().users.keys().filter(|user| user.contains("access")).cloned().collect();
    assert_eq!(users.len(), 1, "{users:?}");
}

/// An API server that refuses to create or update users' Secrets, like a ResourceQuota or an admission policy.
struct RefusesSecrets {
    verb: Verb,
    is_over: AtomicBool,
    refused: AtomicU64,
}

impl Interceptor for RefusesSecrets {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let is_theirs =
            request.namespace == "shop" && request.resource.plural == "secrets" && request.verb == self.verb;
        let refuses = is_theirs && !self.is_over.load(Ordering::Relaxed);
        self.refused.fetch_add(u64::from(refuses), Ordering::Relaxed);
        let answer = || Before::Refuse(Status::forbidden(&request.resource, &request.name, "no Secrets here"));
        Box::pin(async move { if refuses { answer() } else { Before::Handle } })
    }
}

fn no_crash() -> Arc<Crash> {
    Arc::new(Crash { left: AtomicU64::new(u64::MAX / 2), after: false })
}

// Rules: J22.
#[tokio::test(start_paused = true)]
async fn a_refused_secret_write_backs_off_without_extra_keys() {
    for (verb, keys) in [(Verb::Create, 0), (Verb::Patch, 1)] {
        let refuses = Arc::new(RefusesSecrets { verb, is_over: AtomicBool::new(false), refused: AtomicU64::new(0) });
        let bed = Bed::on(Cluster::builder().interceptor(refuses.clone()), no_crash());
        let _running = bed.start();
        bed.bucket("bc-1", json!({}));
        bed.bucket_ready("bc-1").await;
        bed.granted("web", &["bc-1"]);
        bed.until_event("web", "no Secrets here").await;
        sleep(Duration::from_secs(55)).await;
        assert!(bed.error("bucketaccesses", "web").contains("no Secrets here"), "{verb:?}");
        assert!(refuses.refused.load(Ordering::Relaxed) <= 8, "{verb:?}: {}", refuses.refused.load(Ordering::Relaxed));
        let made = || bed.store.assets().iter().filter(|asset| asset.starts_with("key ")).count();
        assert_eq!(made(), keys, "{verb:?}");
        let ids: Vec<_> = bed.store.assets();
        refuses.is_over.store(true, Ordering::Relaxed);
        let over = Instant::now();
        bed.access_ready("web").await;
        assert!(over.elapsed() <= Duration::from_secs(11), "{verb:?}: {:?}", over.elapsed());
        assert_eq!(bed.error("bucketaccesses", "web"), "");
        assert!(keys == 0 || bed.store.assets() == ids, "the key is the same");
    }
}

// Rules: J25.
#[tokio::test(start_paused = true)]
async fn the_event_of_a_refused_bucket_is_sent_again() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({"spec": {"parameters": {"hots": "store"}}}));
    sleep(Duration::from_secs(4 * 3600)).await;
    let events = bed.events("bc-1");
    assert_eq!(events.iter().filter(|event| event.contains("hots")).count(), 6, "{events:?}");
}

// Rules: J21.
#[tokio::test(start_paused = true)]
async fn a_bucket_with_an_unusable_class_can_be_deleted() {
    let bed = Bed::new();
    let _running = bed.start();
    let secret = json!({"adminSecretName": "admin", "adminSecretNamespace": "nowhere"});
    for (name, parameters, problem) in [
        ("bc-1", json!({"hots": "store"}), "nknown parameter \"hots\""),
        ("bc-2", json!({"maxObjects": "many"}), "maxObjects"),
        ("bc-3", secret, "Secret nowhere/admin that the class names does not exist"),
    ] {
        bed.bucket(name, json!({"spec": {"parameters": parameters}}));
        bed.until_event(name, problem).await;
        assert!(bed.get("buckets", name).unwrap()["metadata"]["finalizers"].is_null(), "{name}");
        bed.end_bucket(name);
        bed.until("the Bucket is gone", || bed.get("buckets", name).is_none()).await;
    }
    assert_eq!(bed.store.calls(""), 0);
    // The same applies to an access.
    bed.bucket("bc-4", json!({}));
    bed.bucket_ready("bc-4").await;
    bed.access("web", &["bc-4"]);
    bed.patch_status(
        "bucketaccesses",
        "web",
        json!({"status": {
            "readyToUse": false, "driverName": DRIVER, "authenticationType": "Key", "parameters": {"hots": "store"},
            "accessedBuckets": [{"bucketName": "bc-4", "bucketID": "bc-4", "bucketClaimName": "bc-4"}],
        }}),
    );
    bed.until_event("web", "nknown parameter \"hots\"").await;
    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
}

/// Changes the Bucket `bc-2` while its deletion waits for another one, and checks that its bucket is kept.
async fn keeps_the_bucket_if(change: impl FnOnce(&Bed)) {
    let mut bed = Bed::new();
    // Two attempts of a namespace may begin, but only one of them may call the store at a time.
    bed.options.options.max_concurrent_calls = 2;
    let _running = bed.start();
    for name in ["bc-1", "bc-2"] {
        bed.bucket(name, json!({}));
        bed.bucket_ready(name).await;
    }
    bed.store.state().pauses.insert("delete_bucket", Duration::from_secs(10));
    bed.end_bucket("bc-1");
    bed.until("a deletion begins", || bed.store.calls("delete_bucket") == 1).await;
    bed.end_bucket("bc-2");
    // The other deletion waits for the permit of the first.
    sleep(Duration::from_secs(2)).await;
    change(&bed);
    bed.until("the Bucket is deleted", || bed.get("buckets", "bc-2").is_none()).await;
    assert_eq!((bed.store.calls("delete_bucket"), bed.store.state().buckets.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_whose_policy_changes_while_its_deletion_waits() {
    keeps_the_bucket_if(|bed| bed.patch("buckets", "bc-2", json!({"spec": {"deletionPolicy": "Retain"}}))).await;
}

// Rules: J8.
#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_that_another_bucket_represents_while_its_deletion_waits() {
    keeps_the_bucket_if(|bed| bed.bucket("twin", json!({"spec": {"existingBucketID": "bc-2"}}))).await;
}

#[tokio::test(start_paused = true)]
async fn removes_the_error_of_an_earlier_attempt_from_ready_objects() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    for (plural, name) in [("buckets", "bc-1"), ("bucketaccesses", "web")] {
        bed.patch_status(plural, name, json!({"status": {"error": {"message": "refused", "time": "1"}}}));
        bed.until("the error is removed", || bed.error(plural, name).is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reports_a_deletion_that_cannot_begin() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    drop(running);
    bed.store.fail("start", Failure::Retry);
    bed.end_bucket("bc-1");
    let _running = bed.start();
    bed.until_event("bc-1", "Warning DeletionFailed: The controller cannot work at the moment").await;
}

// Rules: J23.
#[tokio::test(start_paused = true)]
async fn the_event_about_a_missing_store_names_a_remedy() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    for _ in 0..1000 {
        ["delete_bucket", "revoke"].into_iter().for_each(|method| bed.store.fail(method, Failure::Retry));
    }
    bed.delete("bucketaccesses", "web");
    bed.until_event("web", "set its annotation objectstorage.k8s.io/sidecar-cleanup-finished").await;
    let annotation = json!({"objectstorage.k8s.io/sidecar-cleanup-finished": ""});
    bed.patch("bucketaccesses", "web", json!({"metadata": {"annotations": annotation}}));
    bed.finish_access("web");
    bed.end_bucket("bc-1");
    bed.until_event("bc-1", "set its spec.deletionPolicy to Retain").await;
    assert!(bed.error("buckets", "bc-1").contains("deletionPolicy"));
    bed.patch("buckets", "bc-1", json!({"spec": {"deletionPolicy": "Retain"}}));
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
}

// Rules: J24.
#[tokio::test(start_paused = true)]
async fn an_access_without_its_id_is_revoked() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    let before = bed.store.assets();
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    drop(running);
    bed.patch_status("bucketaccesses", "web", json!({"status": {"accountID": null, "readyToUse": false}}));
    bed.delete("bucketaccesses", "web");
    let _running = bed.start();
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    assert_eq!((bed.store.assets(), bed.records()), (before, 0));
}

// Rules: J11.
#[tokio::test(start_paused = true)]
async fn an_access_with_a_foreign_id_revokes_its_own_account() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.granted("web", &["bc-1"]);
    bed.access_ready("web").await;
    let before = bed.store.assets();
    bed.granted("app", &["bc-1"]);
    bed.access_ready("app").await;
    drop(running);
    let id = bed.get("bucketaccesses", "web").unwrap()["status"]["accountID"].clone();
    bed.patch_status("bucketaccesses", "app", json!({"status": {"accountID": id}}));
    bed.delete("bucketaccesses", "app");
    let _running = bed.start();
    bed.until("the access is handed back", || bed.is_finished("app")).await;
    assert_eq!((bed.store.assets(), bed.records()), (before, 1));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_with_a_foreign_id_deletes_its_own_bucket() {
    let bed = Bed::new();
    let running = bed.start();
    bed.bucket("bc-kept", json!({"spec": {"deletionPolicy": "Retain"}}));
    bed.bucket("bc-1", json!({}));
    for name in ["bc-kept", "bc-1"] {
        bed.bucket_ready(name).await;
    }
    bed.end_bucket("bc-kept");
    bed.until("the Bucket is deleted", || bed.get("buckets", "bc-kept").is_none()).await;
    drop(running);
    bed.patch_status("buckets", "bc-1", json!({"status": {"bucketID": "bc-kept"}}));
    bed.end_bucket("bc-1");
    let _running = bed.start();
    bed.until("the Bucket is deleted", || bed.get("buckets", "bc-1").is_none()).await;
    assert_eq!(bed.store.state().buckets.keys().collect::<Vec<_>>(), ["bc-kept"]);
}

/// Silences the watch of Buckets at the event about the Bucket `twin`.
struct HidesTwin;

impl Interceptor for HidesTwin {
    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        (request.resource.plural == "buckets").then(|| Box::new(Self) as Box<dyn WatchInterceptor>)
    }
}

impl WatchInterceptor for HidesTwin {
    fn event(&mut self, _: &'static str, object: &Stored) -> WatchStep {
        if object.value()["metadata"]["name"] == "twin" { WatchStep::Silence } else { WatchStep::Deliver }
    }
}

// Rules: J8.
#[tokio::test(start_paused = true)]
async fn keeps_a_bucket_for_a_twin_that_the_watch_missed() {
    let bed = Bed::on(Cluster::builder().interceptor(Arc::new(HidesTwin)), no_crash());
    let _running = bed.start();
    bed.bucket("bc-1", json!({}));
    bed.bucket_ready("bc-1").await;
    bed.store.fail("delete_bucket", Failure::Retry);
    bed.end_bucket("bc-1");
    bed.until_event("bc-1", "Warning DeletionFailed").await;
    bed.bucket("twin", json!({"spec": {"existingBucketID": "bc-1"}}));
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
    assert!(bed.store.state().buckets.contains_key("bc-1"), "the twin still represents it");
}

/// Counts the list requests for Buckets, and delays each of them by a second.
struct CountsLists(AtomicU64);

impl Interceptor for CountsLists {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let is_list = request.verb == Verb::List && request.resource.plural == "buckets";
        self.0.fetch_add(u64::from(is_list), Ordering::Relaxed);
        Box::pin(async move {
            if is_list {
                sleep(Duration::from_secs(1)).await;
            }
            Before::Handle
        })
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_deletions_share_a_list() {
    let lists = Arc::new(CountsLists(AtomicU64::new(0)));
    let bed = Bed::on(Cluster::builder().interceptor(lists.clone()), no_crash());
    let _running = bed.start();
    let names: Vec<String> = (0..20).map(|number| format!("bc-{number}")).collect();
    for name in &names {
        bed.bucket(name, json!({}));
        bed.bucket_ready(name).await;
    }
    let before = lists.0.load(Ordering::Relaxed);
    names.iter().for_each(|name| bed.end_bucket(name));
    for name in &names {
        bed.until("the Bucket is deleted", || bed.get("buckets", name).is_none()).await;
    }
    let made = lists.0.load(Ordering::Relaxed) - before;
    assert!(made <= 4, "{made} lists");
    bed.assert_empty();
}
