//! What a driver says about itself at the start.

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

/// Why a driver cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// A call failed.
    #[error("the CSI driver cannot be asked for its {what}")]
    Call {
        /// What was asked for.
        what: &'static str,
        /// Why it failed.
        source: driver_rpc::Error,
    },
    /// It has no name.
    #[error("the CSI driver has no name")]
    Nameless,
    /// It reports no place of its node.
    #[error(
        "the CSI driver reports no topology of its node (NodeGetInfo), and --node-deployment needs it: each replica finds its volumes by it"
    )]
    Placeless,
}

/// What a driver says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    name: String,
    services: BTreeSet<Service>,
    rpcs: BTreeSet<Rpc>,
}

/// What a claim needs from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Attributes,
    Clones,
    Snapshots,
}

impl DriverInfo {
    /// Asks the driver.
    ///
    /// # Errors
    /// See [`DriverError`].
    pub async fn ask(driver: &(impl Identity + Controller)) -> Result<Self, DriverError> {
        let failed = |what| move |source| DriverError::Call { what, source };
        let name = driver.get_plugin_info(GetPluginInfoRequest {}).await.map_err(failed("name"))?.name;
        if name.is_empty() {
            return Err(DriverError::Nameless);
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

    /// Whether some nodes cannot use some of the driver's volumes.
    pub fn has_topology(&self) -> bool {
        self.services.contains(&Service::VolumeAccessibilityConstraints)
    }

    /// Whether the driver says how much free storage it has.
    pub fn can_get_capacity(&self) -> bool {
        self.can(Rpc::GetCapacity)
    }

    /// Whether a volume may be limited to some nodes.
    pub(crate) fn chooses_places(&self, settings: &Settings) -> bool {
        settings.topology && self.has_topology()
    }

    /// The driver's name, which is that of the provisioner in classes.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn can(&self, rpc: Rpc) -> bool {
        self.rpcs.contains(&rpc)
    }

    /// What the driver lacks for making or deleting a volume, for a person.
    pub(crate) fn lack(&self, needs: impl IntoIterator<Item = Need>) -> Option<String> {
        let lacks = |what: &str, capability: &str| {
            format!("the CSI driver {} {what}: it does not have the capability {capability}", self.name)
        };
        if !self.services.contains(&Service::ControllerService) {
            return Some(lacks("cannot make volumes", Service::ControllerService.as_str_name()));
        }
        let needs = needs.into_iter().map(|need| match need {
            Need::Attributes => (Rpc::ModifyVolume, "knows no VolumeAttributesClasses"),
            Need::Clones => (Rpc::CloneVolume, "cannot copy volumes"),
            Need::Snapshots => (Rpc::CreateDeleteSnapshot, "cannot restore snapshots"),
        });
        let all = [(Rpc::CreateDeleteVolume, "cannot make volumes")].into_iter().chain(needs);
        all.into_iter().find(|(rpc, _)| !self.can(*rpc)).map(|(rpc, what)| lacks(what, rpc.as_str_name()))
    }
}
