//! Structural OpenAPI schemas: pruning, defaulting, validation (`apiextensions-apiserver/pkg/apiserver/schema`).

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use crate::status::Cause;

/// Removes unknown fields of an object, except its type and metadata, and adds their paths to `removed`.
pub(super) fn prune_object(schema: &Value, object: &mut Value, removed: &mut Vec<String>) {
    const NEVER_PRUNED: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let Some(fields) = object.as_object_mut() else { return };
    let kept: Vec<(String, Value)> = NEVER_PRUNED.iter().filter_map(|field| fields.remove_entry(*field)).collect();
    prune(schema, object, "", removed);
    if let Some(fields) = object.as_object_mut() {
        fields.extend(kept);
    }
}

/// Removes each `null` that the schema does not allow, and sets defaults for missing fields.
pub(super) fn set_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let field = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
                let has_room =
                    |field: &Value| !field.is_object() || field["nullable"] == true || field["default"] != Value::Null;
                !value.is_null() || field.is_none_or(has_room)
            });
            for (name, property) in properties(schema) {
                if let Some(default) = property.get("default") {
                    let nullable = property["nullable"] == true;
                    let missing = fields.get(name).is_none_or(|value| value.is_null() && !nullable);
                    if missing {
                        fields.insert(name.clone(), default.clone());
                    }
                }
                if let Some(value) = fields.get_mut(name) {
                    set_defaults(property, value);
                }
            }
            if let Some(additional) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, value) in fields.iter_mut() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        set_defaults(additional, value);
                    }
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                list.iter_mut().for_each(|item| set_defaults(items, item));
            }
        }
        _ => {}
    }
}

/// Validates an object without its `metadata`.
pub(super) fn validate(schema: &Value, patterns: &BTreeMap<String, Regex>, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, patterns, object, "", &mut causes);
    causes
}

/// Compiles all patterns of a schema. A pattern that the `regex` crate does not support is not checked.
pub(super) fn collect_patterns(schema: &Value, patterns: &mut BTreeMap<String, Regex>) {
    match schema {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
                && let Ok(regex) = Regex::new(pattern)
            {
                patterns.insert(pattern.to_owned(), regex);
            }
            fields.values().for_each(|value| collect_patterns(value, patterns));
        }
        Value::Array(list) => list.iter().for_each(|value| collect_patterns(value, patterns)),
        _ => {}
    }
}

fn prune(schema: &Value, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    if schema["x-kubernetes-embedded-resource"] == true {
        prune_embedded(schema, value, path, removed);
        return;
    }
    match value {
        Value::Object(fields) => {
            let preserve = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let known = schema.get("properties").and_then(Value::as_object);
            let additional = schema.get("additionalProperties");
            fields.retain(|name, value| {
                let path = join(path, name);
                if let Some(property) = known.and_then(|known| known.get(name)) {
                    prune(property, value, &path, removed);
                    return true;
                }
                match additional {
                    Some(additional) if additional.is_object() => prune(additional, value, &path, removed),
                    Some(Value::Bool(true)) => {}
                    _ if preserve => {}
                    _ => {
                        removed.push(path);
                        return false;
                    }
                }
                true
            });
        }
        Value::Array(list) => {
            if let Some(items) = schema.get("items") {
                for (index, item) in list.iter_mut().enumerate() {
                    prune(items, item, &format!("{path}[{index}]"), removed);
                }
            }
        }
        _ => {}
    }
}

/// Prunes an embedded object, except its type and metadata.
fn prune_embedded(schema: &Value, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    let mut plain = schema.clone();
    plain["x-kubernetes-embedded-resource"] = Value::Bool(false);
    let mut inner = Vec::new();
    prune_object(&plain, value, &mut inner);
    removed.extend(inner.iter().map(|field| join(path, field)));
}

fn check(schema: &Value, patterns: &BTreeMap<String, Regex>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let mut refuse = |why: String| causes.push(Cause::invalid(path, value, &format!("{path} in body {why}")));
    match value {
        Value::String(text) => check_text(schema, patterns, text, &mut refuse),
        Value::Number(number) => check_number(schema, number.as_f64().unwrap_or_default(), &mut refuse),
        Value::Object(fields) => {
            let count = |key: &str| schema.get(key).and_then(Value::as_u64).map(|count| (count, fields.len() as u64));
            if let Some((least, actual)) = count("minProperties")
                && actual < least
            {
                refuse(format!("should have at least {least} properties"));
            }
            if let Some((most, actual)) = count("maxProperties")
                && actual > most
            {
                causes.push(Cause::too_many(path, fields.len(), usize::try_from(most).unwrap_or(usize::MAX)));
            }
            check_fields(schema, patterns, fields, path, causes);
        }
        Value::Array(list) => {
            let count = |key: &str| schema.get(key).and_then(Value::as_u64).map(|count| (count, list.len() as u64));
            if let Some((least, actual)) = count("minItems")
                && actual < least
            {
                refuse(format!("should have at least {least} items"));
            }
            if let Some((most, actual)) = count("maxItems")
                && actual > most
            {
                causes.push(Cause::too_many(path, list.len(), usize::try_from(most).unwrap_or(usize::MAX)));
            }
            if let Some(items) = schema.get("items") {
                for (index, item) in list.iter().enumerate() {
                    check(items, patterns, item, &format!("{path}[{index}]"), causes);
                }
            }
        }
        _ => {}
    }
    let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let found = type_name(value);
    let either = schema["x-kubernetes-int-or-string"] == true && matches!(found, "integer" | "string");
    let fits = wanted.is_empty() || found == wanted || either || (wanted == "number" && found == "integer");
    if !fits {
        let found = Value::String(found.to_owned());
        causes.push(Cause::type_invalid(path, &found, &format!("{path} in body must be of type {wanted}: {found}")));
    }
    if let Some(choices) = schema.get("enum").and_then(Value::as_array)
        && !choices.contains(value)
    {
        let choices: Vec<String> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
        causes.push(Cause::not_supported(path, value, &choices));
    }
    check_junctors(schema, patterns, value, path, causes);
}

fn check_text(schema: &Value, patterns: &BTreeMap<String, Regex>, text: &str, refuse: &mut dyn FnMut(String)) {
    let length = || text.chars().count() as u64;
    if let Some(least) = schema.get("minLength").and_then(Value::as_u64)
        && length() < least
    {
        refuse(format!("should be at least {least} chars long"));
    }
    if let Some(most) = schema.get("maxLength").and_then(Value::as_u64)
        && length() > most
    {
        refuse(format!("should be at most {most} chars long"));
    }
    let pattern = schema.get("pattern").and_then(Value::as_str);
    if let Some(pattern) = pattern
        && patterns.get(pattern).is_some_and(|regex| !regex.is_match(text))
    {
        refuse(format!("should match '{pattern}'"));
    }
}

fn check_number(schema: &Value, number: f64, refuse: &mut dyn FnMut(String)) {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    if let Some(least) = limit("minimum") {
        match schema["exclusiveMinimum"] == true {
            true if number <= least => refuse(format!("should be greater than {least}")),
            false if number < least => refuse(format!("should be greater than or equal to {least}")),
            _ => {}
        }
    }
    if let Some(most) = limit("maximum") {
        match schema["exclusiveMaximum"] == true {
            true if number >= most => refuse(format!("should be less than {most}")),
            false if number > most => refuse(format!("should be less than or equal to {most}")),
            _ => {}
        }
    }
    if let Some(factor) = limit("multipleOf")
        && number % factor != 0.0
    {
        refuse(format!("should be a multiple of {factor}"));
    }
}

fn check_fields(
    schema: &Value,
    patterns: &BTreeMap<String, Regex>,
    fields: &Map<String, Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            causes.push(Cause::required(join(path, name), ""));
        }
    }
    let known = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties").filter(|schema| schema.is_object());
    for (name, value) in fields.iter().filter(|(name, _)| !path.is_empty() || name.as_str() != "metadata") {
        if let Some(property) = known.and_then(|known| known.get(name)).or(additional) {
            check(property, patterns, value, &join(path, name), causes);
        }
    }
}

/// allOf, anyOf, oneOf and not.
fn check_junctors(
    schema: &Value,
    patterns: &BTreeMap<String, Regex>,
    value: &Value,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let parts = |key: &str| schema.get(key).and_then(Value::as_array);
    let holds = |part: &Value| {
        let mut inner = Vec::new();
        check(part, patterns, value, path, &mut inner);
        inner.is_empty()
    };
    for part in parts("allOf").into_iter().flatten() {
        check(part, patterns, value, path, causes);
    }
    let mut refuse = |why: &str| causes.push(Cause::invalid(path, value, &format!("{path:?} {why}")));
    if parts("anyOf").is_some_and(|parts| !parts.iter().any(holds)) {
        refuse("must validate at least one schema (anyOf)");
    }
    if parts("oneOf").is_some_and(|parts| parts.iter().filter(|part| holds(part)).count() != 1) {
        refuse("must validate one and only one schema (oneOf)");
    }
    if schema.get("not").is_some_and(holds) {
        refuse("must not validate the schema (not)");
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() && number.as_f64().is_some_and(|number| number.fract() != 0.0) => {
            "number"
        }
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests;
