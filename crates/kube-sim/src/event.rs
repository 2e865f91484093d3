//! The two forms of one Event: core/v1, in which events are kept, and events.k8s.io/v1.
//! The table of names is that of Kubernetes' `pkg/apis/events/v1/conversion.go`.

use serde_json::{Map, Value};

use crate::store::write_value;

/// Core name and events.k8s.io name of the fields that differ.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Core name and events.k8s.io name of the fields that only core shows when they are empty.
const ALWAYS_IN_CORE: [(&str, &str); 2] =
    [("reportingComponent", "reportingController"), ("reportingInstance", "reportingInstance")];

/// An event as events.k8s.io/v1 shows it.
pub(crate) fn to_events_group(event: Value) -> Value {
    let mut event = renamed(event, "events.k8s.io/v1", |(core, events)| (core, events));
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|name, value| value != "" || ALWAYS_IN_CORE.iter().all(|(_, events)| name != events));
    }
    event
}

/// Appends [`to_events_group`] of an event.
pub(crate) fn write_for_events_group(event: &Value, json: &mut Vec<u8>) {
    let fields = event.as_object().into_iter().flatten().filter(|(key, _)| *key != "apiVersion");
    json.extend_from_slice(br#"{"apiVersion":"events.k8s.io/v1""#);
    for (key, value) in fields {
        if value == "" && ALWAYS_IN_CORE.iter().any(|(core, _)| key == core) {
            continue;
        }
        let name = NAMES.iter().find(|(core, _)| key == core).map_or(key.as_str(), |(_, events)| events);
        json.push(b',');
        write_value(json, name);
        json.push(b':');
        write_value(json, value);
    }
    json.push(b'}');
}

/// An event as core/v1 shows it.
pub(crate) fn to_core(event: Value) -> Value {
    let mut event = renamed(event, "v1", |(core, events)| (events, core));
    if let Some(fields) = event.as_object_mut() {
        for (core, _) in ALWAYS_IN_CORE {
            fields.entry(core).or_insert_with(|| "".into());
        }
    }
    event
}

fn renamed<'a>(event: Value, api_version: &str, from_to: fn((&'a str, &'a str)) -> (&'a str, &'a str)) -> Value {
    let Value::Object(fields) = event else { return event };
    let rename = |(key, value): (String, Value)| {
        let known = NAMES.iter().map(|pair| from_to(*pair)).find(|(from, _)| *from == key);
        (known.map_or(key, |(_, to)| to.to_owned()), value)
    };
    let mut fields: Map<String, Value> = fields.into_iter().map(rename).collect();
    fields.insert("apiVersion".to_owned(), api_version.into());
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_and_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "message": "m", "count": 2,
            "involvedObject": {"name": "a"}, "source": {"component": "c"}, "reportingComponent": "r", "series": {"count": 3},
            "reportingInstance": "",
        });
        let events = to_events_group(core.clone());
        assert_eq!(
            events,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "note": "m",
                "deprecatedCount": 2, "regarding": {"name": "a"}, "deprecatedSource": {"component": "c"},
                "reportingController": "r", "series": {"count": 3},
            })
        );
        let mut written = Vec::new();
        write_for_events_group(&core, &mut written);
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), events);
        assert_eq!(to_core(events), core);
    }
}
