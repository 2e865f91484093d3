//! Topology: the node labels that classes allow and volumes require.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySelectorTerm};

/// The label that names a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns the values that a class's `allowedTopologies` allow for a label, in their order.
///
/// ```
/// # use kube_provisioner::topology::{ZONE, allowed};
/// let terms = serde_json::from_value::<Vec<_>>(serde_json::json!([
///     {"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]},
/// ])).unwrap();
/// assert_eq!(allowed(&terms, ZONE).collect::<Vec<_>>(), ["a", "b"]);
/// ```
pub fn allowed<'a>(terms: &'a [TopologySelectorTerm], label: &str) -> impl Iterator<Item = &'a str> {
    let requirements = terms.iter().flat_map(|term| term.match_label_expressions.as_deref().unwrap_or_default());
    let of_label = requirements.filter(move |requirement| requirement.key == label);
    of_label.flat_map(|requirement| requirement.values.iter().map(String::as_str))
}

/// Selects the nodes whose label has this value.
pub fn nodes_with(label: impl Into<String>, value: impl Into<String>) -> NodeSelector {
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: Some(vec![NodeSelectorRequirement {
                key: label.into(),
                operator: "In".to_owned(),
                values: Some(vec![value.into()]),
            }]),
            match_fields: None,
        }],
    }
}
