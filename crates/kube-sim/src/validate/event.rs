//! Events in the core form, by the rules of the requested version: `pkg/apis/core/validation/events.go`.

use serde_json::{Value, json};

use super::go::GoValue;
use super::metadata::{self, CheckedFields, invalid};
use super::{invalid_as_shown, names, text};
use crate::defaults::schema::Struct;
use crate::object::{self, at};
use crate::resource::Resource;
use crate::status::Cause;

const SYSTEM_NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// On create.
pub(super) fn create(resource: &Resource, event: &Value, touched: &CheckedFields<'_>, causes: &mut Vec<Cause>) {
    legacy(resource, event, causes);
    if is_legacy(resource) {
        return;
    }
    metadata::check_core(resource, event, touched, causes);
    series(event, causes);
    if !is_set(event, "eventTime") {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {kind}")));
    }
    let has_source = ["component", "host"].iter().any(|part| !object::text_at(event, &["source", part]).is_empty());
    for (field, set) in [
        ("firstTimestamp", is_set(event, "firstTimestamp")),
        ("lastTimestamp", is_set(event, "lastTimestamp")),
        ("count", event.get("count").is_some()),
        ("source", has_source),
    ] {
        if set {
            causes.push(Cause::invalid(field, &json!(""), "needs to be unset"));
        }
    }
}

/// On update.
pub(super) fn update(
    resource: &Resource,
    new: &Value,
    old: &Value,
    touched: &CheckedFields<'_>,
    causes: &mut Vec<Cause>,
) {
    legacy(resource, new, causes);
    if is_legacy(resource) {
        return;
    }
    metadata::check_core_update(new, old, touched, causes);
    if new.get("series") != old.get("series") {
        series(new, causes);
    }
    // Fields of the internal type, in the server's order. It checks the reason twice.
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        if new.get(field) != old.get(field) {
            let shown = shown(new, field);
            let path = if field == "reportingComponent" { "reportingController" } else { field };
            causes.push(invalid_as_shown(path, &shown, super::IMMUTABLE));
        }
    }
}

/// Returns a field's value in the notation of the server's internal type.
fn shown(event: &Value, field: &str) -> String {
    let structure = Struct::named("core/v1.Event");
    let Some(field) = structure.field(field) else { return "null".to_owned() };
    GoValue::of(event.get(field.name).unwrap_or(&Value::Null), &field.ty).to_string()
}

fn legacy(resource: &Resource, event: &Value, causes: &mut Vec<Cause>) {
    let namespace = object::namespace(event);
    let about = object::text_at(event, &["involvedObject", "namespace"]);
    let mut mismatch = |matches: bool| {
        if !matches {
            let detail = "does not match event.namespace";
            causes.push(Cause::invalid("involvedObject.namespace", &json!(about), detail));
        }
    };
    if !is_set(event, "eventTime") {
        mismatch(if about.is_empty() { matches!(namespace, "" | "default") } else { namespace == about });
        return;
    }
    mismatch(!about.is_empty() || SYSTEM_NAMESPACES.contains(&namespace));
    let controller_field = if is_legacy(resource) { "reportingComponent" } else { "reportingController" };
    let controller = text(event, "reportingComponent");
    if controller.is_empty() {
        causes.push(Cause::required(controller_field, ""));
    }
    invalid(controller_field, controller, names::qualified(controller), causes);
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(event, field);
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
        at_most(field, value, 128, causes);
    }
    at_most("message", text(event, "message"), 1024, causes);
}

fn at_most(field: &str, value: &str, limit: usize, causes: &mut Vec<Cause>) {
    if value.len() > limit {
        causes.push(Cause::invalid(field, &json!(""), &format!("can have at most {limit} characters")));
    }
}

fn series(event: &Value, causes: &mut Vec<Cause>) {
    let Some(series) = event.get("series") else { return };
    if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
        causes.push(Cause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if at(event, &["series", "lastObservedTime"]).is_none_or(Value::is_null) {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
}

/// Returns whether only the rules of the old API apply.
fn is_legacy(resource: &Resource) -> bool {
    resource.group.is_empty()
}

fn is_set(event: &Value, field: &str) -> bool {
    event.get(field).is_some_and(|value| !value.is_null())
}
