//! Messages of the controller service that concern volumes.

use std::collections::BTreeMap;

use super::{CapacityRange, Topology, TopologyRequirement, Volume, VolumeCapability, VolumeContentSource};
use crate::Secrets;

message! {
    /// What the controller service can do.
    pub struct ControllerServiceCapability {
        #[prost(oneof = "controller_service_capability::Type", tags = "1")]
        #[cfg_attr(feature = "serde", serde(flatten))]
        pub r#type: Option<controller_service_capability::Type>,
    }
}

/// The parts of [`ControllerServiceCapability`].
pub mod controller_service_capability {
    /// One of the kinds of capability.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
    pub enum Type {
        #[prost(message, tag = "1")]
        Rpc(Rpc),
    }

    message! {
        /// A call that the service has.
        pub struct Rpc {
            #[prost(enumeration = "rpc::Type", tag = "1")]
            pub r#type: i32,
        }
    }

    /// The parts of [`Rpc`].
    pub mod rpc {
        /// The capabilities of the controller service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
        #[repr(i32)]
        pub enum Type {
            Unknown = 0,
            CreateDeleteVolume = 1,
            PublishUnpublishVolume = 2,
            ListVolumes = 3,
            GetCapacity = 4,
            CreateDeleteSnapshot = 5,
            ListSnapshots = 6,
            CloneVolume = 7,
            PublishReadonly = 8,
            ExpandVolume = 9,
            ListVolumesPublishedNodes = 10,
            GetVolume = 12,
            SingleNodeMultiWriter = 13,
            ModifyVolume = 14,
            GetSnapshot = 15,
            GetVolumeHealth = 16,
            ListVolumeHealth = 17,
        }
    }
}

message! {
    /// The request of `Controller.CreateVolume`.
    pub struct CreateVolumeRequest {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(message, optional, tag = "2")]
        pub capacity_range: Option<CapacityRange>,
        #[prost(message, repeated, tag = "3")]
        pub volume_capabilities: Vec<VolumeCapability>,
        #[prost(btree_map = "string, string", tag = "4")]
        pub parameters: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "5")]
        pub secrets: Secrets,
        #[prost(message, optional, tag = "6")]
        pub volume_content_source: Option<VolumeContentSource>,
        #[prost(message, optional, tag = "7")]
        pub accessibility_requirements: Option<TopologyRequirement>,
        #[prost(btree_map = "string, string", tag = "8")]
        pub mutable_parameters: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Controller.CreateVolume`.
    pub struct CreateVolumeResponse {
        #[prost(message, optional, tag = "1")]
        pub volume: Option<Volume>,
    }
}

message! {
    /// The request of `Controller.DeleteVolume`.
    pub struct DeleteVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(message, repeated, tag = "2")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Controller.DeleteVolume`.
    pub struct DeleteVolumeResponse {}
}

message! {
    /// The request of `Controller.ValidateVolumeCapabilities`.
    pub struct ValidateVolumeCapabilitiesRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub volume_context: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "3")]
        pub volume_capabilities: Vec<VolumeCapability>,
        #[prost(btree_map = "string, string", tag = "4")]
        pub parameters: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "5")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "6")]
        pub mutable_parameters: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Controller.ValidateVolumeCapabilities`.
    pub struct ValidateVolumeCapabilitiesResponse {
        #[prost(message, optional, tag = "1")]
        pub confirmed: Option<validate_volume_capabilities_response::Confirmed>,
        #[prost(string, tag = "2")]
        pub message: String,
    }
}

/// The parts of [`ValidateVolumeCapabilitiesResponse`].
pub mod validate_volume_capabilities_response {
    use std::collections::BTreeMap;

    message! {
        /// What the driver confirms.
        pub struct Confirmed {
            #[prost(btree_map = "string, string", tag = "1")]
            pub volume_context: BTreeMap<String, String>,
            #[prost(message, repeated, tag = "2")]
            pub volume_capabilities: Vec<super::VolumeCapability>,
            #[prost(btree_map = "string, string", tag = "3")]
            pub parameters: BTreeMap<String, String>,
            #[prost(btree_map = "string, string", tag = "4")]
            pub mutable_parameters: BTreeMap<String, String>,
        }
    }
}

message! {
    /// The request of `Controller.ListVolumes`.
    pub struct ListVolumesRequest {
        #[prost(int32, tag = "1")]
        pub max_entries: i32,
        #[prost(string, tag = "2")]
        pub starting_token: String,
    }
}

message! {
    /// The answer of `Controller.ListVolumes`.
    pub struct ListVolumesResponse {
        #[prost(message, repeated, tag = "1")]
        pub entries: Vec<list_volumes_response::Entry>,
        #[prost(string, tag = "2")]
        pub next_token: String,
    }
}

/// The parts of [`ListVolumesResponse`].
pub mod list_volumes_response {
    message! {
        /// Where a volume is published.
        pub struct VolumeStatus {
            #[prost(string, repeated, tag = "1")]
            pub published_node_ids: Vec<String>,
        }
    }

    message! {
        /// One volume of the list.
        pub struct Entry {
            #[prost(message, optional, tag = "1")]
            pub volume: Option<super::Volume>,
            #[prost(message, optional, tag = "2")]
            pub status: Option<VolumeStatus>,
        }
    }
}

message! {
    /// The request of `Controller.GetCapacity`.
    pub struct GetCapacityRequest {
        #[prost(message, repeated, tag = "1")]
        pub volume_capabilities: Vec<VolumeCapability>,
        #[prost(btree_map = "string, string", tag = "2")]
        pub parameters: BTreeMap<String, String>,
        #[prost(message, optional, tag = "3")]
        pub accessible_topology: Option<Topology>,
    }
}

message! {
    /// The answer of `Controller.GetCapacity`.
    pub struct GetCapacityResponse {
        #[prost(int64, tag = "1")]
        pub available_capacity: i64,
        #[prost(message, optional, tag = "2")]
        pub maximum_volume_size: Option<i64>,
        #[prost(message, optional, tag = "3")]
        pub minimum_volume_size: Option<i64>,
    }
}

message! {
    /// The request of `Controller.ControllerGetCapabilities`.
    pub struct ControllerGetCapabilitiesRequest {}
}

message! {
    /// The answer of `Controller.ControllerGetCapabilities`.
    pub struct ControllerGetCapabilitiesResponse {
        #[prost(message, repeated, tag = "1")]
        pub capabilities: Vec<ControllerServiceCapability>,
    }
}

message! {
    /// The request of `Controller.ControllerExpandVolume`.
    pub struct ControllerExpandVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(message, optional, tag = "2")]
        pub capacity_range: Option<CapacityRange>,
        #[prost(message, repeated, tag = "3")]
        pub secrets: Secrets,
        #[prost(message, optional, tag = "4")]
        pub volume_capability: Option<VolumeCapability>,
    }
}

message! {
    /// The answer of `Controller.ControllerExpandVolume`.
    pub struct ControllerExpandVolumeResponse {
        #[prost(int64, tag = "1")]
        pub capacity_bytes: i64,
        #[prost(bool, tag = "2")]
        pub node_expansion_required: bool,
    }
}

message! {
    /// The request of `Controller.ControllerGetVolume`.
    pub struct ControllerGetVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
    }
}

message! {
    /// The answer of `Controller.ControllerGetVolume`.
    pub struct ControllerGetVolumeResponse {
        #[prost(message, optional, tag = "1")]
        pub volume: Option<Volume>,
        #[prost(message, optional, tag = "2")]
        pub status: Option<controller_get_volume_response::VolumeStatus>,
    }
}

/// The parts of [`ControllerGetVolumeResponse`].
pub mod controller_get_volume_response {
    message! {
        /// Where a volume is published.
        pub struct VolumeStatus {
            #[prost(string, repeated, tag = "1")]
            pub published_node_ids: Vec<String>,
        }
    }
}

message! {
    /// The request of `Controller.ControllerModifyVolume`.
    pub struct ControllerModifyVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(message, repeated, tag = "2")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "3")]
        pub mutable_parameters: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Controller.ControllerModifyVolume`.
    pub struct ControllerModifyVolumeResponse {}
}
