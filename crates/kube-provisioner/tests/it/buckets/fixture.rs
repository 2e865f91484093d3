//! A cluster with the CustomResourceDefinitions, classes and controller processes.

use std::time::Duration;

use kube_provisioner::bucket::objectbucket_api::{Validation, crds};
use kube_provisioner::{BucketController, BucketOptions, CancellationToken, Environment, RunError};
use kube_sim::{Actors, Builder, Cluster, DeleteOptions, PatchKind, Running, SimClock, Target};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::store::Store;

pub(crate) const PROVISIONER: &str = "example.com/bucket";
pub(crate) const CLAIMS: &str = "objectbucketclaims";
pub(crate) const BUCKETS: &str = "objectbuckets";

pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    _actors: Running,
    pub(crate) store: Store,
    pub(crate) options: BucketOptions,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::built(Cluster::builder())
    }

    /// Creates a fixture with our definitions, on the cluster of this builder.
    pub(crate) fn built(builder: Builder) -> Self {
        let cluster = builder.hide_managed_fields().build();
        for definition in crds(Validation::Standard) {
            cluster.create(&serde_json::to_value(&definition).unwrap()).unwrap();
        }
        Self::on(cluster)
    }

    /// Creates a fixture on a cluster that already contains definitions.
    pub(crate) fn on(cluster: Cluster) -> Self {
        let actors = cluster.run(Actors::all());
        let mut options = BucketOptions::new(PROVISIONER);
        options.options.namespace = Some("default".to_owned());
        let fixture = Self { cluster, _actors: actors, store: Store::default(), options };
        fixture.class("class", json!({}));
        fixture
    }

    /// Starts a process of the provisioner.
    pub(crate) fn start(&self, number: u64) -> JoinHandle<Result<(), RunError>> {
        let environment = Environment::simulated(number, SimClock::EPOCH);
        let controller = BucketController::new(self.store.clone(), self.options.clone()).environment(environment);
        let client = self.cluster.client(&format!("ours-{number}"));
        tokio::spawn(async move { controller.run_with(client, CancellationToken::new()).await })
    }

    pub(crate) fn class(&self, name: &str, change: Value) {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER,
        });
        class.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.create(class);
    }

    /// Sets the overlap of former keys for claims of the class `class`. A short overlap makes a test faster.
    pub(crate) fn overlap(&self, text: &str) {
        self.delete("storageclasses", "class");
        self.class("class", json!({"parameters": {"credentialsOverlap": text}}));
    }

    /// Creates a claim. Returns its uid.
    pub(crate) fn claim(&self, name: &str, spec: Value) -> String {
        self.claim_in("default", name, spec)
    }

    pub(crate) fn claim_in(&self, namespace: &str, name: &str, spec: Value) -> String {
        let mut claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"storageClassName": "class", "generateBucketName": "b"},
        });
        claim["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.create(claim)["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    pub(crate) fn create(&self, object: Value) -> Value {
        self.cluster.create(&object).unwrap()
    }

    pub(crate) fn delete(&self, plural: &str, name: &str) {
        self.cluster.delete(&target(plural, name), DeleteOptions::default()).unwrap();
    }

    pub(crate) fn patch(&self, plural: &str, name: &str, patch: Value) {
        self.cluster.patch(&target(plural, name), None, PatchKind::Merge, &patch).unwrap();
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let Target { group, plural, namespace, name } = target(plural, name);
        self.cluster.get(group, plural, namespace, name).ok()
    }

    pub(crate) fn phase(&self, claim: &str) -> String {
        let claim = self.get(CLAIMS, claim).unwrap_or_default();
        claim["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the reason and message of a claim's condition `Ready`.
    pub(crate) fn ready(&self, claim: &str) -> (String, String) {
        let claim = self.get(CLAIMS, claim).unwrap_or_default();
        let all = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = all.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    pub(crate) async fn until_bound(&self, claim: &str) {
        self.until("the claim is bound", || self.phase(claim) == "Bound").await;
    }

    pub(crate) async fn until_gone(&self, claim: &str) {
        self.until("the claim is gone", || self.get(CLAIMS, claim).is_none()).await;
    }

    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        events_about(&self.cluster, name)
    }

    pub(crate) async fn until(&self, what: &str, so: impl Fn() -> bool) -> Duration {
        let start = Instant::now();
        while !so() {
            let calls = self.store.state().calls.clone();
            let claims = self.cluster.list("objectbucket.io", CLAIMS, None).unwrap();
            assert!(start.elapsed() < Duration::from_secs(3600), "never: {what}; {calls:?}; {claims:#?}");
            sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    }
}

pub(crate) fn target<'a>(plural: &'a str, name: &'a str) -> Target<'a> {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let (group, namespace) = match plural {
        "storageclasses" => ("storage.k8s.io", ""),
        BUCKETS => ("objectbucket.io", ""),
        CLAIMS => ("objectbucket.io", namespace),
        _ => ("", namespace),
    };
    Target { group, plural, namespace, name }
}

/// Returns the texts of the events about an object, with type and reason.
pub(crate) fn events_about(cluster: &Cluster, name: &str) -> Vec<String> {
    let events = cluster.list("", "events", None).unwrap();
    let about = |event: &&Value| event["involvedObject"]["name"] == name;
    let text = |event: &Value| {
        let part = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", part("type"), part("reason"), part("message"))
    };
    events.iter().filter(about).map(text).collect()
}
