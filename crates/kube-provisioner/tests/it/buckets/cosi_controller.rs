//! The provisioner of the tests behind the controller for COSI's Buckets and BucketAccesses, with exactly the
//! permissions in its manifests. The test acts as the central controller.

mod crashes;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube_provisioner::rbac::{Account, cosi_controller_rules, manifests};
use kube_provisioner::{BucketOptions, CancellationToken, CosiController, Environment, RunError};
use kube_sim::{
    After, Before, Builder, Cluster, DeleteOptions, Interceptor, PatchKind, Request, SimClock, Subresource, Target,
    Verb,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fixture::events_about;
use super::store::Store;

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

/// A process of the controller, which ends as in a crash when dropped.
struct Running(JoinHandle<Result<(), RunError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Simulates a crash at a write to a Bucket, BucketAccess or Secret: this write hangs, before or after it takes effect,
/// and so do all later ones.
struct Crash {
    left: AtomicU64,
    after: bool,
}

impl Crash {
    fn concerns(request: &Request) -> bool {
        let is_write = matches!(request.verb, Verb::Create | Verb::Patch | Verb::Delete | Verb::Update);
        is_write && ["buckets", "bucketaccesses", "secrets"].contains(&&*request.resource.plural)
    }

    /// Returns whether the crash has happened.
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

    /// Crashes at the write with this number.
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

    /// Creates the Bucket that the central controller creates for a claim.
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

    /// Creates an access to these Buckets, as a user does. Its Secrets are named after the access and the Bucket.
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

    /// Hands the access over to the driver, as the central controller does.
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

    /// Deletes the Bucket's claim.
    fn end_bucket(&self, name: &str) {
        self.patch("buckets", name, json!({"metadata": {"annotations": {ENDS: ""}}}));
        self.delete("buckets", name);
    }

    /// Performs the central controller's last step.
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

    /// Returns the texts in a Secret of the user.
    fn secret(&self, name: &str) -> BTreeMap<String, String> {
        let secret = self.get("secrets", name).unwrap_or_else(|| json!({}));
        let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
        let text = |value: k8s_openapi::ByteString| String::from_utf8(value.0).unwrap();
        secret.data.unwrap_or_default().into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    /// Returns the number of Secrets in which the driver records accounts.
    fn records(&self) -> usize {
        self.cluster.list("", "secrets", Some(NAMESPACE)).unwrap().len()
    }

    fn events(&self, name: &str) -> Vec<String> {
        events_about(&self.cluster, name)
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

    /// Waits until an event about an object contains this text.
    async fn until_event(&self, name: &str, part: &str) {
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
