//! A simulated cluster, and a provisioner whose results the test decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube_provisioner::kube::Client;
use kube_provisioner::protocol::{FINALIZER, PROVISIONED_BY};
use kube_provisioner::{
    CancellationToken, Capabilities, Controller, Coordination, DeleteError, Environment, Hooks, Options,
    ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, RunError, StartContext, StartError, Volume,
};
use kube_sim::{Actors, Cluster, DeleteOptions, PatchKind, Running, SimClock, Target, merge_patch};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::outages::Outages;

pub(crate) const PROVISIONER: &str = "example.com/fixture";
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const CLASSES: &str = "storageclasses";

pub(crate) type Request = ProvisionRequest<Parameters>;
pub(crate) type Answer<T, E> = BoxFuture<'static, Result<T, E>>;

/// Parameters that accept any server except `crash`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Parameters {
    #[serde(default, deserialize_with = "server")]
    pub(crate) server: String,
}

fn server<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let server = String::deserialize(deserializer)?;
    assert_ne!(server, "crash", "the author's parser crashes");
    Ok(server)
}

/// The methods of the provisioner, as closures.
pub(crate) struct Script {
    pub(crate) provision: Box<dyn Fn(Request) -> Answer<Volume, ProvisionError> + Send + Sync>,
    pub(crate) clean_up: Box<dyn Fn(Request) -> Answer<(), DeleteError> + Send + Sync>,
    pub(crate) should_delete: Box<dyn Fn(ProvisionedVolume) -> Answer<(), DeleteError> + Send + Sync>,
    pub(crate) delete: Box<dyn Fn(ProvisionedVolume) -> Answer<(), DeleteError> + Send + Sync>,
    pub(crate) start: Box<dyn Fn(StartContext) -> Answer<(), StartError> + Send + Sync>,
    pub(crate) accepts: Box<dyn Fn(&PersistentVolumeClaim) -> bool + Send + Sync>,
}

impl Default for Script {
    /// Returns a script in which everything succeeds immediately.
    fn default() -> Self {
        Self {
            provision: Box::new(|request| Box::pin(async move { Ok(volume(&request.name)) })),
            clean_up: Box::new(|_| Box::pin(async { Ok(()) })),
            should_delete: Box::new(|_| Box::pin(async { Ok(()) })),
            delete: Box::new(|_| Box::pin(async { Ok(()) })),
            start: Box::new(|_| Box::pin(async { Ok(()) })),
            accepts: Box::new(|_| true),
        }
    }
}

pub(crate) fn volume(name: &str) -> Volume {
    Volume::nfs("server", format!("/{name}"))
}

struct Scripted {
    script: Arc<Script>,
    calls: Calls,
}

/// The calls of the author's code, in order.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.all().iter().filter(|one| one.starts_with(call)).count()
    }

    fn note(&self, method: &str, name: &str) {
        self.0.lock().unwrap().push(format!("{method} {name}"));
    }
}

impl Provisioner for Scripted {
    type Parameters = Parameters;

    async fn provision(&self, request: Request) -> Result<Volume, ProvisionError> {
        self.calls.note("provision", request.claim.metadata.name.as_deref().unwrap_or_default());
        (self.script.provision)(request).await
    }

    async fn delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.calls.note("delete", &volume.name);
        (self.script.delete)(volume).await
    }

    async fn clean_up(&self, attempt: Request) -> Result<(), DeleteError> {
        self.calls.note("clean_up", attempt.claim.metadata.name.as_deref().unwrap_or_default());
        (self.script.clean_up)(attempt).await
    }

    async fn start(&self, start: StartContext) -> Result<(), StartError> {
        self.calls.note("start", "");
        (self.script.start)(start).await
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().optional_secret("admin").node_labels().claim_annotations(["example.com/read"])
    }
}

impl Hooks for Scripted {
    async fn should_delete(&self, volume: ProvisionedVolume) -> Result<(), DeleteError> {
        self.calls.note("should_delete", &volume.name);
        (self.script.should_delete)(volume).await
    }

    fn accepts(&self, claim: &PersistentVolumeClaim) -> bool {
        (self.script.accepts)(claim)
    }
}

/// A cluster with the classes `class` and `other` of the provisioner under test.
pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    _actors: Running,
    pub(crate) calls: Calls,
    pub(crate) options: Options,
    script: Arc<Script>,
}

impl Fixture {
    pub(crate) fn new(script: Script) -> Self {
        Self::on(Cluster::builder().hide_managed_fields().build(), script)
    }

    pub(crate) fn on(cluster: Cluster, script: Script) -> Self {
        Self::with_actors(cluster, Actors::all(), script)
    }

    pub(crate) fn with_actors(cluster: Cluster, actors: Actors, script: Script) -> Self {
        let actors = cluster.run(actors);
        let mut options = Options::new(PROVISIONER);
        options.namespace = Some("default".to_owned());
        let fixture = Self { cluster, _actors: actors, calls: Calls::default(), options, script: Arc::new(script) };
        fixture.class("class", json!({}));
        fixture.class("other", json!({}));
        fixture
    }

    /// Creates a fixture for a single process, whose requests fail as the test requests.
    pub(crate) fn with_outages(script: Script) -> (Outages, Self) {
        let outages = Outages::default();
        let cluster = Cluster::builder().hide_managed_fields().interceptor(Arc::new(outages.clone())).build();
        let mut fixture = Self::on(cluster, script);
        fixture.options.coordination = Coordination::None;
        (outages, fixture)
    }

    /// Starts a process of the provisioner.
    pub(crate) fn start(&self, number: u64) -> JoinHandle<Result<(), RunError>> {
        self.start_with(number, self.cluster.client(&format!("ours-{number}")))
    }

    /// Starts a process with the test's own client.
    pub(crate) fn start_with(&self, number: u64, client: Client) -> JoinHandle<Result<(), RunError>> {
        start(self.controller(), number, client)
    }

    /// Starts a process of another provisioner.
    pub(crate) fn start_author(&self, number: u64, author: impl Hooks) -> JoinHandle<Result<(), RunError>> {
        let client = self.cluster.client(&format!("ours-{number}"));
        start(Controller::new(author, self.options.clone()), number, client)
    }

    /// Creates a controller with the machine's clock.
    pub(crate) fn controller(&self) -> Controller {
        let author = Scripted { script: self.script.clone(), calls: self.calls.clone() };
        Controller::new(author, self.options.clone())
    }

    pub(crate) fn class(&self, name: &str, change: Value) {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": PROVISIONER,
        });
        merge_patch(&mut class, change);
        self.cluster.create(&class).unwrap();
    }

    /// Creates a claim of this class. Returns its volume's name.
    pub(crate) fn claim(&self, name: &str, class: &str) -> String {
        self.claim_with(name, class, json!({}))
    }

    pub(crate) fn claim_with(&self, name: &str, class: &str, change: Value) -> String {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        merge_patch(&mut claim, change);
        let created = self.cluster.create(&claim).unwrap();
        format!("pvc-{}", created["metadata"]["uid"].as_str().unwrap())
    }

    /// Creates a volume of ours whose claim no longer exists.
    pub(crate) fn released(&self, name: &str, change: Value) {
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [FINALIZER]},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"server": "s", "path": "/p"},
                "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "gone", "uid": "gone"},
            },
        });
        merge_patch(&mut volume, change);
        self.cluster.create(&volume).unwrap();
    }

    pub(crate) fn delete(&self, plural: &str, name: &str) {
        self.cluster.delete(&target(plural, name), DeleteOptions::default()).unwrap();
    }

    /// Removes a volume, including its finalizers.
    pub(crate) fn remove_volume(&self, name: &str) {
        self.delete(VOLUMES, name);
        self.patch(VOLUMES, name, json!({"metadata": {"finalizers": null}}));
    }

    pub(crate) fn patch(&self, plural: &str, name: &str, patch: Value) {
        self.cluster.patch(&target(plural, name), None, PatchKind::Merge, &patch).unwrap();
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let Target { group, plural, namespace, name } = target(plural, name);
        self.cluster.get(group, plural, namespace, name).ok()
    }

    pub(crate) fn is_bound(&self, claim: &str) -> bool {
        self.get(CLAIMS, claim).is_some_and(|claim| claim["status"]["phase"] == "Bound")
    }

    /// Returns the texts of the events about an object, with type and reason.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events = self.cluster.list("", "events", None).unwrap();
        let about =
            |event: &&Value| event["involvedObject"]["name"] == name && event["reportingComponent"] == PROVISIONER;
        let text = |event: &Value| {
            let part = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", part("type"), part("reason"), part("message"))
        };
        events.iter().filter(about).map(text).collect()
    }

    /// Returns the keys of the journal's entries.
    pub(crate) fn entries(&self) -> Vec<String> {
        let maps = self.cluster.list("", "configmaps", None).unwrap();
        let lines = maps.iter().filter_map(|map| map["data"]["entries"].as_str()).flat_map(str::lines);
        lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    }

    /// Waits until the condition is true. Returns the time that it took.
    pub(crate) async fn until(&self, what: &str, so: impl Fn() -> bool) -> Duration {
        let start = Instant::now();
        while !so() {
            let seen = self.calls.all();
            assert!(
                start.elapsed() < Duration::from_secs(3600),
                "never: {what}; the last calls: {:?}",
                seen.iter().rev().take(9).collect::<Vec<_>>()
            );
            sleep(Duration::from_millis(50)).await;
        }
        start.elapsed()
    }
}

fn start(controller: Controller, number: u64, client: Client) -> JoinHandle<Result<(), RunError>> {
    let controller = controller.environment(Environment::simulated(number, SimClock::EPOCH));
    tokio::spawn(controller.run_with(client, CancellationToken::new()))
}

fn target<'a>(plural: &'a str, name: &'a str) -> Target<'a> {
    let (group, namespace) = match plural {
        CLASSES => ("storage.k8s.io", ""),
        VOLUMES => ("", ""),
        _ => ("", "default"),
    };
    Target { group, plural, namespace, name }
}

/// Returns a Secret with these texts.
pub(crate) fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: BTreeMap<_, _> = data.iter().copied().collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "stringData": data,
    })
}
