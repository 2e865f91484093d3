//! Access to the fields that every object has, in plain JSON. A missing string reads as `""`, as in Go.

use serde_json::{Map, Value};

/// Returns a field of `metadata`.
pub fn meta<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(field)
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// `metadata.resourceVersion`.
pub fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// `metadata.generation`, 0 when missing.
pub fn generation(object: &Value) -> i64 {
    meta(object, "generation").and_then(Value::as_i64).unwrap_or(0)
}

/// `metadata.deletionTimestamp`.
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    meta(object, "deletionTimestamp").and_then(Value::as_str)
}

/// One label's value.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object, "labels")?.get(key)?.as_str()
}

/// One annotation's value.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    meta(object, "annotations")?.get(key)?.as_str()
}

/// The annotation that preceded the field for the class of a claim or a volume.
pub(crate) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the class of a claim or a volume.
pub(crate) fn class(object: &Value) -> Option<&str> {
    annotation(object, BETA_CLASS).or_else(|| at(object, &["spec", "storageClassName"])?.as_str())
}

/// `metadata.finalizers`, in order.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    meta(object, "finalizers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the value at a path of keys.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Returns the text at a path of keys, or `""`.
pub fn text_at<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `metadata` for writing. Creates it if it is missing or not an object.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    object_mut(object, "metadata")
}

/// Returns the object under `key` for writing. Creates it if it is missing or not an object.
pub fn object_mut<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    let child = &mut parent[key];
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    match child {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Sets or removes a field.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let Value::Object(members) = object else { return };
    match value {
        Some(value) => drop(members.insert(field.to_owned(), value)),
        None => drop(members.remove(field)),
    }
}

/// Sets a field of `metadata`.
pub fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata_mut(object).insert(field.to_owned(), value.into());
}

/// Removes a field of `metadata`.
pub fn remove_meta(object: &mut Value, field: &str) {
    metadata_mut(object).remove(field);
}

/// Sets one annotation.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    object_mut(&mut object["metadata"], "annotations").insert(key.to_owned(), value.into());
}

/// Removes one annotation, and with the last one the field.
pub fn remove_annotation(object: &mut Value, key: &str) {
    let metadata = metadata_mut(object);
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(key);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Sets one label.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    object_mut(&mut object["metadata"], "labels").insert(key.to_owned(), value.into());
}

/// Replaces `metadata.finalizers`. An empty list removes the field.
pub fn set_finalizers<I: IntoIterator<Item = S>, S: Into<String>>(object: &mut Value, finalizers: I) {
    let list: Vec<Value> = finalizers.into_iter().map(|name| Value::String(name.into())).collect();
    if list.is_empty() { remove_meta(object, "finalizers") } else { set_meta(object, "finalizers", list) }
}

/// Appends a value as JSON.
pub(crate) fn write_value<T: serde::Serialize + ?Sized>(json: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(json, value).expect("JSON values with text keys can be written to memory");
}

fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    meta(object, field).and_then(Value::as_str).unwrap_or_default()
}
