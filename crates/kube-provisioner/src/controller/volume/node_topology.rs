//! The place of a node in the topology of a CSI driver, if it decides which node's replica a volume belongs to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity};

#[derive(Clone, Debug)]
pub(crate) struct NodeTopology {
    /// The fields that an affinity may name: only the name of the node.
    fields: BTreeMap<String, String>,
    segments: BTreeMap<String, String>,
}

impl NodeTopology {
    pub(crate) fn new(node: &str, segments: BTreeMap<String, String>) -> Self {
        Self { fields: BTreeMap::from([("metadata.name".to_owned(), node.to_owned())]), segments }
    }

    /// The identity of the volumes that our node can use.
    pub(crate) fn identity(&self) -> Box<str> {
        self.segments.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",").into()
    }

    /// The identity of a volume: ours if our node can use it, otherwise its affinity as label selectors.
    pub(crate) fn identity_of(&self, affinity: Option<&VolumeNodeAffinity>) -> Box<str> {
        match affinity.and_then(|affinity| affinity.required.as_ref()) {
            Some(required) if !required.node_selector_terms.iter().any(|term| self.meets(term)) => {
                required.node_selector_terms.iter().map(selector).collect::<Vec<_>>().join(";").into()
            }
            _ => self.identity(),
        }
    }

    /// Returns whether our node matches the term. A term without requirements does not match any node.
    fn meets(&self, term: &NodeSelectorTerm) -> bool {
        let fields = term.match_fields.iter().flatten().map(|field| (&self.fields, field));
        let labels = term.match_expressions.iter().flatten().map(|label| (&self.segments, label));
        let mut all = fields.chain(labels).peekable();
        all.peek().is_some() && all.all(|(known, requirement)| is_met(requirement, known))
    }
}

fn is_met(requirement: &NodeSelectorRequirement, known: &BTreeMap<String, String>) -> bool {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    let is_among = |value: &String| values.iter().flatten().any(|one| one == value);
    match (&**operator, known.get(key)) {
        ("In", Some(value)) => is_among(value),
        ("NotIn", Some(value)) => !is_among(value),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        _ => false,
    }
}

fn selector(term: &NodeSelectorTerm) -> String {
    let requirement = |NodeSelectorRequirement { key, operator, values }: &NodeSelectorRequirement| match (
        &**operator,
        values.as_deref().unwrap_or_default(),
    ) {
        ("In", [value]) => format!("{key}={value}"),
        ("Exists", _) => key.clone(),
        ("DoesNotExist", _) => format!("!{key}"),
        (operator, values) => format!("{key} {} ({})", operator.to_lowercase(), values.join(",")),
    };
    term.match_fields.iter().chain(&term.match_expressions).flatten().map(requirement).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn identity(required: &Value) -> String {
        let place = NodeTopology::new(
            "node-1",
            [("rack", "7"), ("zone", "a")].map(|(key, value)| (key.into(), value.into())).into(),
        );
        let affinity = serde_json::from_value(json!({"required": required})).unwrap();
        place.identity_of(Some(&affinity)).into()
    }

    fn terms(terms: &[&[(&str, &str, &[&str])]]) -> Value {
        let requirement = |(key, operator, values): &(&str, &str, &[&str])| json!({"key": key, "operator": operator, "values": values});
        let term = |term: &&[_]| json!({"matchExpressions": term.iter().map(requirement).collect::<Vec<_>>()});
        json!({"nodeSelectorTerms": terms.iter().map(term).collect::<Vec<_>>()})
    }

    fn named(name: &str) -> Value {
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]})
    }

    #[test]
    fn volumes_that_the_node_can_use_have_its_identity() {
        let (here, a) = ("rack=7,zone=a", ("zone", "In", &["a"][..]));
        assert_eq!(identity(&Value::Null), here);
        for own in [
            terms(&[&[a]]),
            terms(&[&[("zone", "In", &["b", "a"]), ("rack", "Exists", &[])]]),
            terms(&[&[("zone", "In", &["b"])], &[a]]),
            terms(&[&[("zone", "NotIn", &["b"]), ("host", "DoesNotExist", &[]), ("host", "NotIn", &["x"])]]),
        ] {
            assert_eq!(identity(&own), here, "{own}");
        }
        for (other, expected) in [
            (terms(&[&[("zone", "In", &["b"])]]), "zone=b"),
            (terms(&[&[a, ("rack", "In", &["8"])]]), "zone=a,rack=8"),
            (terms(&[&[a, ("host", "Exists", &[])], &[("zone", "NotIn", &["a"])]]), "zone=a,host;zone notin (a)"),
            (terms(&[&[("rack", "Gt", &["5"])], &[("rack", "DoesNotExist", &[])]]), "rack gt (5);!rack"),
            (terms(&[&[]]), ""),
            (terms(&[]), ""),
            (named("node-2"), "metadata.name=node-2"),
        ] {
            assert_eq!(identity(&other), expected);
        }
        assert_eq!(identity(&named("node-1")), here);
    }
}
