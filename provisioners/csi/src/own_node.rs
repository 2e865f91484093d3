//! The node of this process, where each node has a replica with a driver of its own.

use std::collections::BTreeMap;

use driver_rpc::csi::{Node, NodeGetInfoRequest};
use kube_provisioner::ProvisionRequest;

use crate::driver::DriverError;
use crate::parameters::Texts;
use crate::request::Settings;
use crate::topology::{Labels, Registered, Requirement, Term, Unmet, Wish};

/// The node whose claims and volumes are served, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNode {
    name: String,
    segments: BTreeMap<String, String>,
}

impl OwnNode {
    /// Asks the driver where its node is. `name` is that of the Node.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub async fn ask(driver: &impl Node, name: impl Into<String>) -> Result<Self, DriverError> {
        let answer = driver.node_get_info(NodeGetInfoRequest {}).await;
        let answer = answer.map_err(|source| DriverError::Call { what: "node", source })?;
        let segments = answer.accessible_topology.unwrap_or_default().segments;
        if segments.is_empty() { Err(DriverError::Placeless) } else { Ok(Self { name: name.into(), segments }) }
    }

    /// The name of the Node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The driver's topology segments of the node.
    pub fn segments(&self) -> &BTreeMap<String, String> {
        &self.segments
    }

    pub(crate) fn segment(&self) -> Term {
        self.segments.clone().into_iter().collect()
    }

    /// Where the volume of a new attempt must be, if no other node has a part in it.
    pub(crate) fn requirement(
        &self,
        settings: &Settings,
        request: &ProvisionRequest<Texts>,
    ) -> Result<Option<Requirement>, Unmet> {
        let keys: Vec<String> = self.segments.keys().cloned().collect();
        let wish = Wish::of(request, settings, Some(self.segment()));
        wish.requirement(&[Registered { keys: &keys, labels: &Labels::new(&self.segments) }])
    }
}
