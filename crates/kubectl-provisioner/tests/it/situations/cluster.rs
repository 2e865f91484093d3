//! The simulated cluster of a situation, and functions that create common objects.

use std::sync::Arc;

use clap::Parser as _;
use kube_sim::{Attributes, Authorizer, Cluster, Decision, DeleteOptions, SimClock, Target};
use kubectl_provisioner::{Args, answer as ask};
use provisioner_runtime::Environment;
use serde_json::{Value, json};

use super::Situation;

pub(crate) const ASKED: &str = "volume.kubernetes.io/storage-provisioner: example.com/p";
pub(crate) const ALIVE: &str = "2029-12-31T23:59:55.000000Z";
pub(crate) const DEAD: &str = "2029-12-31T22:00:00.000000Z";

struct Denied(&'static [&'static str]);

impl Authorizer for Denied {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let ours = attributes.user == "reader";
        let reads = ["get", "list"].contains(&attributes.verb);
        Decision { allowed: !ours || reads && !self.0.contains(&attributes.resource), reason: String::new() }
    }

    fn rules(&self, _: &str, _: &[String], _: &str) -> Value {
        json!({})
    }
}

/// Creates the situation's objects, runs its command, and returns the answer.
pub(crate) async fn answer(situation: &Situation) -> Result<String, String> {
    let cluster = Cluster::builder().hide_managed_fields().cross_namespace_data_sources();
    let cluster = cluster.authorizer(Arc::new(Denied(situation.denied))).build();
    for namespace in ["shop", "storage", "other"] {
        cluster.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
    }
    for definition in objectbucket_api::crds(objectbucket_api::Validation::Standard) {
        cluster.create(&definition).unwrap();
    }
    let mut uids: Vec<(String, String)> = Vec::new();
    for object in &situation.objects {
        let text = uids.iter().fold(object.clone(), |text, (name, uid)| text.replace(&format!("UID({name})"), uid));
        let created = put(&cluster, &text).map_err(|error| format!("{}: {error}: {text}\n", situation.title))?;
        let part = |field: &str| created["metadata"][field].as_str().unwrap_or_default().to_owned();
        uids.push((part("name"), part("uid")));
    }
    let words = ["kubectl-provisioner"].into_iter().chain(situation.command.split(' '));
    let args = Args::try_parse_from(words).unwrap();
    let answer = ask(&args, cluster.client("reader"), "shop", Environment::simulated(1, SimClock::EPOCH)).await;
    // Replace the uids, which the cluster generates.
    Ok(uids.iter().fold(answer, |text, (name, uid)| text.replace(uid, &format!("UID({name})"))))
}

/// Creates an object with its status. `gone: true` also deletes it, after which only its finalizers keep it.
fn put(cluster: &Cluster, text: &str) -> Result<Value, String> {
    let say = |status: kube_sim::Status| format!("{status:?}");
    let mut object: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let (status, gone) = (object["status"].take(), object["gone"].take());
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let mut created = match &object["bind"] {
        Value::Null => cluster.create(&object).map_err(say)?,
        // Bind the claim `data` to this volume, as kube-controller-manager does.
        volume => {
            let mut claim = cluster.get("", "persistentvolumeclaims", "shop", "data").map_err(say)?;
            claim["spec"]["volumeName"] = volume.clone();
            cluster.update(&claim).map_err(say)?
        }
    };
    if !status.is_null() {
        created["status"] = status;
        created = cluster.update_status(&created).map_err(say)?;
    }
    if gone == true {
        let part = |field: &str| created["metadata"][field].as_str().unwrap_or_default();
        let (group, plural) = match created["kind"].as_str().unwrap() {
            "PersistentVolumeClaim" => ("", "persistentvolumeclaims"),
            "PersistentVolume" => ("", "persistentvolumes"),
            "ObjectBucketClaim" => ("objectbucket.io", "objectbucketclaims"),
            _ => ("objectbucket.io", "objectbuckets"),
        };
        let target = Target { group, plural, namespace: part("namespace"), name: part("name") };
        cluster.delete(&target, DeleteOptions::default()).map_err(say)?;
    }
    Ok(created)
}

/// Returns the claim `shop/data` with these annotations and additional spec fields.
pub(crate) fn claim(annotations: &str, spec: &str) -> String {
    claim_with(&format!("annotations: {{{annotations}}}"), spec, "")
}

pub(crate) fn claim_with(metadata: &str, spec: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data, namespace: shop, {metadata}}},
        spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, {spec}}}, {rest}}}"
    )
}

/// Returns the class `gold` of `example.com/p`.
pub(crate) fn class(more: &str) -> String {
    class_of("gold", "example.com/p", more)
}

pub(crate) fn class_of(name: &str, provisioner: &str, more: &str) -> String {
    format!(
        "{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, provisioner: {provisioner}, {more}}}"
    )
}

/// Returns a volume of class `gold`.
pub(crate) fn volume(name: &str, metadata: &str, spec: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}, {metadata}}},
        spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], storageClassName: gold, {spec}}}, {rest}}}"
    )
}

/// Returns the Lease of the only shard of `example.com/p`.
pub(crate) fn lease(renewed: &str) -> String {
    lease_of("example.com-p", "1", renewed)
}

pub(crate) fn lease_of(name: &str, shards: &str, renewed: &str) -> String {
    format!(
        "{{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {{name: {name}, namespace: storage,
        labels: {{kube-provisioner/fleet: example.com-p}}, annotations: {{kube-provisioner/shards: '{shards}'}}}},
        spec: {{holderIdentity: pod-1_0a, leaseDurationSeconds: 15, renewTime: '{renewed}'}}}}"
    )
}

/// Returns the Lease of `example.com/p`, labelled with the kind of claims that it serves.
pub(crate) fn lease_for(kind: &str) -> String {
    lease(ALIVE).replace("labels: {", &format!("labels: {{kube-provisioner/serves: {kind}, "))
}

/// Returns the pod that holds the Lease; `ready` is the status of its condition `Ready`.
pub(crate) fn replica(ready: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: pod-1, namespace: storage}}, spec: {{containers: [{{name: c, image: i}}]}},
        status: {{conditions: [{{type: Ready, status: '{ready}', lastTransitionTime: '2029-12-31T23:50:00Z'}}]}}}}"
    )
}

/// Returns a journal of `example.com/p`, which contains an entry for the claim `data` if its uid is given.
pub(crate) fn journal(name: &str, layout: &str, uid: Option<&str>) -> String {
    let entry = uid.map(|uid| {
        let metadata = json!({"metadata": {"name": "data", "namespace": "shop", "uid": uid}});
        let class = json!({"metadata": {"name": "gold", "uid": "UID(gold)"}, "provisioner": "example.com/p"});
        let spec = json!({"storageClassName": "gold"});
        json!({"entries": format!("pvc-{uid} gold-1,spec-1 {metadata}\n"), "shared": format!("gold-1 {class}\nspec-1 {spec}\n")})
    });
    let mut data = entry.unwrap_or_else(|| json!({}));
    data["version"] = json!("1");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "storage",
            "labels": {"app.kubernetes.io/component": "journal", "app.kubernetes.io/instance": "example.com-p"},
            "annotations": {"kube-provisioner/holder": "pod-1_0a", "kube-provisioner/layout": layout}},
        "data": data,
    })
    .to_string()
}

/// Adds an annotation to a journal.
fn annotated(journal: &str, key: &str, value: &str) -> String {
    journal.replace("\"annotations\":{", &format!("\"annotations\":{{\"{key}\":\"{value}\","))
}

/// Returns a journal of a provisioner with the additional name `example.com/former`.
pub(crate) fn with_additional_name(journal: &str) -> String {
    annotated(journal, "kube-provisioner/additional-names", "example.com/former")
}

/// Returns a journal that was restored from a backup.
pub(crate) fn restored(journal: &str) -> String {
    annotated(journal, "kube-provisioner/journal-uid", "77c0")
}

/// Returns an event about an object of this kind.
pub(crate) fn event(kind: &str, object: &str, reason: &str, message: &str) -> String {
    let namespace = if ["PersistentVolume", "ObjectBucket"].contains(&kind) { "default" } else { "shop" };
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{object}.{}", reason.to_lowercase()), "namespace": namespace},
        "involvedObject": {"kind": kind, "name": object, "namespace": namespace, "uid": format!("UID({object})")},
        "reason": reason, "message": message, "count": 3, "lastTimestamp": "2029-12-31T23:58:00Z",
        "type": if reason.contains("Failed") { "Warning" } else { "Normal" }, "reportingComponent": "example.com/p",
        "reportingInstance": "pod-1_0a", "action": "Provision",
    })
    .to_string()
}
