//! Checks whether a volume, a pod or a class allows a node: `component-helpers/scheduling/corev1/nodeaffinity` and
//! `v1helper` of Kubernetes.

use serde_json::Value;

use crate::object::{at, label, name, text_at};

/// Returns whether a `v1.NodeSelector` selects a node.
pub(super) fn selects(selector: &Value, node: &Value) -> bool {
    list(selector, "nodeSelectorTerms").any(|term| {
        let by_label =
            || list(term, "matchExpressions").all(|wanted| holds(wanted, label(node, text_at(wanted, &["key"]))));
        let by_field = || list(term, "matchFields").all(|wanted| holds(wanted, Some(name(node))));
        let is_empty = list(term, "matchExpressions").next().is_none() && list(term, "matchFields").next().is_none();
        !is_empty && by_label() && by_field()
    })
}

/// Returns whether a volume can be used on a node.
pub(super) fn volume_reaches(volume: &Value, node: &Value) -> bool {
    at(volume, &["spec", "nodeAffinity", "required"]).is_none_or(|selector| selects(selector, node))
}

/// Returns whether a class allows volumes for a node.
pub(super) fn class_allows(class: &Value, node: &Value) -> bool {
    let mut terms = list(class, "allowedTopologies").peekable();
    terms.peek().is_none()
        || terms.any(|term| {
            list(term, "matchLabelExpressions").all(|wanted| {
                let value = label(node, text_at(wanted, &["key"]));
                value.is_some_and(|value| list(wanted, "values").any(|one| one == value))
            })
        })
}

/// Returns whether a node's labels and taints admit a pod.
pub(super) fn pod_fits(pod: &Value, node: &Value) -> bool {
    let wanted = at(pod, &["spec", "nodeSelector"]).and_then(Value::as_object).into_iter().flatten();
    let mut by_label = wanted.map(|(key, value)| (label(node, key), value.as_str()));
    let affinity = at(pod, &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
    let cordoned = at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
    by_label.all(|(found, wanted)| found.is_some() && found == wanted)
        && affinity.is_none_or(|selector| selects(selector, node))
        && (!cordoned || tolerates(pod, "node.kubernetes.io/unschedulable", "", "NoSchedule"))
        && list(&node["spec"], "taints").all(|taint| {
            let text = |field: &str| text_at(taint, &[field]);
            text("effect") == "PreferNoSchedule" || tolerates(pod, text("key"), text("value"), text("effect"))
        })
}

/// `ToleratesTaint`.
fn tolerates(pod: &Value, key: &str, value: &str, effect: &str) -> bool {
    list(&pod["spec"], "tolerations").any(|toleration| {
        let text = |field: &str| text_at(toleration, &[field]);
        (text("effect").is_empty() || text("effect") == effect)
            && (text("key").is_empty() || text("key") == key)
            && (text("operator") == "Exists" || (text("value") == value && !text("key").is_empty()))
    })
}

/// One `v1.NodeSelectorRequirement`.
fn holds(requirement: &Value, found: Option<&str>) -> bool {
    let values = || list(requirement, "values").filter_map(Value::as_str);
    let is_one = |found: &str| values().any(|value| value == found);
    let numbers = || Some((found?.parse::<i64>().ok()?, values().next()?.parse::<i64>().ok()?));
    match text_at(requirement, &["operator"]) {
        "In" => found.is_some_and(is_one),
        "NotIn" => !found.is_some_and(is_one),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => numbers().is_some_and(|(found, limit)| found > limit),
        "Lt" => numbers().is_some_and(|(found, limit)| found < limit),
        _ => false,
    }
}

fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Value {
        json!({"metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}}})
    }

    #[test]
    fn selects_node_if_all_requirements_of_one_term_hold() {
        let wanted =
            |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        let cases = [
            (json!([{"matchExpressions": [wanted("zone", "In", &["a", "b"])]}]), true),
            (json!([{"matchExpressions": [wanted("zone", "In", &["b"])]}]), false),
            (
                json!([{"matchExpressions": [wanted("zone", "In", &["b"])]}, {"matchExpressions": [wanted("zone", "Exists", &[])]}]),
                true,
            ),
            (json!([{"matchExpressions": [wanted("zone", "Exists", &[]), wanted("rack", "Exists", &[])]}]), false),
            (json!([{"matchExpressions": [wanted("rack", "DoesNotExist", &[])]}]), true),
            (json!([{"matchExpressions": [wanted("rack", "NotIn", &["r"])]}]), true),
            (json!([{"matchExpressions": [wanted("cores", "Gt", &["7"])]}]), true),
            (json!([{"matchExpressions": [wanted("cores", "Lt", &["8"])]}]), false),
            (json!([{"matchFields": [wanted("metadata.name", "In", &["n"])]}]), true),
            (json!([{}]), false),
            (json!([]), false),
        ];
        for (terms, expected) in cases {
            assert_eq!(selects(&json!({"nodeSelectorTerms": terms}), &node()), expected, "{terms}");
        }
    }

    #[test]
    fn pod_fits_tainted_or_cordoned_node_only_with_toleration() {
        let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
        let cordoned = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}});
        let pod = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
        let cases = [
            (json!({}), &tainted, false),
            (pod(json!({"key": "k", "value": "v", "effect": "NoSchedule"})), &tainted, true),
            (pod(json!({"key": "k", "value": "w"})), &tainted, false),
            (pod(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})), &tainted, false),
            (pod(json!({"operator": "Exists"})), &tainted, true),
            (json!({}), &cordoned, false),
            (pod(json!({"operator": "Exists"})), &cordoned, true),
        ];
        for (pod, node, expected) in cases {
            assert_eq!(pod_fits(&pod, node), expected, "{pod}");
        }
    }
}
