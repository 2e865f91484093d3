//! The identity service.

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
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Plugin(kind) => Some(kind.into()),
            Capability::Expansion(kind) => Some(kind.into()),
            Capability::Controller(_) | Capability::Node(_) => None,
        });
        Ok(GetPluginCapabilitiesResponse { capabilities: all.collect() })
    }

    pub(crate) fn probe(&mut self, _: &ProbeRequest) -> Result<ProbeResponse, Status> {
        Ok(ProbeResponse { ready: Some(true) })
    }

    pub(crate) fn controller_get_capabilities(
        &mut self,
        _: &ControllerGetCapabilitiesRequest,
    ) -> Result<ControllerGetCapabilitiesResponse, Status> {
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Controller(kind) => Some(kind.into()),
            _ => None,
        });
        Ok(ControllerGetCapabilitiesResponse { capabilities: all.collect() })
    }

    pub(crate) fn node_get_capabilities(
        &mut self,
        _: &NodeGetCapabilitiesRequest,
    ) -> Result<NodeGetCapabilitiesResponse, Status> {
        let all = self.settings.capabilities.iter().filter_map(|capability| match *capability {
            Capability::Node(kind) => Some(kind.into()),
            _ => None,
        });
        Ok(NodeGetCapabilitiesResponse { capabilities: all.collect() })
    }
}
