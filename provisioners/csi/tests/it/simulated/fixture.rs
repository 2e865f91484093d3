//! A simulated cluster with an in-memory driver.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use csi_provisioner::{CsiProvisioner, DriverInfo, Settings};
use csi_sim::Driver;
use driver_rpc::csi::CreateVolumeRequest;
use futures::future::BoxFuture;
use kube_provisioner::{CancellationToken, Controller, Environment, Options, RunError};
use kube_sim::{
    Actors, Before, Builder, Cluster, DeleteOptions, Interceptor, Request, Running, SimClock, Target, merge_patch,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    _actors: Running,
    pub(crate) driver: Driver,
    pub(crate) settings: Settings,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::on(cluster().build())
    }

    pub(crate) fn on(cluster: Cluster) -> Self {
        let actors = cluster.run(Actors::all());
        let fixture = Self {
            cluster,
            _actors: actors,
            driver: Driver::new(csi_sim::Settings::default()),
            settings: Settings::default(),
        };
        fixture.class("fast", json!({}));
        fixture
    }

    pub(crate) async fn start(&self, number: u64) -> JoinHandle<Result<(), RunError>> {
        self.start_with(number, |_| {}).await
    }

    pub(crate) async fn start_with(
        &self,
        number: u64,
        change: impl FnOnce(&mut Options),
    ) -> JoinHandle<Result<(), RunError>> {
        self.start_driver(number, &self.driver, self.settings.clone(), change).await
    }

    /// Starts a process for another driver.
    pub(crate) async fn start_driver(
        &self,
        number: u64,
        driver: &Driver,
        settings: Settings,
        change: impl FnOnce(&mut Options),
    ) -> JoinHandle<Result<(), RunError>> {
        let info = DriverInfo::query(driver).await.unwrap();
        let mut options = Options::new(info.name());
        options.namespace = Some("default".to_owned());
        change(&mut options);
        let provisioner = CsiProvisioner::new(driver.clone(), info, settings, format!("process-{number}"));
        let controller =
            Controller::new(provisioner, options).environment(Environment::simulated(number, SimClock::EPOCH));
        let client = self.cluster.client(&format!("sidecar-{number}"));
        tokio::spawn(controller.run_with(client, CancellationToken::new()))
    }

    pub(crate) fn class(&self, name: &str, parameters: Value) {
        self.create(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "csi-sim.example.com", "parameters": parameters,
        }));
    }

    /// Creates a class that names a Secret in `default` for CreateVolume and DeleteVolume.
    pub(crate) fn class_with_secret(&self, name: &str, secret: &str) {
        let key = |part: &str| format!("csi.storage.k8s.io/provisioner-secret-{part}");
        self.class(name, json!({key("name"): secret, key("namespace"): "default"}));
    }

    /// Defines a kind without validation rules.
    pub(crate) fn define(&self, group: &str, version: &str, kind: &str, scope: &str) {
        let plural = format!("{}s", kind.to_lowercase());
        self.create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
            },
            "spec": {
                "group": group, "scope": scope,
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }));
    }

    /// Creates a claim, and returns the name of its volume.
    pub(crate) fn claim(&self, name: &str, class: &str, change: Value) -> String {
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

    pub(crate) fn secret(&self, name: &str, password: &str) {
        self.create(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"},
            "stringData": {"password": password},
        }));
    }

    pub(crate) fn create(&self, object: Value) {
        self.cluster.create(&object).unwrap();
    }

    pub(crate) fn delete(&self, group: &str, plural: &str, namespace: &str, name: &str) {
        let target = Target { group, plural, namespace, name };
        self.cluster.delete(&target, DeleteOptions::default()).unwrap();
    }

    pub(crate) fn delete_claim(&self, name: &str) {
        self.delete("", "persistentvolumeclaims", "default", name);
    }

    pub(crate) fn change(&self, group: &str, plural: &str, namespace: &str, name: &str, change: Value) {
        let mut object = self.cluster.get(group, plural, namespace, name).unwrap();
        merge_patch(&mut object, change);
        self.cluster.update(&object).unwrap();
    }

    pub(crate) fn change_claim(&self, name: &str, change: Value) {
        self.change("", "persistentvolumeclaims", "default", name, change);
    }

    pub(crate) fn volume(&self, name: &str) -> Option<Value> {
        self.cluster.get("", "persistentvolumes", "", name).ok()
    }

    pub(crate) fn is_bound(&self, claim: &str) -> bool {
        let claim = self.cluster.get("", "persistentvolumeclaims", "default", claim);
        claim.is_ok_and(|claim| claim["status"]["phase"] == "Bound")
    }

    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events = self.cluster.list("", "events", None).unwrap();
        let about = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        about
            .map(|event| format!("{} {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap()))
            .collect()
    }

    pub(crate) async fn wait_for_event(&self, name: &str, text: &str) {
        self.until(text, || self.events(name).iter().any(|event| event.contains(text))).await;
    }

    pub(crate) async fn until(&self, what: &str, so: impl Fn() -> bool) {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < Duration::from_secs(3600), "never: {what}: {:?}", self.driver.calls());
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn creations(&self) -> Vec<CreateVolumeRequest> {
        self.driver.requests()
    }
}

/// Returns the settings of each fixture's cluster.
pub(crate) fn cluster() -> Builder {
    Cluster::builder().hide_managed_fields()
}

struct Decider<F>(F);

impl<F: Fn(&Request) -> Before + Send + Sync> Interceptor for Decider<F> {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        Box::pin(ready((self.0)(request)))
    }
}

/// Calls a function before each request is handled.
pub(crate) fn before(decide: impl Fn(&Request) -> Before + Send + Sync + 'static) -> Arc<dyn Interceptor> {
    Arc::new(Decider(decide))
}
