//! Information that a driver reports about itself at the start.

use std::collections::BTreeSet;

use driver_rpc::csi::{Controller, Identity};
use driver_rpc::csi::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, GetPluginInfoRequest,
    controller_service_capability, plugin_capability,
};
use thiserror::Error;

use crate::request::Settings;

pub(crate) use controller_service_capability::rpc::Type as Rpc;
use plugin_capability::service::Type as Service;

/// Reasons why a driver cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A call failed.
    #[error("the CSI driver does not report its {what}")]
    Call {
        /// The requested information.
        what: &'static str,
        /// The cause.
        source: driver_rpc::Error,
    },
    /// The driver did not report a name.
    #[error("the CSI driver has no name")]
    NoName,
    /// The driver did not report the topology of its node.
    #[error(
        "the CSI driver reports no topology of its node (NodeGetInfo), which --node-deployment requires: each replica uses it to find its volumes"
    )]
    NoTopology,
    /// The driver does not support topology.
    #[error("the CSI driver lacks the capability VOLUME_ACCESSIBILITY_CONSTRAINTS, which --node-deployment requires")]
    NoTopologyCapability,
}

/// A driver's name and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    name: String,
    services: BTreeSet<Service>,
    rpcs: BTreeSet<Rpc>,
}

/// A capability that a claim needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredFeature {
    Attributes,
    Clones,
    Snapshots,
}

impl DriverInfo {
    /// Queries the driver's name and capabilities.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub async fn query(driver: &(impl Identity + Controller)) -> Result<Self, DriverError> {
        let failed = |what| move |source| DriverError::Call { what, source };
        let name = driver.get_plugin_info(GetPluginInfoRequest {}).await.map_err(failed("name"))?.name;
        if name.is_empty() {
            return Err(DriverError::NoName);
        }
        let answer = driver.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await;
        let services =
            answer.map_err(failed("capabilities"))?.capabilities.into_iter().filter_map(|one| match one.r#type {
                Some(plugin_capability::Type::Service(service)) => Service::try_from(service.r#type).ok(),
                _ => None,
            });
        let answer = driver.controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await;
        let rpcs = answer.map_err(failed("controller capabilities"))?.capabilities.into_iter().filter_map(|one| {
            let Some(controller_service_capability::Type::Rpc(rpc)) = one.r#type else { return None };
            Rpc::try_from(rpc.r#type).ok()
        });
        Ok(Self { name, services: services.collect(), rpcs: rpcs.collect() })
    }

    /// Returns true if some of the driver's volumes are not accessible from every node.
    pub fn has_topology(&self) -> bool {
        self.services.contains(&Service::VolumeAccessibilityConstraints)
    }

    /// Returns true if the driver reports its free capacity.
    pub fn can_get_capacity(&self) -> bool {
        self.has_rpc(Rpc::GetCapacity)
    }

    /// Returns true if a volume may be limited to some nodes.
    pub(crate) fn can_restrict_topology(&self, settings: &Settings) -> bool {
        settings.topology && self.has_topology()
    }

    /// Returns the driver's name. StorageClasses use it as their provisioner.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn has_rpc(&self, rpc: Rpc) -> bool {
        self.rpcs.contains(&rpc)
    }

    /// Describes the first missing capability for provisioning or deleting a volume, if any.
    pub(crate) fn missing_capability(&self, needs: impl IntoIterator<Item = RequiredFeature>) -> Option<String> {
        let lacks = |what: &str, capability: &str| {
            format!("the CSI driver {} {what}: it does not have the capability {capability}", self.name)
        };
        if !self.services.contains(&Service::ControllerService) {
            return Some(lacks("cannot create or delete volumes", Service::ControllerService.as_str_name()));
        }
        let needs = needs.into_iter().map(|need| match need {
            RequiredFeature::Attributes => (Rpc::ModifyVolume, "does not support VolumeAttributesClasses"),
            RequiredFeature::Clones => (Rpc::CloneVolume, "cannot copy volumes"),
            RequiredFeature::Snapshots => (Rpc::CreateDeleteSnapshot, "cannot restore snapshots"),
        });
        let all = [(Rpc::CreateDeleteVolume, "cannot create or delete volumes")].into_iter().chain(needs);
        all.into_iter().find(|(rpc, _)| !self.has_rpc(*rpc)).map(|(rpc, what)| lacks(what, rpc.as_str_name()))
    }
}
