//! The node of this process, if each node has a replica and a driver of its own.

use std::collections::BTreeMap;

use driver_rpc::csi::{Node, NodeGetInfoRequest};
use kube_provisioner::ProvisionRequest;

use crate::driver::DriverError;
use crate::parameters::Texts;
use crate::request::Settings;
use crate::topology::{Labels, NoRequirement, RegisteredNode, Requirement, RequirementInputs, Segment};

/// The only node whose claims and volumes this process reconciles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNode {
    name: String,
    segments: BTreeMap<String, String>,
}

impl OwnNode {
    /// Queries the topology of the driver's node. `name` is the name of the Node.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub async fn query(driver: &impl Node, name: impl Into<String>) -> Result<Self, DriverError> {
        let answer = driver.node_get_info(NodeGetInfoRequest {}).await;
        let answer = answer.map_err(|source| DriverError::Call { what: "node", source })?;
        let segments = answer.accessible_topology.unwrap_or_default().segments;
        if segments.is_empty() { Err(DriverError::NoTopology) } else { Ok(Self { name: name.into(), segments }) }
    }

    /// Returns the name of the Node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the driver's topology segments of the node.
    pub fn segments(&self) -> &BTreeMap<String, String> {
        &self.segments
    }

    pub(crate) fn segment(&self) -> Segment {
        self.segments.clone().into_iter().collect()
    }

    /// Returns the topology requirement of a new attempt's volume, without regard to other nodes.
    pub(crate) fn requirement(
        &self,
        settings: &Settings,
        request: &ProvisionRequest<Texts>,
    ) -> Result<Option<Requirement>, NoRequirement> {
        let keys: Vec<String> = self.segments.keys().cloned().collect();
        let inputs = RequirementInputs::of(request, settings, Some(self.segment()));
        inputs.requirement(&[RegisteredNode { keys: &keys, labels: &Labels::new(&self.segments) }])
    }
}
