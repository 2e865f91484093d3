//! PersistentVolumeClaims: `ValidatePersistentVolumeClaim*` of core's validation.

use serde_json::{Value, json};

use super::go::{self, GoValue};
use super::metadata::{self, CheckedFields, invalid};
use super::quantity::Quantity;
use super::{IMMUTABLE, NOT_POSITIVE, names, selectors, text, volume};
use crate::defaults::schema::Struct;
use crate::object::{self, BETA_CLASS, at};
use crate::resource::Resource;
use crate::status::Cause;

const STORAGE: [&str; 4] = ["spec", "resources", "requests", "storage"];
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Invalid values that an update may keep because the stored claim has them.
#[derive(Clone, Copy, Default)]
struct ToleratedValues {
    selector: bool,
    api_group: bool,
}

/// On create.
pub(super) fn create(resource: &Resource, claim: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core(resource, claim, touched, causes);
    spec(claim, ToleratedValues::default(), causes);
}

/// On update of everything except the status.
pub(super) fn update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    metadata::check_core_update(new, old, touched, causes);
    metadata::check_core(resource, new, touched, causes);
    let same_spec = new.get("spec") == old.get("spec");
    if !same_spec {
        spec(new, leniency(old), causes);
    }
    spec_is_immutable(new, old, causes);
    // The unchanged spec was valid when it was written.
    if same_spec {
        return;
    }
    storage_does_not_shrink(new, old, causes);
    let mode = |claim| at(claim, &["spec", "volumeMode"]).unwrap_or(&Value::Null);
    if mode(new) != mode(old) {
        causes.push(Cause::invalid("volumeMode", mode(new), IMMUTABLE));
    }
    let attributes = |claim| at(claim, &["spec", "volumeAttributesClassName"]);
    if attributes(new) != attributes(old) && at(old, &["status", "currentVolumeAttributesClassName"]).is_some() {
        let what = match attributes(new).and_then(Value::as_str) {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        let detail = format!("update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil");
        causes.push(Cause::forbidden("spec.volumeAttributesClassName", &detail));
    }
}

/// On update of the status.
pub(super) fn update_status(new: &Value, old: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    metadata::check_core_update(new, old, touched, causes);
    if object::resource_version(new).is_empty() {
        causes.push(Cause::required("resourceVersion", ""));
    }
    if at(new, &["spec", "accessModes"]).is_none() {
        causes.push(Cause::required("Spec.accessModes", ""));
    }
    let amounts = |field: &str| at(new, &["status", field]).and_then(Value::as_object).into_iter().flatten();
    for (name, amount) in amounts("capacity") {
        not_negative(&format!("status.capacity[{name}]"), amount, causes);
    }
    for (name, status) in amounts("allocatedResourceStatuses") {
        resource_name("status.allocatedResourceStatuses", name, causes);
        if !RESIZE_STATUSES.iter().any(|known| status == known) {
            causes.push(Cause::not_supported("status.allocatedResourceStatuses", &json!(name), &RESIZE_STATUSES));
        }
    }
    for (name, amount) in amounts("allocatedResources") {
        if resource_name("status.allocatedResources", name, causes) {
            not_negative(&format!("status.allocatedResources[{name}]"), amount, causes);
        }
    }
}

fn spec(claim: &Value, leniency: ToleratedValues, causes: &mut Vec<Cause>) {
    let spec = claim.get("spec").unwrap_or(&Value::Null);
    volume::access_modes_are_given(spec, "at least 1 access mode is required", causes);
    if let Some(selector) = spec.get("selector") {
        selectors::label_selector(selector, "spec.selector", leniency.selector, causes);
    }
    volume::access_modes_are_known(spec, causes);
    request(at(spec, &["resources", "requests", "storage"]), causes);
    class("storageClassName", spec, causes);
    volume::volume_mode(spec, causes);
    let (source, source_ref) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    if let Some(source) = source {
        data_source("spec.dataSource", source, leniency, causes);
    }
    if let Some(source) = source_ref {
        data_source("spec.dataSourceRef", source, leniency, causes);
        let namespace = text(source, "namespace");
        if !namespace.is_empty() {
            invalid("spec.dataSourceRef.namespace", namespace, names::dns_label(namespace), causes);
        }
    }
    if let (Some(source), Some(source_ref)) = (source, source_ref) {
        // The server shows a Go `field.Path` here, whose JSON is empty.
        let shown = |detail| Cause::invalid("spec", &json!({}), detail);
        let same = ["apiGroup", "kind", "name"].iter().all(|field| source.get(field) == source_ref.get(field));
        if !text(source_ref, "namespace").is_empty() {
            causes.push(shown("may not be specified when dataSourceRef.namespace is specified"));
        } else if !same {
            causes.push(shown("must match dataSourceRef"));
        }
    }
    class("volumeAttributesClassName", spec, causes);
}

fn request(storage: Option<&Value>, causes: &mut Vec<Cause>) {
    const PATH: &str = "spec.resources[storage]";
    let Some(storage) = storage else {
        causes.push(Cause::required(PATH, ""));
        return;
    };
    let Some(amount) = quantity(storage) else { return };
    if amount.sign() <= 0 {
        causes.push(Cause::invalid(PATH, &json!(amount.to_string()), NOT_POSITIVE));
    }
}

fn class(field: &str, spec: &Value, causes: &mut Vec<Cause>) {
    let class = text(spec, field);
    if !class.is_empty() {
        invalid(&format!("spec.{field}"), class, names::dns_subdomain(class), causes);
    }
}

fn data_source(path: &str, source: &Value, leniency: ToleratedValues, causes: &mut Vec<Cause>) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        causes.push(Cause::invalid(path, &json!(kind), detail));
    }
    if !group.is_empty() && !leniency.api_group {
        invalid(&format!("{path}.apiGroup"), group, names::dns_subdomain(group), causes);
    }
}

fn leniency(old: &Value) -> ToleratedValues {
    let spec = old.get("spec").unwrap_or(&Value::Null);
    let mut selector_causes = Vec::new();
    if let Some(selector) = spec.get("selector") {
        selectors::label_selector(selector, "", false, &mut selector_causes);
    }
    let has_group = |field: &str| at(spec, &[field, "apiGroup"]).is_some();
    ToleratedValues {
        selector: !selector_causes.is_empty(),
        api_group: has_group("dataSource") || has_group("dataSourceRef"),
    }
}

/// Allows a bound claim to change its request and attributes class. The volume name and the class can be set once.
fn spec_is_immutable(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let Some((new_spec, old_spec)) = new.get("spec").zip(old.get("spec")) else { return };
    let class = "storageClassName";
    let beta = |claim| object::annotation(claim, BETA_CLASS);
    let new_class = new_spec.get(class).and_then(Value::as_str);
    let had_class = old_spec.get(class).is_some();
    // The class moves from the annotation to the field, or is set for the first time.
    let moved =
        !had_class && beta(old).is_some_and(|old| new_class == Some(old) && beta(new).is_none_or(|new| new == old));
    if !moved && beta(new) != beta(old) {
        let shown = json!(beta(new).unwrap_or_default());
        causes.push(Cause::invalid(format!("metadata.annotations.{BETA_CLASS}"), &shown, IMMUTABLE));
    }
    if new_spec == old_spec {
        return;
    }
    let (mut compared, mut expected) = (new_spec.clone(), old_spec.clone());
    if text(old_spec, "volumeName").is_empty() {
        copy(&mut expected, new_spec, "volumeName");
    }
    if moved {
        object_fields(&mut compared).remove(class);
    } else if !had_class && new_class.is_some() && beta(old).is_none_or(|old| new_class == Some(old)) {
        copy(&mut compared, old_spec, class);
    }
    if object::text_at(new, &["status", "phase"]) == "Bound" {
        if let Some(requests) = compared.pointer_mut("/resources/requests") {
            copy(requests, at(old, &STORAGE[..3]).unwrap_or(&Value::Null), "storage");
        }
        copy(&mut compared, old_spec, "volumeAttributesClassName");
    }
    unify_amounts(&mut compared, &expected);
    if compared != expected {
        let shown = |spec: &Value| GoValue::structure(spec, Struct::named("core/v1.PersistentVolumeClaimSpec"));
        let diff = go::diff(&shown(&expected), &shown(&compared));
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{diff}"
        );
        causes.push(Cause::forbidden("spec", &detail));
    }
}

/// Ignores differences in the notation of equal amounts.
fn unify_amounts(compared: &mut Value, expected: &Value) {
    for kind in ["requests", "limits"] {
        let amounts = compared.pointer_mut(&format!("/resources/{kind}")).and_then(Value::as_object_mut);
        for (name, amount) in amounts.into_iter().flatten() {
            let Some(other) = at(expected, &["resources", kind, name]) else { continue };
            if quantity(amount).zip(quantity(other)).is_some_and(|(new, old)| new.compare(&old).is_eq()) {
                *amount = other.clone();
            }
        }
    }
}

/// A request may shrink, but not to the volume's capacity or below.
fn storage_does_not_shrink(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let amount = |claim, path: &[&str]| at(claim, path).and_then(quantity);
    let (Some(new_size), Some(old_size)) = (amount(new, &STORAGE), amount(old, &STORAGE)) else { return };
    if new_size.compare(&old_size).is_ge() {
        return;
    }
    let capacity = amount(old, &["status", "capacity", "storage"]);
    let too_small = match capacity {
        Some(capacity) => new_size.compare(&capacity).is_le(),
        None => new_size.sign() <= 0,
    };
    if too_small {
        causes.push(Cause::forbidden(STORAGE.join("."), "field can not be less than status.capacity"));
    }
}

/// `validatePersistentVolumeClaimResourceKey`
fn resource_name(path: &str, name: &str, causes: &mut Vec<Cause>) -> bool {
    let complaints = names::qualified(name);
    if !complaints.is_empty() {
        invalid(path, name, complaints, causes);
        return false;
    }
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if native && name != "storage" {
        causes.push(Cause::not_supported(path, &json!(name), &["storage"]));
        return false;
    }
    true
}

fn not_negative(path: &str, amount: &Value, causes: &mut Vec<Cause>) {
    if let Some(amount) = quantity(amount).filter(|amount| amount.sign() < 0) {
        causes.push(Cause::invalid(path, &json!(amount.value()), "must be a valid resource quantity"));
    }
}

fn quantity(amount: &Value) -> Option<Quantity> {
    Quantity::parse(amount.as_str()?).ok()
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    let fields = object_fields(to);
    match from.get(field) {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

fn object_fields(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("made an object above")
}
