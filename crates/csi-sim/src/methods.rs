//! The calls, and the capability that each of them needs.

use driver_rpc::Error;
use driver_rpc::csi::*;

use crate::Capability;
use crate::driver::{Driver, Work};
use crate::model::Model;

mod rpc {
    pub(super) use driver_rpc::csi::controller_service_capability::rpc::Type as Controller;
    pub(super) use driver_rpc::csi::node_service_capability::rpc::Type as Node;
}

/// The services of the driver: for each call its name, method, types, capability, and the field with the name or ID
/// that it changes.
macro_rules! calls {
    ($($service:ident {
        $($name:ident $method:ident($request:ident) -> $response:ident $(needs $kind:ident $capability:ident)? $(on $key:ident)?;)*
    })*) => {
        /// A call, by its name in the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum Method {
            $($($name,)*)*
        }

        $(
            impl $service for Driver {
                $(
                    async fn $method(&self, request: $request) -> Result<$response, Error> {
                        let work = Work {
                            method: Method::$name,
                            needs: [$(Capability::$kind(rpc::$kind::$capability),)?].into_iter().next(),
                            about: [$((stringify!($key), request.$key.clone()),)?].into_iter().next(),
                            run: Model::$method,
                        };
                        self.call(work, request).await
                    }
                )*
            }
        )*
    };
}

calls! {
    Identity {
        GetPluginInfo get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        GetPluginCapabilities get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        Probe probe(ProbeRequest) -> ProbeResponse;
    }
    Controller {
        CreateVolume create_volume(CreateVolumeRequest) -> CreateVolumeResponse needs Controller CreateDeleteVolume on name;
        DeleteVolume delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse needs Controller CreateDeleteVolume on volume_id;
        ControllerPublishVolume controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse
            needs Controller PublishUnpublishVolume on volume_id;
        ControllerUnpublishVolume controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse
            needs Controller PublishUnpublishVolume on volume_id;
        ValidateVolumeCapabilities validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse;
        ListVolumes list_volumes(ListVolumesRequest) -> ListVolumesResponse needs Controller ListVolumes;
        GetCapacity get_capacity(GetCapacityRequest) -> GetCapacityResponse needs Controller GetCapacity;
        ControllerGetCapabilities controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
        CreateSnapshot create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse needs Controller CreateDeleteSnapshot on name;
        DeleteSnapshot delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse needs Controller CreateDeleteSnapshot on snapshot_id;
        ListSnapshots list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse needs Controller ListSnapshots;
        GetSnapshot get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse needs Controller GetSnapshot;
        ControllerExpandVolume controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse
            needs Controller ExpandVolume on volume_id;
        ControllerGetVolume controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse needs Controller GetVolume;
        ControllerModifyVolume controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse
            needs Controller ModifyVolume on volume_id;
    }
    Node {
        NodeStageVolume node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse needs Node StageUnstageVolume on volume_id;
        NodeUnstageVolume node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse needs Node StageUnstageVolume on volume_id;
        NodePublishVolume node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse on volume_id;
        NodeUnpublishVolume node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse on volume_id;
        NodeGetVolumeStats node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse needs Node GetVolumeStats;
        NodeExpandVolume node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse needs Node ExpandVolume on volume_id;
        NodeGetCapabilities node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        NodeGetInfo node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
    }
}
