//! The services as traits: a driver implements them, and the client does too.

use std::future::Future;

use hyper::body::Incoming;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::client::Client;
use crate::error::Error;
use crate::messages::*;

/// A service's trait, its client, and the way from a call's name to the trait's method.
macro_rules! service {
    ($(#[$doc:meta])* $service:ident, $dispatch:ident { $($name:ident $method:ident($request:ident) -> $response:ident;)* }) => {
        $(#[$doc])*
        ///
        /// Methods that are left out answer `Unimplemented`.
        pub trait $service: Send + Sync {
            $(
                #[doc = concat!("The call `", stringify!($service), ".", stringify!($name), "`.")]
                fn $method(&self, request: $request) -> impl Future<Output = Result<$response, Error>> + Send {
                    let _ = request;
                    async { Err(unimplemented(concat!("/csi.v1.", stringify!($service), "/", stringify!($name)))) }
                }
            )*
        }

        impl $service for Client {
            $(
                async fn $method(&self, request: $request) -> Result<$response, Error> {
                    self.call(concat!("/csi.v1.", stringify!($service), "/", stringify!($name)), request).await
                }
            )*
        }

        pub(crate) async fn $dispatch<D: $service>(driver: &D, request: http::Request<Incoming>) -> http::Response<Body> {
            match request.uri().path() {
                $(
                    concat!("/csi.v1.", stringify!($service), "/", stringify!($name)) => {
                        let call = async |request: Request<$request>| {
                            Ok(Response::new(driver.$method(request.into_inner()).await?))
                        };
                        Grpc::new(ProstCodec::default()).unary(service_fn(call), request).await
                    }
                )*
                path => Status::from(unimplemented(path)).into_http(),
            }
        }
    };
}

service! {
    /// Who the driver is, what it can do, and whether it is ready.
    Identity, identity {
        GetPluginInfo get_plugin_info(GetPluginInfoRequest) -> GetPluginInfoResponse;
        GetPluginCapabilities get_plugin_capabilities(GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
        Probe probe(ProbeRequest) -> ProbeResponse;
    }
}

service! {
    /// Volumes and snapshots as a whole, from anywhere in the cluster.
    Controller, controller {
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
    Node, node {
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

pub(crate) fn unimplemented(path: &str) -> Error {
    Status::unimplemented(format!("this driver does not have {path}")).into()
}
