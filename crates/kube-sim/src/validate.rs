//! Validation of objects before they are written: kube-apiserver's 422 errors, with its texts and in its order.
//!
//! Objects must be decoded ([`crate::defaults::decode`]) and defaulted. PersistentVolumes, claims, classes, Leases,
//! ConfigMaps, Secrets, Events and Namespaces are checked in full, Nodes and Pods in part. For all others, including
//! custom resources, only the metadata is checked here.

use serde_json::Value;

use crate::resource::{Resource, Special};
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

use metadata::{CheckedFields, NameRule};
pub(crate) use review::review;

const IMMUTABLE: &str = "field is immutable";
const NOT_POSITIVE: &str = "must be greater than zero";

/// Validates a new object. A valid object has no causes. An Event must be in the core form, regardless of the
/// resource's group.
pub fn on_create(resource: &Resource, object: &Value) -> Vec<Cause> {
    let (mut causes, touched) = (Vec::new(), &CheckedFields::All);
    match resource.special {
        Special::Volume => volume::create(resource, object, touched, &mut causes),
        Special::Claim => claim::create(resource, object, touched, &mut causes),
        Special::Class => storage::class(resource, object, touched, &mut causes),
        Special::AttributesClass => storage::attributes_class(resource, object, touched, &mut causes),
        Special::ConfigMap => data::config_map(resource, object, touched, &mut causes),
        Special::Secret => data::secret(resource, object, touched, &mut causes),
        Special::Event => event::create(resource, object, touched, &mut causes),
        Special::Lease => {
            metadata::check(resource, object, NameRule::Subdomain, touched, &mut causes);
            others::lease(object, &mut causes);
        }
        Special::Namespace => namespace(resource, object, touched, &mut causes),
        special @ (Special::Node | Special::Pod | Special::CsiDriver | Special::Definition | Special::Not) => {
            own_metadata(resource, object, touched, &mut causes);
            if special == Special::Pod {
                others::pod(object, &mut causes);
            }
        }
    }
    if causes.is_empty() {
        metadata::check(resource, object, NameRule::PathSegment, touched, &mut causes);
    }
    if resource.special == Special::Class {
        storage::class_declarations(object, None, &mut causes);
    }
    causes
}

/// Validates an object that replaces another. `subresource` is the one that is written (`status`, `finalize`).
pub fn on_update(resource: &Resource, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<Cause> {
    let (mut causes, touched) = (Vec::new(), &CheckedFields::between(old, new));
    metadata::check(resource, new, NameRule::PathSegment, touched, &mut causes);
    metadata::check_update(new, old, touched, &mut causes);
    match (resource.special, subresource) {
        (Special::Volume, None) => volume::update(resource, new, old, touched, &mut causes),
        (Special::Volume, Some(_)) => volume::update_status(new, old, touched, &mut causes),
        (Special::Claim, None) => claim::update(resource, new, old, touched, &mut causes),
        (Special::Claim, Some(_)) => claim::update_status(new, old, touched, &mut causes),
        (Special::Class, _) => storage::class_update(resource, new, old, touched, &mut causes),
        (Special::AttributesClass, _) => storage::attributes_class_update(resource, new, old, touched, &mut causes),
        (Special::ConfigMap, _) => data::config_map_update(resource, new, old, touched, &mut causes),
        (Special::Secret, _) => data::secret_update(resource, new, old, touched, &mut causes),
        (Special::Event, _) => event::update(resource, new, old, touched, &mut causes),
        (Special::Lease, _) => {
            metadata::check_update(new, old, touched, &mut causes);
            others::lease(new, &mut causes);
        }
        (Special::Namespace, None) => {
            namespace(resource, new, touched, &mut causes);
            metadata::check_core_update(new, old, touched, &mut causes);
        }
        (Special::Namespace, Some(subresource)) => {
            metadata::check_core_update(new, old, touched, &mut causes);
            match subresource {
                "finalize" => others::namespace_finalizers(new, true, &mut causes),
                _ => others::namespace_phase(new, &mut causes),
            }
        }
        (special @ (Special::Node | Special::Pod | Special::CsiDriver | Special::Definition | Special::Not), _) => {
            own_metadata(resource, new, touched, &mut causes);
            metadata::check_update(new, old, touched, &mut causes);
            match (special, subresource) {
                (Special::Node, None) => others::node_update(new, old, &mut causes),
                (Special::Pod, None) => others::pod(new, &mut causes),
                _ => {}
            }
        }
    }
    causes
}

fn own_metadata(resource: &Resource, object: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check(resource, object, NameRule::of(resource), touched, causes);
    // Only core and storage use core's own metadata check.
    if matches!(resource.group.as_str(), "" | "storage.k8s.io") {
        metadata::check_core_finalizers(object, touched, causes);
    }
}

fn namespace(resource: &Resource, namespace: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check(resource, namespace, NameRule::Label, touched, causes);
    metadata::check_core_finalizers(namespace, touched, causes);
    others::namespace_finalizers(namespace, false, causes);
}

/// Returns a cause for an invalid value, with the text that shows it.
fn invalid_as_shown(field: &str, shown: &str, detail: &str) -> Cause {
    let message = format!("Invalid value: {shown}: {detail}");
    Cause { reason: CauseReason::Invalid, field: field.to_owned(), message }
}

/// Returns a field's text, or `""`.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the items of a list.
fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the texts of a list of texts.
fn texts<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    items(object, field).filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
