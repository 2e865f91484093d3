//! Which nodes can use a volume.
//!
//! A requirement for the driver is not computed yet, so claims that need one are refused. A claim needs none if it does not wait for a
//! pod, its class has no `allowedTopologies`, and `--immediate-topology=false` leaves the choice to the driver.

use driver_rpc::csi::Topology;
use kube_provisioner::ProvisionRequest;
use kube_provisioner::k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use crate::driver::DriverInfo;
use crate::request::Settings;

impl DriverInfo {
    /// Why no claim for this driver can be served with these settings, or `None`.
    pub fn unserved(&self, settings: &Settings) -> Option<String> {
        (self.chooses_places(settings) && settings.immediate_topology).then(|| {
            format!(
                "the CSI driver {} has the capability VOLUME_ACCESSIBILITY_CONSTRAINTS, and this provisioner does not choose the topology of \
                 volumes yet; use external-provisioner for this driver, --immediate-topology=false if the driver is to choose, or \
                 --feature-gates=Topology=false if every node can use every volume",
                self.name()
            )
        })
    }

    /// Whether a volume may be limited to some nodes.
    pub(crate) fn chooses_places(&self, settings: &Settings) -> bool {
        settings.topology && self.has_topology()
    }
}

/// Why the driver would have to be told where the volume must be, or `None`.
pub(crate) fn requirement<P>(
    request: &ProvisionRequest<P>,
    driver: &DriverInfo,
    settings: &Settings,
) -> Option<String> {
    if !driver.chooses_places(settings) {
        return None;
    }
    let class = request.class.metadata.name.as_deref().unwrap_or_default();
    let why = if request.selected_node.is_some() {
        format!("a node is selected for the claim, as by volumeBindingMode: WaitForFirstConsumer of the class {class}")
    } else if !request.allowed_topologies().is_empty() {
        format!("the class {class} has allowedTopologies")
    } else if settings.immediate_topology {
        "csi-provisioner runs with --immediate-topology=true".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "{why}, and csi-provisioner does not choose the topology of volumes yet; use a class with volumeBindingMode: Immediate and without \
         allowedTopologies, with --immediate-topology=false, or external-provisioner for the driver {}",
        driver.name()
    ))
}

/// The nodes that can use a volume, by the driver's answer. `None` is every node: a term without segments excludes none.
pub(crate) fn affinity(accessible: &[Topology]) -> Option<NodeSelector> {
    let term = |place: &Topology| {
        let requirement = |(key, value): (&String, &String)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        };
        NodeSelectorTerm {
            match_expressions: Some(place.segments.iter().map(requirement).collect()),
            ..NodeSelectorTerm::default()
        }
    };
    let mut places: Vec<_> = accessible.iter().filter(|place| !place.segments.is_empty()).collect();
    places.sort_by(|one, other| one.segments.cmp(&other.segments));
    places.dedup();
    (!places.is_empty()).then(|| NodeSelector { node_selector_terms: places.into_iter().map(term).collect() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn terms(places: &[&[(&str, &str)]]) -> Value {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let place = |pairs: &&[(&str, &str)]| Topology { segments: pairs.iter().map(text).collect() };
        let places: Vec<_> = places.iter().map(place).collect();
        json!(affinity(&places).map(|selector| selector.node_selector_terms))
    }

    #[test]
    fn the_answer_says_which_nodes_can_use_the_volume() {
        assert_eq!(terms(&[]), Value::Null);
        // The API server takes no selector without terms.
        assert_eq!(terms(&[&[]]), Value::Null);
        assert_eq!(terms(&[&[], &[]]), Value::Null);
        let term = |pairs: &[(&str, &str)]| {
            let one = |(key, value): &(&str, &str)| json!({"key": key, "operator": "In", "values": [value]});
            json!({"matchExpressions": pairs.iter().map(one).collect::<Vec<_>>()})
        };
        let [a, b] = [[("rack", "1"), ("zone", "a")], [("rack", "2"), ("zone", "b")]];
        assert_eq!(terms(&[&b, &a, &[], &b]), json!([term(&a), term(&b)]));
    }
}
