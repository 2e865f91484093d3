//! Messages of the node service.

use std::collections::BTreeMap;

use super::{CapacityRange, Topology, VolumeCapability};
use crate::Secrets;

message! {
    /// What the node service can do.
    pub struct NodeServiceCapability {
        #[prost(oneof = "node_service_capability::Type", tags = "1")]
        #[cfg_attr(feature = "serde", serde(flatten))]
        pub r#type: Option<node_service_capability::Type>,
    }
}

/// The parts of [`NodeServiceCapability`].
pub mod node_service_capability {
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
        /// The capabilities of the node service.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
        #[repr(i32)]
        pub enum Type {
            Unknown = 0,
            StageUnstageVolume = 1,
            GetVolumeStats = 2,
            ExpandVolume = 3,
            SingleNodeMultiWriter = 5,
            VolumeMountGroup = 6,
            GetVolumeHealth = 7,
            GetStorageHealth = 8,
        }
    }
}

message! {
    /// How much of a volume is in use.
    pub struct VolumeUsage {
        #[prost(int64, tag = "1")]
        pub available: i64,
        #[prost(int64, tag = "2")]
        pub total: i64,
        #[prost(int64, tag = "3")]
        pub used: i64,
        #[prost(enumeration = "volume_usage::Unit", tag = "4")]
        pub unit: i32,
    }
}

/// The parts of [`VolumeUsage`].
pub mod volume_usage {
    /// What is counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
    #[repr(i32)]
    pub enum Unit {
        Unknown = 0,
        Bytes = 1,
        Inodes = 2,
    }
}

message! {
    /// The request of `Node.NodeStageVolume`.
    pub struct NodeStageVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub publish_context: BTreeMap<String, String>,
        #[prost(string, tag = "3")]
        pub staging_target_path: String,
        #[prost(message, optional, tag = "4")]
        pub volume_capability: Option<VolumeCapability>,
        #[prost(message, repeated, tag = "5")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "6")]
        pub volume_context: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Node.NodeStageVolume`.
    pub struct NodeStageVolumeResponse {}
}

message! {
    /// The request of `Node.NodeUnstageVolume`.
    pub struct NodeUnstageVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub staging_target_path: String,
    }
}

message! {
    /// The answer of `Node.NodeUnstageVolume`.
    pub struct NodeUnstageVolumeResponse {}
}

message! {
    /// The request of `Node.NodePublishVolume`.
    pub struct NodePublishVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub publish_context: BTreeMap<String, String>,
        #[prost(string, tag = "3")]
        pub staging_target_path: String,
        #[prost(string, tag = "4")]
        pub target_path: String,
        #[prost(message, optional, tag = "5")]
        pub volume_capability: Option<VolumeCapability>,
        #[prost(bool, tag = "6")]
        pub readonly: bool,
        #[prost(message, repeated, tag = "7")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "8")]
        pub volume_context: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Node.NodePublishVolume`.
    pub struct NodePublishVolumeResponse {}
}

message! {
    /// The request of `Node.NodeUnpublishVolume`.
    pub struct NodeUnpublishVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub target_path: String,
    }
}

message! {
    /// The answer of `Node.NodeUnpublishVolume`.
    pub struct NodeUnpublishVolumeResponse {}
}

message! {
    /// The request of `Node.NodeGetVolumeStats`.
    pub struct NodeGetVolumeStatsRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub volume_path: String,
        #[prost(string, tag = "3")]
        pub staging_target_path: String,
    }
}

message! {
    /// The answer of `Node.NodeGetVolumeStats`.
    pub struct NodeGetVolumeStatsResponse {
        #[prost(message, repeated, tag = "1")]
        pub usage: Vec<VolumeUsage>,
    }
}

message! {
    /// The request of `Node.NodeExpandVolume`.
    pub struct NodeExpandVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub volume_path: String,
        #[prost(message, optional, tag = "3")]
        pub capacity_range: Option<CapacityRange>,
        #[prost(string, tag = "4")]
        pub staging_target_path: String,
        #[prost(message, optional, tag = "5")]
        pub volume_capability: Option<VolumeCapability>,
        #[prost(message, repeated, tag = "6")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Node.NodeExpandVolume`.
    pub struct NodeExpandVolumeResponse {
        #[prost(int64, tag = "1")]
        pub capacity_bytes: i64,
    }
}

message! {
    /// The request of `Node.NodeGetCapabilities`.
    pub struct NodeGetCapabilitiesRequest {}
}

message! {
    /// The answer of `Node.NodeGetCapabilities`.
    pub struct NodeGetCapabilitiesResponse {
        #[prost(message, repeated, tag = "1")]
        pub capabilities: Vec<NodeServiceCapability>,
    }
}

message! {
    /// The request of `Node.NodeGetInfo`.
    pub struct NodeGetInfoRequest {}
}

message! {
    /// The answer of `Node.NodeGetInfo`.
    pub struct NodeGetInfoResponse {
        #[prost(string, tag = "1")]
        pub node_id: String,
        #[prost(int64, tag = "2")]
        pub max_volumes_per_node: i64,
        #[prost(message, optional, tag = "3")]
        pub accessible_topology: Option<Topology>,
    }
}
