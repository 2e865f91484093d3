//! Validation of objects before they are written: what kube-apiserver refuses with 422, in its words and order.
//!
//! Objects come here decoded ([`crate::defaults::decode`]) and defaulted. PersistentVolumes, claims, classes, Leases,
//! ConfigMaps, Secrets, Events and Namespaces are checked in full, Nodes and Pods in part; of all others, custom resources
//! included, the metadata.

use serde_json::Value;

use crate::resource::Resource;
use crate::status::{Cause, CauseReason};

mod claim;
mod data;
mod event;
mod go;
mod metadata;
pub mod names;
mod others;
pub mod quantity;
mod review;
mod selectors;
mod storage;
mod volume;
mod volume_source;

use metadata::NameRule;
pub(crate) use review::review;

const IMMUTABLE: &str = "field is immutable";
const NOT_POSITIVE: &str = "must be greater than zero";

/// What is wrong with an object that is to be created; nothing for a good one. An Event comes in core's form whatever
/// group the resource is of.
pub fn on_create(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match Kind::of(resource) {
        Kind::Volume => volume::create(resource, object, &mut causes),
        Kind::Claim => claim::create(resource, object, &mut causes),
        Kind::Class => storage::class(resource, object, &mut causes),
        Kind::AttributesClass => storage::attributes_class(resource, object, &mut causes),
        Kind::ConfigMap => data::config_map(resource, object, &mut causes),
        Kind::Secret => data::secret(resource, object, &mut causes),
        Kind::Event => event::create(resource, object, &mut causes),
        Kind::Lease => {
            metadata::check(resource, object, NameRule::Subdomain, &mut causes);
            others::lease(object, &mut causes);
        }
        Kind::Namespace => namespace(resource, object, &mut causes),
        kind @ (Kind::Node | Kind::Pod | Kind::Other) => {
            own_metadata(resource, object, &mut causes);
            if kind == Kind::Pod {
                others::pod(object, &mut causes);
            }
        }
    }
    if causes.is_empty() {
        metadata::check(resource, object, NameRule::PathSegment, &mut causes);
    }
    if Kind::of(resource) == Kind::Class {
        storage::class_declarations(object, None, &mut causes);
    }
    causes
}

/// What is wrong with an object that is to take the place of another; `subresource` is the one written to
/// (`status`, `finalize`).
pub fn on_update(resource: &Resource, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<Cause> {
    let mut causes = Vec::new();
    metadata::check(resource, new, NameRule::PathSegment, &mut causes);
    metadata::check_update(new, old, &mut causes);
    match (Kind::of(resource), subresource) {
        (Kind::Volume, None) => volume::update(resource, new, old, &mut causes),
        (Kind::Volume, Some(_)) => volume::update_status(new, old, &mut causes),
        (Kind::Claim, None) => claim::update(resource, new, old, &mut causes),
        (Kind::Claim, Some(_)) => claim::update_status(new, old, &mut causes),
        (Kind::Class, _) => storage::class_update(resource, new, old, &mut causes),
        (Kind::AttributesClass, _) => storage::attributes_class_update(resource, new, old, &mut causes),
        (Kind::ConfigMap, _) => data::config_map_update(resource, new, old, &mut causes),
        (Kind::Secret, _) => data::secret_update(resource, new, old, &mut causes),
        (Kind::Event, _) => event::update(resource, new, old, &mut causes),
        (Kind::Lease, _) => {
            metadata::check_update(new, old, &mut causes);
            others::lease(new, &mut causes);
        }
        (Kind::Namespace, None) => {
            namespace(resource, new, &mut causes);
            core_metadata_update(new, old, &mut causes);
        }
        (Kind::Namespace, Some(subresource)) => {
            core_metadata_update(new, old, &mut causes);
            match subresource {
                "finalize" => others::namespace_finalizers(new, true, &mut causes),
                _ => others::namespace_phase(new, &mut causes),
            }
        }
        (kind @ (Kind::Node | Kind::Pod | Kind::Other), _) => {
            own_metadata(resource, new, &mut causes);
            metadata::check_update(new, old, &mut causes);
            match (kind, subresource) {
                (Kind::Node, None) => others::node_update(new, old, &mut causes),
                (Kind::Pod, None) => {
                    others::pod(new, &mut causes);
                    others::pod_update(new, old, &mut causes);
                }
                _ => {}
            }
        }
    }
    causes
}

/// The resources with rules of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AttributesClass,
    Claim,
    Class,
    ConfigMap,
    Event,
    Lease,
    Namespace,
    Node,
    Other,
    Pod,
    Secret,
    Volume,
}

impl Kind {
    fn of(resource: &Resource) -> Self {
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "persistentvolumes") => Self::Volume,
            ("", "persistentvolumeclaims") => Self::Claim,
            ("", "configmaps") => Self::ConfigMap,
            ("", "secrets") => Self::Secret,
            ("" | "events.k8s.io", "events") => Self::Event,
            ("", "namespaces") => Self::Namespace,
            ("", "nodes") => Self::Node,
            ("", "pods") => Self::Pod,
            ("storage.k8s.io", "storageclasses") => Self::Class,
            ("storage.k8s.io", "volumeattributesclasses") => Self::AttributesClass,
            ("coordination.k8s.io", "leases") => Self::Lease,
            _ => Self::Other,
        }
    }
}

fn own_metadata(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    metadata::check(resource, object, NameRule::of(resource), causes);
    // Only core and storage use core's own check of the metadata.
    if matches!(resource.group.as_str(), "" | "storage.k8s.io") {
        metadata::check_core_finalizers(object, causes);
    }
}

fn core_metadata_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    metadata::check_update(new, old, causes);
    metadata::check_core_finalizers(new, causes);
}

fn namespace(resource: &Resource, namespace: &Value, causes: &mut Vec<Cause>) {
    metadata::check(resource, namespace, NameRule::Label, causes);
    metadata::check_core_finalizers(namespace, causes);
    others::namespace_finalizers(namespace, false, causes);
}

/// An invalid value that is shown in a form of its own.
fn invalid_as_shown(field: &str, shown: &str, detail: &str) -> Cause {
    let message = format!("Invalid value: {shown}: {detail}");
    Cause { reason: CauseReason::Invalid, field: field.to_owned(), message }
}

/// A field's text, `""` when there is none.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list.
fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The texts of a list of texts.
fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    items(object, field).filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
