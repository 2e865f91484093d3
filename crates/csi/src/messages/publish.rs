//! Messages of the controller service that attach volumes to nodes.

use std::collections::BTreeMap;

use super::VolumeCapability;
use crate::Secrets;

message! {
    /// The request of `Controller.ControllerPublishVolume`.
    pub struct ControllerPublishVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub node_id: String,
        #[prost(message, optional, tag = "3")]
        pub volume_capability: Option<VolumeCapability>,
        #[prost(bool, tag = "4")]
        pub readonly: bool,
        #[prost(message, repeated, tag = "5")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "6")]
        pub volume_context: BTreeMap<String, String>,
    }
}

message! {
    /// The answer of `Controller.ControllerPublishVolume`.
    pub struct ControllerPublishVolumeResponse {
        #[prost(btree_map = "string, string", tag = "1")]
        pub publish_context: BTreeMap<String, String>,
    }
}

message! {
    /// The request of `Controller.ControllerUnpublishVolume`.
    pub struct ControllerUnpublishVolumeRequest {
        #[prost(string, tag = "1")]
        pub volume_id: String,
        #[prost(string, tag = "2")]
        pub node_id: String,
        #[prost(message, repeated, tag = "3")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Controller.ControllerUnpublishVolume`.
    pub struct ControllerUnpublishVolumeResponse {}
}
