//! Selectors in objects: label selectors (`metav1.LabelSelector`), node selectors (`NodeSelector`) and topologies
//! (`TopologySelectorTerm`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::metadata::{self, invalid};
use super::{items, names, text, texts};
use crate::status::Cause;

const NOT_AN_OPERATOR: &str = "not a valid selector operator";
const WANTS_VALUES: &str = "must be specified when `operator` is 'In' or 'NotIn'";
const WANTS_NO_VALUES: &str = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";

/// `ValidateLabelSelector`. With `lenient`, values are not checked.
pub(super) fn label_selector(selector: &Value, path: &str, lenient: bool, causes: &mut Vec<Cause>) {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    metadata::labels(labels, &format!("{path}.matchLabels"), causes);
    for (index, expression) in items(selector, "matchExpressions").enumerate() {
        label_requirement(expression, &format!("{path}.matchExpressions[{index}]"), false, lenient, causes);
    }
}

/// `ValidateNodeSelector`. With `lenient`, values are not checked.
pub(super) fn node_selector(selector: &Value, path: &str, lenient: bool, causes: &mut Vec<Cause>) {
    let path = format!("{path}.nodeSelectorTerms");
    if items(selector, "nodeSelectorTerms").next().is_none() {
        causes.push(Cause::required(path, "must have at least one node selector term"));
        return;
    }
    for (index, term) in items(selector, "nodeSelectorTerms").enumerate() {
        for (at, requirement) in items(term, "matchExpressions").enumerate() {
            label_requirement(requirement, &format!("{path}[{index}].matchExpressions[{at}]"), true, lenient, causes);
        }
        for (at, requirement) in items(term, "matchFields").enumerate() {
            node_field_requirement(requirement, &format!("{path}[{index}].matchFields[{at}]"), causes);
        }
    }
}

/// Returns whether a stored selector has invalid label values, which an update may keep.
pub(super) fn has_invalid_values(selector: &Value) -> bool {
    items(selector, "nodeSelectorTerms")
        .flat_map(|term| items(term, "matchExpressions"))
        .flat_map(|requirement| texts(requirement, "values"))
        .any(|value| !names::label_value(value).is_empty())
}

/// With `compares`, as for nodes, values can also be compared as numbers.
fn label_requirement(requirement: &Value, path: &str, compares: bool, lenient: bool, causes: &mut Vec<Cause>) {
    let values: Vec<&str> = texts(requirement, "values").collect();
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => causes.push(Cause::required(format!("{path}.values"), WANTS_VALUES)),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            causes.push(Cause::forbidden(format!("{path}.values"), WANTS_NO_VALUES));
        }
        "Gt" | "Lt" if compares && values.len() != 1 => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            causes.push(Cause::required(format!("{path}.values"), detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if compares => {}
        other => causes.push(Cause::invalid(format!("{path}.operator"), &json!(other), NOT_AN_OPERATOR)),
    }
    let key = text(requirement, "key");
    invalid(&format!("{path}.key"), key, names::qualified(key), causes);
    if !lenient {
        for (index, value) in values.iter().enumerate() {
            invalid(&format!("{path}.values[{index}]"), value, names::label_value(value), causes);
        }
    }
}

fn node_field_requirement(requirement: &Value, path: &str, causes: &mut Vec<Cause>) {
    let values: Vec<&str> = texts(requirement, "values").collect();
    match text(requirement, "operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            causes.push(Cause::required(format!("{path}.values"), detail));
        }
        "In" | "NotIn" => {}
        other => causes.push(Cause::invalid(format!("{path}.operator"), &json!(other), NOT_AN_OPERATOR)),
    }
    match text(requirement, "key") {
        "metadata.name" => {
            for (index, value) in values.iter().enumerate() {
                invalid(&format!("{path}.values[{index}]"), value, names::dns_subdomain(value), causes);
            }
        }
        other => causes.push(Cause::invalid(format!("{path}.key"), &json!(other), "not a valid field selector key")),
    }
}

/// `validateAllowedTopologies` of a StorageClass.
pub(super) fn topologies(class: &Value, causes: &mut Vec<Cause>) {
    // The server's list of known terms starts with an empty term per item, so an empty term is always a duplicate.
    let mut known: Vec<BTreeMap<&str, BTreeSet<&str>>> =
        vec![BTreeMap::new(); items(class, "allowedTopologies").count()];
    for (index, term) in items(class, "allowedTopologies").enumerate() {
        let path = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut requirements: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (at, requirement) in items(term, "matchLabelExpressions").enumerate() {
            let mut values = BTreeSet::new();
            if texts(requirement, "values").next().is_none() {
                causes.push(Cause::required(format!("{path}[{at}].values"), ""));
            }
            for (position, value) in texts(requirement, "values").enumerate() {
                if !values.insert(value) {
                    causes.push(Cause::duplicate(format!("{path}[{at}].values[{position}]"), &json!(value)));
                }
            }
            let key = text(requirement, "key");
            invalid(&format!("{path}[{at}].key"), key, names::qualified(key), causes);
            if requirements.insert(key, values).is_some() {
                causes.push(Cause::duplicate(format!("{path}[{at}].key"), &json!(key)));
            }
        }
        for _ in known.iter().filter(|other| **other == requirements) {
            causes.push(Cause::duplicate(path.as_str(), &json!("")));
        }
        known.push(requirements);
    }
}
