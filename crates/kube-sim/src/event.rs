//! Conversion of Events between core/v1, in which they are stored, and events.k8s.io/v1. The table of names is from
//! Kubernetes' `pkg/apis/events/v1/conversion.go`.

use serde_json::{Map, Value};

use crate::object::write_value;

/// Core name and events.k8s.io name of each field with different names.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Core names of fields that only core/v1 includes when they are empty.
const ALWAYS_IN_CORE: [&str; 2] = ["reportingComponent", "reportingInstance"];

/// Converts an event to events.k8s.io/v1.
pub(crate) fn to_events_group(event: &Value) -> Value {
    let mut fields: Map<String, Value> = shown(event).map(|(name, value)| (name.to_owned(), value.clone())).collect();
    fields.insert("apiVersion".to_owned(), API_VERSION.into());
    Value::Object(fields)
}

/// Appends the JSON of [`to_events_group`] without building the value.
pub(crate) fn write_for_events_group(event: &Value, json: &mut Vec<u8>) {
    json.extend_from_slice(br#"{"apiVersion":"#);
    write_value(json, API_VERSION);
    for (name, value) in shown(event) {
        json.push(b',');
        write_value(json, name);
        json.push(b':');
        write_value(json, value);
    }
    json.push(b'}');
}

const API_VERSION: &str = "events.k8s.io/v1";

/// Returns the fields of a core event under their events.k8s.io names, without `apiVersion`.
fn shown(event: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let fields = event.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    let is_shown =
        |(key, value): &(&str, &Value)| *key != "apiVersion" && (*value != "" || !ALWAYS_IN_CORE.contains(key));
    fields.filter(is_shown).map(|(key, value)| {
        let known = NAMES.iter().find(|(core, _)| *core == key);
        (known.map_or(key, |(_, events)| events), value)
    })
}

/// Converts an event to core/v1.
pub(crate) fn to_core(event: Value) -> Value {
    let Value::Object(fields) = event else { return event };
    let rename = |(key, value): (String, Value)| {
        let known = NAMES.iter().find(|(_, events)| *events == key);
        (known.map_or(key, |(core, _)| (*core).to_owned()), value)
    };
    let mut fields: Map<String, Value> = fields.into_iter().map(rename).collect();
    fields.insert("apiVersion".to_owned(), "v1".into());
    for name in ALWAYS_IN_CORE {
        fields.entry(name).or_insert_with(|| "".into());
    }
    Value::Object(fields)
}
