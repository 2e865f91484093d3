//! Taints that follow from a node's conditions: `doNoScheduleTaintingPass` of `pkg/controller/nodelifecycle` of
//! Kubernetes. Nodes do not become unreachable on their own.

use serde_json::{Value, json};

use super::api::{Api, ObservedObject};
use super::storage;
use super::worker::{Controller, WorkQueue};
use crate::object;
use crate::status::Status;
use crate::store::ChangeKind;
use crate::subscription::Change;

/// Condition, its status, and the key of the resulting taint.
const TAINTS: &[(&str, &str, &str)] = &[
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The node lifecycle controller.
#[derive(Default)]
pub(super) struct Nodes;

impl Controller for Nodes {
    type Key = String;

    const RESOURCES: &'static [(&'static str, &'static str)] = &[("", "nodes")];

    fn observe(&mut self, change: &Change, _: &Api, queue: &mut WorkQueue<String>) {
        if change.kind != ChangeKind::Deleted {
            queue.add(change.object().name().to_owned());
        }
    }

    async fn sync(&mut self, name: String, api: &mut Api, _: &mut WorkQueue<String>) -> Result<(), Status> {
        let Some(node) = api.peek(storage::nodes(), "", &name).map(ObservedObject::from) else { return Ok(()) };
        let found = object::at(&node.value, &["spec", "taints"]).and_then(Value::as_array);
        let found = found.cloned().unwrap_or_default();
        let wanted = taints(&node.value, &found);
        if wanted == found {
            return Ok(());
        }
        let change = |node: &mut Value| {
            let spec = object::object_mut(node, "spec");
            if wanted.is_empty() {
                drop(spec.remove("taints"));
            } else {
                drop(spec.insert("taints".to_owned(), wanted.into()));
            }
        };
        api.update(storage::nodes(), &node, None, change).await.map(drop)
    }
}

/// Returns the taints that a node should have. A node without a Ready condition keeps its taints.
fn taints(node: &Value, found: &[Value]) -> Vec<Value> {
    let conditions = object::at(node, &["status", "conditions"]).and_then(Value::as_array);
    let status = |kind: &str| {
        let own = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
        own.map(|condition| object::text_at(condition, &["status"]))
    };
    if status("Ready").is_none() {
        return found.to_vec();
    }
    let cordoned = object::at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
    let by_condition = TAINTS.iter().filter(|(kind, wanted, _)| status(kind) == Some(wanted)).map(|(_, _, key)| *key);
    let wanted: Vec<&str> = by_condition.chain(cordoned.then_some(UNSCHEDULABLE)).collect();
    let is_own = |taint: &Value| {
        let key = object::text_at(taint, &["key"]);
        taint["effect"] == "NoSchedule" && (key == UNSCHEDULABLE || TAINTS.iter().any(|(_, _, own)| *own == key))
    };
    let mut taints: Vec<Value> =
        found.iter().filter(|taint| !is_own(taint) || wanted.iter().any(|key| taint["key"] == *key)).cloned().collect();
    for key in wanted {
        if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == "NoSchedule") {
            taints.push(json!({"key": key, "effect": "NoSchedule"}));
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_condition_taints_and_keeps_others() {
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        let (not_ready, own) = (taint("node.kubernetes.io/not-ready"), taint("example.com/own"));
        let node = |ready: &str, cordoned: bool| json!({"spec": {"unschedulable": cordoned}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let found = [not_ready.clone(), own.clone()];
        assert_eq!(taints(&node("True", false), &found), found[1..]);
        assert_eq!(taints(&node("False", false), &found[1..]), [own, not_ready.clone()]);
        assert_eq!(taints(&node("True", true), &[]), [taint(UNSCHEDULABLE)]);
        assert_eq!(taints(&json!({}), std::slice::from_ref(&not_ready)), [not_ready]);
    }
}
