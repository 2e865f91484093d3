//! The same author behind the controller of COSI's Buckets and BucketAccesses, with the rights of its manifests and no others. The
//! test plays the central controller. Test names begin with the ids of `docs/book/pages/reference/behaviour.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::rbac::{Account, cosi_controller_rules, manifests};
use kube_provisioner::{BucketOptions, CancellationToken, CosiController, Environment, RunError};
use kube_sim::{
    After, Before, Builder, Cluster, DeleteOptions, Faults, Interceptor, PatchKind, Request, SimClock, Subresource,
    Target, Verb,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::store::{Failure, Store};

const GROUP: &str = "objectstorage.k8s.io";
const NAMESPACE: &str = "storage";
const DRIVER: &str = "bucket.example.com";
const FINALIZER: &str = "objectstorage.k8s.io/protection";
const ENDS: &str = "objectstorage.k8s.io/bucketclaim-being-deleted";
const FINISHED: &str = "objectstorage.k8s.io/sidecar-cleanup-finished";

struct Bed {
    cluster: Cluster,
    store: Store,
    options: BucketOptions,
    crash: Arc<Crash>,
    started: AtomicU64,
}

/// A process of the controller, which ends as in a crash.
struct Running(JoinHandle<Result<(), RunError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stops the controller's writes about objects and Secrets at one of them: before or after it.
struct Crash {
    left: AtomicU64,
    after: bool,
}

impl Crash {
    fn concerns(request: &Request) -> bool {
        let is_write = matches!(request.verb, Verb::Create | Verb::Patch | Verb::Delete | Verb::Update);
        is_write && ["buckets", "bucketaccesses", "secrets"].contains(&&*request.resource.plural)
    }

    /// No write takes place any more.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}

impl Interceptor for Crash {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let hangs =
            Self::concerns(request) && (self.is_over() || !self.after && self.left.load(Ordering::Relaxed) == 1);
        if hangs {
            self.left.store(0, Ordering::Relaxed);
        } else if Self::concerns(request) {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        Box::pin(async move { if hangs { Before::Hang } else { Before::Handle } })
    }

    fn after<'a>(&'a self, request: &'a Request, _: u16) -> BoxFuture<'a, After> {
        let hangs = Self::concerns(request) && self.is_over();
        Box::pin(async move { if hangs { After::Hang } else { After::Deliver } })
    }
}

impl Bed {
    fn new() -> Self {
        Self::crashing(u64::MAX / 2, false)
    }

    /// At the write of this number.
    fn crashing(at: u64, after: bool) -> Self {
        let crash = Arc::new(Crash { left: AtomicU64::new(at), after });
        Self::on(Cluster::builder().interceptor(crash.clone()), crash)
    }

    fn on(builder: Builder, crash: Arc<Crash>) -> Self {
        let cluster = builder.rbac().hide_managed_fields().build();
        let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/cosi/v1alpha2");
        for definition in std::fs::read_dir(definitions).unwrap() {
            cluster.create_yaml(&std::fs::read_to_string(definition.unwrap().path()).unwrap()).unwrap();
        }
        let mut options = BucketOptions::new("example.com/bucket");
        options.options.namespace = Some(NAMESPACE.to_owned());
        for name in [NAMESPACE, "shop"] {
            cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).unwrap();
        }
        let rules = cosi_controller_rules(DRIVER, &options.options);
        let account = Account { name: "driver", namespace: NAMESPACE };
        manifests(&account, &rules).iter().for_each(|object| drop(cluster.create(object).unwrap()));
        let store = Store::default();
        store.state().shows_keys_once = true;
        Self { cluster, store, options, crash, started: AtomicU64::new(0) }
    }

    fn start(&self) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let client = self.cluster.client(&format!("system:serviceaccount:{NAMESPACE}:driver"));
        let controller = CosiController::new(self.store.clone(), self.options.clone());
        let controller = controller.environment(Environment::simulated(number, SimClock::EPOCH));
        Running(tokio::spawn(controller.run_with(client, CancellationToken::new())))
    }

    /// The Bucket that the central controller makes for a claim.
    fn bucket(&self, name: &str, change: Value) {
        let mut bucket = json!({
            "apiVersion": "objectstorage.k8s.io/v1alpha2", "kind": "Bucket", "metadata": {"name": name},
            "spec": {
                "driverName": DRIVER, "deletionPolicy": "Delete",
                "bucketClaimRef": {
                    "namespace": "shop", "name": "photos", "uid": "00000000-0000-4000-8000-000000000001",
                },
            },
        });
        kube_sim::merge_patch(&mut bucket, change);
        self.cluster.create(&bucket).unwrap();
    }

    /// An access of these Buckets, as a user makes it. Its Secrets are called as they are.
    fn access(&self, name: &str, buckets: &[&str]) {
        let claim = |bucket: &&str| json!({"bucketClaimName": bucket, "accessMode": "ReadWrite", "accessSecretName": format!("{name}-{bucket}")});
        let claims: Vec<_> = buckets.iter().map(claim).collect();
        let access = json!({
            "apiVersion": "objectstorage.k8s.io/v1alpha2", "kind": "BucketAccess",
            "metadata": {"name": name, "namespace": "shop", "finalizers": [FINALIZER]},
            "spec": {"bucketClaims": claims, "bucketAccessClassName": "fast", "protocol": "S3"},
        });
        self.cluster.create(&access).unwrap();
    }

    /// The central controller's hand-over.
    fn hand_over(&self, name: &str, buckets: &[&str], driver: &str) {
        let of = |bucket: &&str| json!({"bucketName": bucket, "bucketID": bucket, "bucketClaimName": bucket});
        let status = json!({
            "readyToUse": false, "driverName": driver, "authenticationType": "Key",
            "accessedBuckets": buckets.iter().map(of).collect::<Vec<_>>(),
        });
        self.patch_status("bucketaccesses", name, json!({"status": status}));
    }

    fn granted(&self, name: &str, buckets: &[&str]) {
        self.access(name, buckets);
        self.hand_over(name, buckets, DRIVER);
    }

    /// Its claim is deleted.
    fn end_bucket(&self, name: &str) {
        self.patch("buckets", name, json!({"metadata": {"annotations": {ENDS: ""}}}));
        self.delete("buckets", name);
    }

    /// The last part of the central controller.
    fn finish_access(&self, name: &str) {
        self.patch("bucketaccesses", name, json!({"metadata": {"finalizers": []}}));
    }

    fn patch(&self, plural: &str, name: &str, patch: Value) {
        self.cluster.patch(&target(plural, name), None, PatchKind::Merge, &patch).unwrap();
    }

    fn patch_status(&self, plural: &str, name: &str, patch: Value) {
        let status = Some(Subresource::Status);
        self.cluster.patch(&target(plural, name), status, PatchKind::Merge, &patch).unwrap();
    }

    fn delete(&self, plural: &str, name: &str) {
        self.cluster.delete(&target(plural, name), DeleteOptions::default()).unwrap();
    }

    fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let Target { group, plural, namespace, name } = target(plural, name);
        self.cluster.get(group, plural, namespace, name).ok()
    }

    fn is_ready(&self, plural: &str, name: &str) -> bool {
        self.get(plural, name).is_some_and(|object| object["status"]["readyToUse"] == true)
    }

    fn is_finished(&self, access: &str) -> bool {
        self.get("bucketaccesses", access).is_some_and(|access| !access["metadata"]["annotations"][FINISHED].is_null())
    }

    fn error(&self, plural: &str, name: &str) -> String {
        let object = self.get(plural, name).unwrap_or_default();
        object["status"]["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The texts in a Secret of the user.
    fn secret(&self, name: &str) -> BTreeMap<String, String> {
        let secret = self.get("secrets", name).unwrap_or_else(|| json!({}));
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
        let text = |value: k8s_openapi::ByteString| String::from_utf8(value.0).unwrap();
        secret.data.unwrap_or_default().into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    /// The Secrets in which the driver records accounts.
    fn records(&self) -> usize {
        self.cluster.list("", "secrets", Some(NAMESPACE)).unwrap().len()
    }

    fn events(&self, name: &str) -> Vec<String> {
        let events = self.cluster.list("", "events", None).unwrap();
        let about = |event: &&Value| event["involvedObject"]["name"] == name;
        let text = |event: &Value| {
            let part = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", part("type"), part("reason"), part("message"))
        };
        events.iter().filter(about).map(text).collect()
    }

    async fn until(&self, what: &str, so: impl Fn() -> bool) {
        let start = Instant::now();
        while !so() {
            let objects = ["buckets", "bucketaccesses"].map(|plural| self.cluster.list(GROUP, plural, None).unwrap());
            let calls = self.store.state().calls.clone();
            assert!(start.elapsed() < Duration::from_secs(3600), "never: {what}; {calls:?}; {objects:#?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn bucket_ready(&self, name: &str) {
        self.until("the Bucket is ready", || self.is_ready("buckets", name)).await;
    }

    async fn access_ready(&self, name: &str) {
        self.until("the access is ready", || self.is_ready("bucketaccesses", name)).await;
    }

    /// Waits until an event about an object has this part.
    async fn told(&self, name: &str, part: &str) {
        self.until(part, || self.events(name).iter().any(|text| text.contains(part))).await;
    }

    fn assert_empty(&self) {
        assert!(self.store.is_empty(), "{:?}", self.store.assets());
        assert_eq!(self.records(), 0);
        assert_eq!(self.cluster.list("", "secrets", Some("shop")).unwrap(), Vec::<Value>::new());
    }
}

fn target<'a>(plural: &'a str, name: &'a str) -> Target<'a> {
    let (group, namespace) = match plural {
        "buckets" => (GROUP, ""),
        "bucketaccesses" => (GROUP, "shop"),
        _ => ("", "shop"),
    };
    Target { group, plural, namespace, name }
}

/// Long enough for everything that is to happen, and for much of the back-off.
const LONG: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn j3_j6_j14_j17_a_bucket_and_its_access_come_and_go() {
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
    bed.told("web", "Normal AccessGranted").await;
    bed.told("bc-1", "Normal Provisioned: Created bucket bc-1").await;

    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    assert_eq!(
        bed.get("bucketaccesses", "web").unwrap()["metadata"]["finalizers"],
        json!([FINALIZER]),
        "not ours to end"
    );
    assert!(!bed.is_ready("bucketaccesses", "web"));
    assert_eq!(bed.store.assets(), ["bucket bc-1 of obc-bucket.bc-1", "user obc-bucket.bc-1"]);
    bed.finish_access("web");
    bed.end_bucket("bc-1");
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
    bed.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn j4_a_bucket_that_exists_is_found_and_never_deleted() {
    let bed = Bed::new();
    let _running = bed.start();
    let unbound = json!({"existingBucketID": "photos", "bucketClaimRef": {"uid": null}});
    bed.bucket("static", json!({"spec": unbound}));
    bed.told("static", "The bucket photos does not exist").await;
    bed.until("the status has it", || !bed.error("buckets", "static").is_empty()).await;
    bed.store.state().buckets.insert("photos".to_owned(), "somebody".to_owned());
    bed.bucket_ready("static").await;
    assert_eq!(bed.error("buckets", "static"), "");
    assert_eq!(bed.get("buckets", "static").unwrap()["status"]["bucketID"], "photos");
    // The class has no `existingBuckets`.
    bed.access("web", &["photos"]);
    bed.patch_status(
        "bucketaccesses",
        "web",
        json!({"status": {
            "readyToUse": false, "driverName": DRIVER, "authenticationType": "Key",
            "accessedBuckets": [{"bucketName": "static", "bucketID": "photos", "bucketClaimName": "photos"}],
        }}),
    );
    bed.told("web", "existingBuckets").await;
    assert!(bed.store.assets().iter().all(|asset| !asset.contains("access")), "{:?}", bed.store.assets());
    bed.patch(
        "buckets",
        "static",
        json!({"spec": {"bucketClaimRef": {"uid": "00000000-0000-4000-8000-000000000001"}}}),
    );
    bed.end_bucket("static");
    bed.until("the Bucket is gone", || bed.get("buckets", "static").is_none()).await;
    assert!(bed.store.state().buckets.contains_key("photos"), "it is somebody's");
}

#[tokio::test(start_paused = true)]
async fn j1_j5_j7_j8_buckets_that_are_not_deleted() {
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
    bed.told("bc-bound", "kept until its BucketClaim is deleted").await;
    bed.told("bc-shared", "Normal Released").await;
    sleep(LONG).await;
    assert_eq!(bed.store.assets(), before);
    let left = ["bc-foreign", "bc-bound", "bc-kept", "bc-shared"].map(|name| bed.get("buckets", name).is_some());
    assert_eq!(left, [true, true, true, false]);
    assert!(bed.get("buckets", "bc-foreign").unwrap()["status"].is_null());
    // An administrator deletes the object of a bucket that is kept, and the last object of the shared one.
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

#[tokio::test(start_paused = true)]
async fn j13_a_secret_of_somebody_else_is_not_touched() {
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
    bed.told("web", "Warning GrantFailed: Secret web-bc-1 exists").await;
    assert!(bed.error("bucketaccesses", "web").contains("does not belong to this BucketAccess"));
    assert_eq!(
        (bed.get("secrets", "web-bc-1").unwrap(), bed.store.assets(), bed.records()),
        (secret.clone(), before.clone(), 0)
    );
    // The access can go.
    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    bed.finish_access("web");
    assert_eq!((bed.get("secrets", "web-bc-1").unwrap(), bed.store.assets()), (secret, before));
    // And the Secret.
    bed.granted("web", &["bc-1"]);
    sleep(LONG).await;
    bed.delete("secrets", "web-bc-1");
    bed.access_ready("web").await;
    assert_eq!(bed.error("bucketaccesses", "web"), "");
}

#[tokio::test(start_paused = true)]
async fn j15_a_restart_calls_nothing() {
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

#[tokio::test(start_paused = true)]
async fn j16_a_secret_that_is_lost_or_edited_is_written_again() {
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
    bed.told("web", "Normal SecretsRestored").await;
    for change in [
        json!({"data": {"BUCKET_NAME": "eA=="}}),
        json!({"data": {"AWS_SECRET_ACCESS_KEY": null}}),
        json!({"data": null}),
        json!({"metadata": {"labels": null}, "data": {"BUCKET_NAME": "eA=="}}),
    ] {
        bed.patch("secrets", "web-bc-1", change);
        bed.until("it is as it was", back).await;
    }
    // Entries of others stay.
    bed.patch("secrets", "web-bc-1", json!({"data": {"mine": "eA=="}}));
    drop(running);
    // One that an upstream sidecar holds, too.
    bed.patch("secrets", "web-bc-1", json!({"metadata": {"finalizers": [FINALIZER]}}));
    bed.delete("secrets", "web-bc-1");
    let _running = bed.start();
    bed.until("it is back", back).await;
    assert!(bed.is_ready("bucketaccesses", "web"));
    assert_eq!(bed.store.state().users.len(), 2, "the account is the same");
}

#[tokio::test(start_paused = true)]
async fn j18_a_crash_at_any_write_leaves_nothing() {
    let mut writes = 0;
    for (at, after) in (1..30).flat_map(|at| [(at, false), (at, true)]) {
        let bed = Bed::crashing(at, after);
        let mut running = bed.start();
        let mut crashed = false;
        // Whenever the process has stopped, another one goes on.
        let mut step = async |what: &str, done: &dyn Fn() -> bool| {
            bed.until(what, || done() || !crashed && bed.crash.is_over()).await;
            if bed.crash.is_over() {
                crashed = true;
                running = bed.start();
                bed.crash.left.store(u64::MAX / 2, Ordering::Relaxed);
                bed.until(what, done).await;
            }
        };
        bed.bucket("bc-1", json!({}));
        bed.bucket("bc-2", json!({}));
        step("the Buckets are ready", &|| ["bc-1", "bc-2"].iter().all(|name| bed.is_ready("buckets", name))).await;
        bed.granted("web", &["bc-1", "bc-2"]);
        step("the access is ready", &|| bed.is_ready("bucketaccesses", "web")).await;
        let key = |name: &str| bed.secret(name)["AWS_SECRET_ACCESS_KEY"].clone();
        assert_eq!(key("web-bc-1"), key("web-bc-2"));
        let keys: Vec<_> = bed.store.state().users.values().flatten().cloned().collect();
        assert_eq!(keys.iter().map(|key| key.secret_access_key.clone()).collect::<Vec<_>>(), [key("web-bc-1")]);
        bed.delete("bucketaccesses", "web");
        step("the access is handed back", &|| bed.is_finished("web")).await;
        bed.finish_access("web");
        bed.end_bucket("bc-1");
        bed.end_bucket("bc-2");
        step("the Buckets are gone", &|| bed.cluster.list(GROUP, "buckets", None).unwrap().is_empty()).await;
        bed.assert_empty();
        drop(running);
        if !crashed {
            writes = at;
            break;
        }
    }
    assert!(writes > 15, "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn j18_an_access_that_is_deleted_after_a_crash_in_its_grant_leaves_nothing() {
    for at in 1..9 {
        let bed = Bed::crashing(3 + at, true);
        let running = bed.start();
        bed.bucket("bc-1", json!({}));
        bed.bucket_ready("bc-1").await;
        bed.granted("web", &["bc-1"]);
        bed.until("the crash", || bed.crash.is_over() || bed.is_ready("bucketaccesses", "web")).await;
        drop(running);
        bed.crash.left.store(u64::MAX / 2, Ordering::Relaxed);
        bed.delete("bucketaccesses", "web");
        let _running = bed.start();
        bed.until("the access is handed back", || bed.is_finished("web")).await;
        bed.finish_access("web");
        bed.end_bucket("bc-1");
        bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
        bed.assert_empty();
    }
}

/// Two replicas, of which one is killed and started again.
#[tokio::test(start_paused = true)]
async fn j18_a_storm_of_faults_leaves_nothing() {
    for seed in 0..8 {
        let user = format!("system:serviceaccount:{NAMESPACE}:driver");
        let faults = Faults::storm(seed).only(&user).until(Duration::from_secs(200));
        let crash = Arc::new(Crash { left: AtomicU64::new(u64::MAX / 2), after: false });
        let bed = Bed::on(Cluster::builder().seed(seed).faults(&faults), crash);
        let (_one, two) = (bed.start(), bed.start());
        let buckets = ["bc-1", "bc-2", "bc-3"];
        for method in ["create_bucket", "grant", "delete_bucket"] {
            bed.store.fail(method, Failure::Late);
        }
        buckets.iter().for_each(|name| bed.bucket(name, json!({})));
        bed.granted("web", &["bc-1", "bc-2"]);
        bed.granted("app", &["bc-1"]);
        sleep(Duration::from_secs(30 + seed)).await;
        drop(two);
        let _three = bed.start();
        bed.access_ready("web").await;
        bed.access_ready("app").await;
        bed.until("the Secrets are written", || {
            ["web-bc-1", "web-bc-2", "app-bc-1"].iter().all(|name| bed.secret(name).len() == 13)
        })
        .await;
        let keys = bed.store.state().users.values().flatten().count();
        assert_eq!(keys, 2, "seed {seed}: {:?}", bed.store.assets());
        for access in ["web", "app"] {
            bed.delete("bucketaccesses", access);
            bed.until("the access is handed back", || bed.is_finished(access)).await;
            bed.finish_access(access);
        }
        buckets.iter().for_each(|name| bed.end_bucket(name));
        bed.until("the Buckets are gone", || bed.cluster.list(GROUP, "buckets", None).unwrap().is_empty()).await;
        bed.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn j19_while_a_sidecar_holds_its_lease_nothing_is_done() {
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
    // The sidecar is gone.
    bed.bucket_ready("bc-1").await;
}

#[tokio::test(start_paused = true)]
async fn j20_a_failing_store_is_asked_again_less_and_less() {
    let bed = Bed::new();
    let _running = bed.start();
    for _ in 0..6 {
        bed.store.fail("create_bucket", Failure::Retry);
    }
    bed.bucket("bc-1", json!({}));
    bed.told("bc-1", "Warning ProvisioningFailed: The store does not answer").await;
    bed.until("the status", || bed.error("buckets", "bc-1") == "The store does not answer").await;
    let time = bed.get("buckets", "bc-1").unwrap()["status"]["error"]["time"].clone();
    let start = Instant::now();
    bed.until("the sixth call", || bed.store.calls("create_bucket") == 6).await;
    assert!(start.elapsed() > Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(bed.get("buckets", "bc-1").unwrap()["status"]["error"]["time"], time, "the same text is written once");
    bed.bucket_ready("bc-1").await;
    assert_eq!(bed.error("buckets", "bc-1"), "");
    // What cannot succeed is not asked again.
    bed.store.fail("grant", Failure::Invalid);
    bed.granted("web", &["bc-1"]);
    bed.told("web", "Warning GrantFailed: The store wants no such user").await;
    let calls = bed.store.calls("grant");
    sleep(LONG).await;
    assert_eq!(bed.store.calls("grant"), calls);
    // What cannot be removed is, until it is gone.
    for _ in 0..3 {
        bed.store.fail("delete_bucket", Failure::Retry);
    }
    bed.delete("bucketaccesses", "web");
    bed.until("the access is handed back", || bed.is_finished("web")).await;
    bed.end_bucket("bc-1");
    bed.told("bc-1", "Warning DeletionFailed: The store does not answer").await;
    bed.until("the Bucket is gone", || bed.get("buckets", "bc-1").is_none()).await;
    bed.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn j10_j12_an_access_waits_for_what_it_needs() {
    let bed = Bed::new();
    let _running = bed.start();
    bed.access("web", &["bc-1"]);
    sleep(LONG).await;
    assert!(bed.get("bucketaccesses", "web").unwrap()["status"].is_null(), "it was not handed over");
    bed.hand_over("web", &["bc-1"], DRIVER);
    bed.told("web", "Warning GrantFailed: Bucket bc-1 does not exist").await;
    bed.bucket("bc-1", json!({}));
    bed.access_ready("web").await;
    // Of another driver's Bucket nothing is granted.
    bed.bucket("bc-foreign", json!({"spec": {"driverName": "other.example.com"}}));
    bed.patch_status("buckets", "bc-foreign", json!({"status": {"readyToUse": true, "bucketID": "bc-foreign"}}));
    bed.granted("other", &["bc-foreign"]);
    bed.told("other", "Bucket bc-foreign belongs to another driver").await;
    // Nor of one that is about to go.
    bed.bucket("bc-3", json!({}));
    bed.bucket_ready("bc-3").await;
    bed.patch("buckets", "bc-3", json!({"metadata": {"annotations": {ENDS: ""}}}));
    bed.granted("late", &["bc-3"]);
    bed.told("late", "Bucket bc-3 or its BucketClaim is being deleted").await;
    let users: Vec<_> = bed.store.state().users.keys().filter(|user| user.contains("access")).cloned().collect();
    assert_eq!(users.len(), 1, "{users:?}");
}
