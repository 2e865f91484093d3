//! Who the driver is, and what it can do.

use driver_rpc::Status;
use driver_rpc::csi::*;

use super::Model;
use crate::Capability;

impl Model {
    pub(crate) fn get_plugin_info(&mut self, _: &GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(GetPluginInfoResponse { name: self.settings.name.clone(), vendor_version, ..Default::default() })
    }

    pub(crate) fn get_plugin_capabilities(
        &mut self,
        _: &GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Status> {
        use plugin_capability::{Service, Type, VolumeExpansion};
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Plugin(kind) => Some(Type::Service(Service { r#type: kind.into() })),
            Capability::Expansion(kind) => Some(Type::VolumeExpansion(VolumeExpansion { r#type: kind.into() })),
            _ => None,
        });
        let capabilities = all.map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(GetPluginCapabilitiesResponse { capabilities })
    }

    pub(crate) fn probe(&mut self, _: &ProbeRequest) -> Result<ProbeResponse, Status> {
        Ok(ProbeResponse { ready: Some(true) })
    }

    pub(crate) fn controller_get_capabilities(
        &mut self,
        _: &ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Status> {
        use controller_service_capability::{Rpc, Type};
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Controller(kind) => Some(Type::Rpc(Rpc { r#type: kind.into() })),
            _ => None,
        });
        let capabilities = all.map(|kind| ControllerServiceCapability { r#type: Some(kind) }).collect();
        Ok(ControllerGetCapabilitiesResponse { capabilities })
    }

    pub(crate) fn node_get_capabilities(
        &mut self,
        _: &NodeGetCapabilitiesRequest,
    ) -> Result<NodeGetCapabilitiesResponse, Status> {
        use node_service_capability::{Rpc, Type};
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Node(kind) => Some(Type::Rpc(Rpc { r#type: kind.into() })),
            _ => None,
        });
        let capabilities = all.map(|kind| NodeServiceCapability { r#type: Some(kind) }).collect();
        Ok(NodeGetCapabilitiesResponse { capabilities })
    }
}
