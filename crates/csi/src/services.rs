//! The services as traits: a driver implements them, and the client does too.

use driver_rpc::service;

use crate::client::Client;
use crate::messages::*;

service! {
    /// Who the driver is, what it can do, and whether it is ready.
    Identity, identity of Client in "csi.v1" {
        GetPluginInfo get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        GetPluginCapabilities get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        Probe probe(ProbeRequest) -> ProbeResponse;
    }
}

service! {
    /// Volumes and snapshots as a whole, from anywhere in the cluster.
    Controller, controller of Client in "csi.v1" {
        CreateVolume create_volume(CreateVolumeRequest) -> CreateVolumeResponse;
        DeleteVolume delete_volume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        ControllerPublishVolume controller_publish_volume(ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
        ControllerUnpublishVolume controller_unpublish_volume(ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
        ValidateVolumeCapabilities validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) -> ValidateVolumeCapabilitiesResponse;
        ListVolumes list_volumes(ListVolumesRequest) -> ListVolumesResponse;
        GetCapacity get_capacity(GetCapacityRequest) -> GetCapacityResponse;
        ControllerGetCapabilities controller_get_capabilities(ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
        CreateSnapshot create_snapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        DeleteSnapshot delete_snapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        ListSnapshots list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        GetSnapshot get_snapshot(GetSnapshotRequest) -> GetSnapshotResponse;
        ControllerExpandVolume controller_expand_volume(ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
        ControllerGetVolume controller_get_volume(ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
        ControllerModifyVolume controller_modify_volume(ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
    }
}

service! {
    /// Volumes on the node on which the driver runs.
    Node, node of Client in "csi.v1" {
        NodeStageVolume node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        NodeUnstageVolume node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        NodePublishVolume node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        NodeUnpublishVolume node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        NodeGetVolumeStats node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        NodeExpandVolume node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
        NodeGetCapabilities node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        NodeGetInfo node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
    }
}
