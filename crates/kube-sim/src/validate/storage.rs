//! StorageClasses and VolumeAttributesClasses: `pkg/apis/storage/validation`.

use serde_json::{Value, json};

use super::metadata::{self, CheckedFields, invalid};
use super::{IMMUTABLE, names, selectors, text};
use crate::resource::Resource;
use crate::status::Cause;

const RECLAIM_POLICIES: [&str; 2] = ["Delete", "Retain"];
const BINDING_MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 << 10;

/// A StorageClass on create.
pub(super) fn class(resource: &Resource, class: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core(resource, class, touched, causes);
    let provisioner = text(class, "provisioner");
    if !provisioner.is_empty() {
        qualified("provisioner", provisioner, causes);
    }
    parameters(class, causes);
    let policy = text(class, "reclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        causes.push(Cause::not_supported("reclaimPolicy", &json!(policy), &RECLAIM_POLICIES));
    }
    match class.get("volumeBindingMode") {
        None => causes.push(Cause::required("volumeBindingMode", "")),
        Some(mode) if BINDING_MODES.iter().any(|known| mode == known) => {}
        Some(mode) => causes.push(Cause::not_supported("volumeBindingMode", mode, &BINDING_MODES)),
    }
    selectors::topologies(class, causes);
}

/// Causes from declarative validation, which are listed last: required and immutable fields of a StorageClass.
pub(super) fn class_declarations(class: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    const FIELDS: [&str; 4] = ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"];
    for field in FIELDS {
        let changed = old.is_some_and(|old| old.get(field) != class.get(field));
        if field == "provisioner" && text(class, field).is_empty() && (changed || old.is_none()) {
            causes.push(Cause::required(field, ""));
        }
        if changed {
            causes.push(Cause::invalid(field, &Value::Null, IMMUTABLE));
        }
    }
}

/// A StorageClass on update.
pub(super) fn class_update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    class(resource, new, touched, causes);
    metadata::check_core_update(new, old, touched, causes);
    class_declarations(new, Some(old), causes);
}

/// A VolumeAttributesClass on create.
pub(super) fn attributes_class(
    resource: &Resource,
    class: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core(resource, class, touched, causes);
    match text(class, "driverName") {
        "" => causes.push(Cause::required("driverName", "")),
        driver => qualified("driverName", driver, causes),
    }
    parameters(class, causes);
    if class.get("parameters").is_none() {
        causes.push(Cause::required("parameters", "must contain at least one key/value pair"));
    }
}

/// A VolumeAttributesClass on update.
pub(super) fn attributes_class_update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core_update(new, old, touched, causes);
    for field in ["driverName", "parameters"] {
        if new.get(field) != old.get(field) {
            causes.push(Cause::forbidden(field, &format!("updates to {field} are forbidden.")));
        }
    }
    attributes_class(resource, new, touched, causes);
}

fn qualified(field: &str, name: &str, causes: &mut Vec<Cause>) {
    let lower = name.to_lowercase();
    invalid(field, &lower, names::qualified(&lower), causes);
}

fn parameters(class: &Value, causes: &mut Vec<Cause>) {
    let Some(parameters) = class.get("parameters").and_then(Value::as_object) else { return };
    if parameters.len() > MAX_PARAMETERS {
        causes.push(Cause::too_long("parameters", MAX_PARAMETERS));
        return;
    }
    if parameters.contains_key("") {
        causes.push(Cause::invalid("parameters", &json!(""), "field can not be empty."));
    }
    let size: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_PARAMETERS_SIZE {
        causes.push(Cause::too_long("parameters", MAX_PARAMETERS_SIZE));
    }
}
