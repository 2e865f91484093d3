//! Resources with few checks: Leases, Namespaces, Nodes, Pods.

use serde_json::{Value, json};

use super::{metadata, text, texts};
use crate::object::{self, at};
use crate::status::Cause;

/// `ValidateLeaseSpec`
pub(super) fn lease(lease: &Value, causes: &mut Vec<Cause>) {
    let number = |field: &str| at(lease, &["spec", field]).and_then(Value::as_i64);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", &json!(seconds), "must be greater than 0"));
    }
    if let Some(transitions) = number("leaseTransitions").filter(|transitions| *transitions < 0) {
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &json!(transitions), detail));
    }
}

/// The finalizers in a namespace's spec. With `indexed`, the server's paths contain their index.
pub(super) fn namespace_finalizers(namespace: &Value, indexed: bool, causes: &mut Vec<Cause>) {
    let Some(spec) = namespace.get("spec") else { return };
    for (index, name) in texts(spec, "finalizers").enumerate() {
        let path = || if indexed { format!("spec.finalizers[{index}]") } else { "spec.finalizers".to_owned() };
        metadata::invalid(&path(), name, super::names::qualified(name), causes);
        metadata::standard_or_qualified(name, path, causes);
    }
}

/// A namespace's phase must agree with its deletion.
pub(super) fn namespace_phase(namespace: &Value, causes: &mut Vec<Cause>) {
    let phase = object::text_at(namespace, &["status", "phase"]);
    let (wanted, detail) = match object::deletion_timestamp(namespace) {
        None => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        Some(_) => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase != wanted {
        causes.push(Cause::invalid("status.Phase", &json!(phase), detail));
    }
}

/// A node's provider ID is immutable once it is set.
pub(super) fn node_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let id = |node| object::text_at(node, &["spec", "providerID"]);
    if !id(old).is_empty() && id(new) != id(old) {
        let what = if id(new).is_empty() { "cleared" } else { "modified" };
        causes.push(Cause::invalid("spec.providerID", &Value::Null, &format!("field cannot be {what} once set")));
    }
}

/// The required fields of a pod.
pub(super) fn pod(pod: &Value, causes: &mut Vec<Cause>) {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut count = 0;
    for (index, container) in super::items(spec, "containers").enumerate() {
        count += 1;
        for field in ["name", "image"] {
            if text(container, field).is_empty() {
                causes.push(Cause::required(format!("spec.containers[{index}].{field}"), ""));
            }
        }
    }
    if count == 0 {
        causes.push(Cause::required("spec.containers", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in super::items(spec, "volumes").enumerate() {
        let name = text(volume, "name");
        if names.contains(&name) {
            causes.push(Cause::duplicate(format!("spec.volumes[{index}].name"), &json!(name)));
        }
        names.push(name);
    }
}
