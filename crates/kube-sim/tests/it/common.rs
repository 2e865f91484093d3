//! Objects, and waiting for conditions.

use std::time::Duration;

use kube_sim::Cluster;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The provisioner of all classes.
pub(crate) const PROVISIONER: &str = "disks.example.com";

/// Creates an object that the server must accept.
#[track_caller]
pub(crate) fn created(cluster: &Cluster, object: Value) -> Value {
    cluster.create(&object).unwrap_or_else(|refused| panic!("{refused:?}: {object}"))
}

/// Returns a class of [`PROVISIONER`].
pub(crate) fn class(name: &str, binding: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": PROVISIONER, "volumeBindingMode": binding, "reclaimPolicy": "Delete",
    })
}

/// Returns a claim of 1Gi.
pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class,
        },
    })
}

/// Returns a volume of 1Gi without a claim.
pub(crate) fn volume(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/srv/volume"},
        },
    })
}

/// Returns a node that is ready.
pub(crate) fn node(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Returns a pod that uses a claim.
pub(crate) fn pod(name: &str, claim: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        },
    })
}

/// Waits until a condition holds, for at most ten minutes.
pub(crate) async fn until(cluster: &Cluster, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut changes = cluster.subscribe(&[]);
    // Yields, so that immediate reactions can run.
    sleep(Duration::ZERO).await;
    while !holds() {
        assert!(tokio::time::timeout_at(deadline, changes.next()).await.is_ok(), "the condition never held");
    }
}

/// Returns the refusal of a call.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("no refusal: {other:?}"),
    }
}
