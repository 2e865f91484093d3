//! The columns of most built-in resources, and their cells.

use jiff::Timestamp;
use serde_json::Value;

use super::age::since;
use crate::object::{at, deletion_timestamp, meta, name, text_at};

/// The columns of a built-in resource: `Name:type`, with a `+` if only `-o wide` shows it.
pub(super) struct Columns {
    pub(super) names: &'static [&'static str],
    pub(super) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

pub(super) const OTHERS: Columns =
    Columns { names: &["Name", "Age"], cells: |object, now| vec![name(object).into(), age(object, now)] };

/// The columns of resources without a printer in the real server.
pub(super) const UNKNOWN: Columns = Columns {
    names: &["Name", "Created At:date"],
    cells: |object, _| vec![name(object).into(), meta(object, "creationTimestamp").cloned().unwrap_or_default()],
};

pub(super) const NAMESPACES: Columns = Columns {
    names: &["Name", "Status", "Age"],
    cells: |object, now| vec![name(object).into(), text(object, &["status", "phase"]), age(object, now)],
};

pub(super) const SECRETS: Columns = Columns {
    names: &["Name", "Type", "Data", "Age"],
    cells: |object, now| {
        vec![name(object).into(), text(object, &["type"]), count(object, &["data"]).into(), age(object, now)]
    },
};

pub(super) const CONFIG_MAPS: Columns = Columns {
    names: &["Name", "Data", "Age"],
    cells: |object, now| {
        let entries = count(object, &["data"]) + count(object, &["binaryData"]);
        vec![name(object).into(), entries.into(), age(object, now)]
    },
};

pub(super) const LEASES: Columns = Columns {
    names: &["Name", "Holder", "Age"],
    cells: |object, now| vec![name(object).into(), text(object, &["spec", "holderIdentity"]), age(object, now)],
};

pub(super) const BINDINGS: Columns = Columns {
    names: &["Name", "Role", "Age", "+Users", "+Groups", "+ServiceAccounts"],
    cells: |object, now| {
        let role = format!("{}/{}", text_at(object, &["roleRef", "kind"]), text_at(object, &["roleRef", "name"]));
        let subjects = || at(object, &["subjects"]).and_then(Value::as_array).into_iter().flatten();
        let names = |kind: &str| {
            let of_kind = subjects().filter(|subject| text_at(subject, &["kind"]) == kind);
            let names = of_kind.map(|subject| match text_at(subject, &["namespace"]) {
                "" => text_at(subject, &["name"]).to_owned(),
                namespace => format!("{namespace}/{}", text_at(subject, &["name"])),
            });
            Value::from(names.collect::<Vec<String>>().join(", "))
        };
        vec![name(object).into(), role.into(), age(object, now), names("User"), names("Group"), names("ServiceAccount")]
    },
};

pub(super) const EVENTS: Columns = Columns {
    names: &[
        "Last Seen",
        "Type",
        "Reason",
        "Object",
        "+Subobject",
        "+Source",
        "Message",
        "+First Seen",
        "+Count",
        "+Name",
    ],
    cells: event,
};

/// Without a kubelet, pods have neither addresses nor states of containers.
pub(super) const PODS: Columns = Columns {
    names: &["Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"],
    cells: |object, now| {
        let containers = at(object, &["spec", "containers"]).and_then(Value::as_array).map_or(0, Vec::len);
        vec![
            name(object).into(),
            format!("0/{containers}").into(),
            phase(object),
            "0".into(),
            age(object, now),
            "<none>".into(),
            text_or(object, &["spec", "nodeName"], "<none>"),
            "<none>".into(),
            "<none>".into(),
        ]
    },
};

pub(super) const NODES: Columns = Columns {
    names: &[
        "Name",
        "Status",
        "Roles",
        "Age",
        "Version",
        "+Internal-IP",
        "+External-IP",
        "+OS-Image",
        "+Kernel-Version",
        "+Container-Runtime",
    ],
    cells: node,
};

/// Returns the age of an object.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    since(meta(object, "creationTimestamp"), now).into()
}

/// Returns the phase, or the deletion that is under way.
pub(super) fn phase(object: &Value) -> Value {
    match deletion_timestamp(object) {
        Some(_) => "Terminating".into(),
        None => text(object, &["status", "phase"]),
    }
}

/// Returns the text at a path, or an empty one.
pub(super) fn text(object: &Value, path: &[&str]) -> Value {
    text_at(object, path).into()
}

/// Returns the text at a path, or a default.
pub(super) fn text_or(object: &Value, path: &[&str], other: &str) -> Value {
    match text_at(object, path) {
        "" => other.into(),
        text => text.into(),
    }
}

fn count(object: &Value, path: &[&str]) -> usize {
    at(object, path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// Returns the cells of an event of either group.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let pick = |paths: &[&[&str]]| paths.iter().find_map(|path| at(object, path).filter(|value| !value.is_null()));
    let pick_text = |paths: &[&[&str]]| paths.iter().map(|path| text_at(object, path)).find(|text| !text.is_empty());
    let first = since(pick(&[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]), now);
    let last = pick(&[&["series", "lastObservedTime"], &["lastTimestamp"], &["deprecatedLastTimestamp"]]);
    let last = last.map_or_else(|| first.clone(), |time| since(Some(time), now));
    let count = pick(&[&["series", "count"], &["count"], &["deprecatedCount"]]);
    let count = count.and_then(Value::as_i64).filter(|count| *count > 0).unwrap_or(1);
    let about = |field: &str| pick_text(&[&["involvedObject", field], &["regarding", field]]).unwrap_or_default();
    let kind = about("kind").to_lowercase();
    let target = if about("name").is_empty() { kind } else { format!("{kind}/{}", about("name")) };
    let component = pick_text(&[
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingComponent"],
        &["reportingController"],
    ]);
    let instance = pick_text(&[&["source", "host"], &["deprecatedSource", "host"], &["reportingInstance"]]);
    let component = component.unwrap_or_default();
    let source = instance.map_or_else(|| component.to_owned(), |instance| format!("{component}, {instance}"));
    let message = pick_text(&[&["message"], &["note"]]).unwrap_or_default();
    vec![
        last.into(),
        text(object, &["type"]),
        text(object, &["reason"]),
        target.into(),
        about("fieldPath").into(),
        source.into(),
        message.trim().into(),
        first.into(),
        count.into(),
        name(object).into(),
    ]
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = || at(object, &["status", "conditions"]).and_then(Value::as_array).into_iter().flatten();
    let ready = conditions().rfind(|condition| text_at(condition, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text_at(condition, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(object, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = meta(object, "labels").and_then(Value::as_object).into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
    // Without a kubelet, nodes have neither addresses nor information about their system.
    vec![
        name(object).into(),
        status.into(),
        roles.into(),
        age(object, now),
        text(object, &["status", "nodeInfo", "kubeletVersion"]),
        "<none>".into(),
        "<none>".into(),
        "<unknown>".into(),
        "<unknown>".into(),
        "<unknown>".into(),
    ]
}
