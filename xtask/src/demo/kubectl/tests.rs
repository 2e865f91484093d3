use serde_json::{Value, json};

use super::*;

fn table(columns: Value, rows: Value) -> Table {
    serde_json::from_value(json!({ "columnDefinitions": columns, "rows": rows })).unwrap()
}

#[test]
fn table_matches_kubectl_get() {
    let columns = json!([
        { "name": "Name", "priority": 0 },
        { "name": "Status", "priority": 0 },
        { "name": "AllowVolumeExpansion", "priority": 0 },
        { "name": "VolumeMode", "priority": 1 },
        { "name": "Age", "priority": 0 },
    ]);
    let rows = json!([{ "cells": ["data", "Bound", false, "Filesystem", "3s"], "object": null }]);
    assert_eq!(
        table(columns, rows).lines(),
        ["NAME   STATUS   ALLOWVOLUMEEXPANSION   AGE", "data   Bound    false                  3s"]
    );
}

fn event(reason: &str, seen: Value, version: &str, count: i32, source: Value) -> Value {
    let metadata = json!({ "resourceVersion": version });
    let mut object = json!({ "metadata": metadata, "involvedObject": {}, "reason": reason });
    for more in [seen, source] {
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    }
    json!({ "cells": ["5s", "Normal", reason, "a message\n", "9s", count], "object": object })
}

#[test]
fn events_match_kubectl_describe() {
    let columns = ["Last Seen", "Type", "Reason", "Message", "First Seen", "Count"];
    let columns = columns.map(|name| json!({ "name": name, "priority": 0 }));
    let made = json!({ "reportingComponent": "example.com/hostpath" });
    let waits = json!({ "source": { "component": "persistentvolume-controller", "host": "a" } });
    let rows = json!([
        event("ProvisioningSucceeded", json!({ "eventTime": "2026-01-01T00:00:07.250000Z" }), "12", 1, made.clone()),
        event("Provisioning", json!({ "eventTime": "2026-01-01T00:00:07.750000Z" }), "9", 1, made),
        event("ExternalProvisioning", json!({ "lastTimestamp": "2026-01-01T00:00:05Z" }), "15", 3, waits),
    ]);
    let events = Events(table(columns.into_iter().collect(), rows));
    assert!(events.have("ProvisioningSucceeded"));
    assert!(!events.have("ProvisioningFailed"));
    assert_eq!(
        events.lines(),
        [
            "Events:",
            "  Type    Reason                 Age              From                         Message",
            "  ----    ------                 ----             ----                         -------",
            "  Normal  ExternalProvisioning   5s (x3 over 9s)  persistentvolume-controller  a message",
            "  Normal  Provisioning           9s               example.com/hostpath         a message",
            "  Normal  ProvisioningSucceeded  9s               example.com/hostpath         a message",
        ]
    );
}
