//! The strategies of `pkg/registry`: fields that a create sets, fields that an update cannot change, and generations.

use serde_json::{Map, Value, json};

use super::decode;
use crate::object::{self, set};
use crate::resource::{Resource, Special};
use crate::state::State;

/// `PrepareForCreate`.
pub(super) fn prepare_for_create(resource: &Resource, object: &mut Value, state: &State, now: &str) {
    if has_generation(resource) {
        object::set_meta(object, "generation", 1);
    }
    if resource.custom {
        return;
    }
    // A kubelet creates its node with a status.
    if resource.status && resource.special != Special::Node {
        set(object, "status", decode::zero_field(resource, "status"));
    }
    match resource.special {
        Special::Volume => {
            object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        }
        Special::Claim => {
            object["status"] = json!({"phase": "Pending"});
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                data_sources(spec, None, state.cross_namespace_data_sources);
            }
        }
        Special::Namespace => {
            object["status"] = json!({"phase": "Active"});
            let finalizers = object::object_mut(object, "spec").entry("finalizers").or_insert_with(|| json!([]));
            if let Value::Array(finalizers) = finalizers
                && !finalizers.iter().any(|name| name == "kubernetes")
            {
                finalizers.push("kubernetes".into());
            }
        }
        Special::Pod => object["status"] = json!({"phase": "Pending"}),
        Special::Lease => election_fields(object, None),
        _ => {}
    }
}

/// `PrepareForUpdate` of the resource or a subresource, and the metadata that `BeforeUpdate` restores.
pub(super) fn prepare_for_update(
    resource: &Resource,
    old: &Value,
    new: &mut Value,
    subresource: Option<&str>,
    state: &State,
    now: &str,
) {
    keep_system_fields(old, new);
    // `verbs::custom` does the rest for custom resources.
    if resource.custom {
        return;
    }
    match subresource {
        None if resource.status => keep(old, new, "status"),
        None => {}
        // `finalize` changes only the finalizers of a namespace.
        Some("finalize") => keep(old, new, "status"),
        Some(_) => keep(old, new, "spec"),
    }
    match (resource.special, subresource) {
        (Special::Volume, Some(_)) => phase_transition(old, new, now),
        (Special::Claim, None) => {
            if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
                data_sources(spec, old.get("spec"), state.cross_namespace_data_sources);
            }
        }
        (Special::Namespace, None) => {
            let finalizers = object::at(old, &["spec", "finalizers"]).cloned();
            set(&mut new["spec"], "finalizers", finalizers);
        }
        (Special::Pod, Some(_)) => {
            let owners = object::meta(old, "ownerReferences").cloned();
            set(&mut new["metadata"], "ownerReferences", owners);
        }
        (Special::Lease, _) => election_fields(new, Some(old)),
        _ => {}
    }
    if has_generation(resource) && subresource.is_none() && new.get("spec") != old.get("spec") {
        object::set_meta(new, "generation", object::generation(old) + 1);
    }
}

/// Restores the metadata that no update changes.
fn keep_system_fields(old: &Value, new: &mut Value) {
    let metadata = object::metadata_mut(new);
    metadata.remove("selfLink");
    let before = old.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let mut counted = false;
    for (field, value) in before.filter(|(_, value)| !value.is_null()) {
        let kept = match field.as_str() {
            "generation" | "creationTimestamp" | "deletionTimestamp" => metadata.get(field) != Some(value),
            "uid" | "deletionGracePeriodSeconds" => !metadata.contains_key(field),
            _ => false,
        };
        if kept {
            metadata.insert(field.clone(), value.clone());
        }
        counted |= field == "generation";
    }
    if !counted {
        metadata.remove("generation");
    }
}

/// Returns whether the server counts generations of this resource.
fn has_generation(resource: &Resource) -> bool {
    match resource.special {
        Special::Definition | Special::Pod => true,
        Special::Not => {
            resource.custom
                || matches!(
                    (resource.group.as_str(), resource.plural.as_str()),
                    ("", "replicationcontrollers")
                        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
                        | ("batch", "cronjobs" | "jobs")
                        | ("discovery.k8s.io", "endpointslices")
                        | ("networking.k8s.io", "ingressclasses" | "ingresses" | "networkpolicies")
                        | ("policy", "poddisruptionbudgets")
                        | ("scheduling.k8s.io", "priorityclasses")
                )
        }
        _ => false,
    }
}

/// Sets the time of a volume's phase transition, unless the client did.
fn phase_transition(old: &Value, new: &mut Value, now: &str) {
    const TIME: &str = "lastPhaseTransitionTime";
    let status = |volume: &Value, field: &str| object::at(volume, &["status", field]).cloned();
    let (old_time, new_time) = (status(old, TIME), status(new, TIME));
    let changed = status(old, "phase") != status(new, "phase");
    if !changed && new_time.is_none() {
        set(&mut new["status"], TIME, old_time);
    } else if changed && (new_time.is_none() || new_time == old_time) {
        set(&mut new["status"], TIME, Some(now.into()));
    }
}

/// Aligns the fields `dataSource` and `dataSourceRef` of a claim (KEP-1495). Cross-namespace references are dropped if
/// their feature gate is off.
fn data_sources(spec: &mut Map<String, Value>, old: Option<&Value>, across_namespaces: bool) {
    let old_has = |field: &str| old.is_some_and(|old| old.get(field).is_some());
    let namespace = |source: &Value| object::text_at(source, &["namespace"]).to_owned();
    let is_across = spec.get("dataSourceRef").is_some_and(|source| !namespace(source).is_empty());
    if is_across && !across_namespaces && !old_has("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    if !old_has("dataSource") && !old_has("dataSourceRef") && !spec.contains_key("dataSourceRef") {
        let known = spec.get("dataSource").is_some_and(|source| {
            let text = |field: &str| object::text_at(source, &[field]);
            matches!(
                (text("apiGroup"), text("kind")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            )
        });
        if !known {
            spec.remove("dataSource");
        }
    }
    match (spec.get("dataSource"), spec.get("dataSourceRef")) {
        (Some(source), None) => {
            let source = source.clone();
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(source)) if namespace(source).is_empty() => {
            let mut source = source.clone();
            set(&mut source, "namespace", None);
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

/// Coordinated leader election is off: its fields in a Lease are dropped, unless the stored Lease has them.
fn election_fields(lease: &mut Value, old: Option<&Value>) {
    let Some(spec) = lease.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let known = old.and_then(|old| old.get("spec")).and_then(Value::as_object);
    for field in ["strategy", "preferredHolder"] {
        if known.is_none_or(|known| !known.contains_key(field)) {
            spec.remove(field);
        }
    }
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    let before = old.get(field);
    if new.get(field) != before {
        set(new, field, before.cloned());
    }
}
