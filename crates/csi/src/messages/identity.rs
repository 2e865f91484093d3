//! Messages of the identity service: name, capabilities, readiness.

use std::collections::BTreeMap;

message! {
    /// What a plug-in as a whole can do.
    pub struct PluginCapability {
        #[prost(oneof = "plugin_capability::Type", tags = "1, 2")]
        #[cfg_attr(feature = "serde", serde(flatten))]
        pub r#type: Option<plugin_capability::Type>,
    }
}

/// The parts of [`PluginCapability`].
pub mod plugin_capability {
    /// One of the kinds of capability.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
    pub enum Type {
        #[prost(message, tag = "1")]
        Service(Service),
        #[prost(message, tag = "2")]
        VolumeExpansion(VolumeExpansion),
    }

    message! {
        /// A service, or a constraint on volumes.
        pub struct Service {
            #[prost(enumeration = "service::Type", tag = "1")]
            pub r#type: i32,
        }
    }

    /// The parts of [`Service`].
    pub mod service {
        /// The capabilities of a plug-in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
        #[repr(i32)]
        pub enum Type {
            Unknown = 0,
            ControllerService = 1,
            VolumeAccessibilityConstraints = 2,
            GroupControllerService = 3,
            SnapshotMetadataService = 4,
            SnapshotAccessibilityConstraints = 5,
        }
    }

    message! {
        /// How volumes grow.
        pub struct VolumeExpansion {
            #[prost(enumeration = "volume_expansion::Type", tag = "1")]
            pub r#type: i32,
        }
    }

    /// The parts of [`VolumeExpansion`].
    pub mod volume_expansion {
        /// Whether a volume grows while it is published.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
        #[repr(i32)]
        pub enum Type {
            Unknown = 0,
            Online = 1,
            Offline = 2,
        }
    }
}

message! {
    /// The request of `Identity.GetPluginInfo`.
    pub struct GetPluginInfoRequest {}
}

message! {
    /// The answer of `Identity.GetPluginInfo`.
    pub struct GetPluginInfoResponse {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub vendor_version: String,
        #[prost(btree_map = "string, string", tag = "3")]
        pub manifest: BTreeMap<String, String>,
    }
}

message! {
    /// The request of `Identity.GetPluginCapabilities`.
    pub struct GetPluginCapabilitiesRequest {}
}

message! {
    /// The answer of `Identity.GetPluginCapabilities`.
    pub struct GetPluginCapabilitiesResponse {
        #[prost(message, repeated, tag = "1")]
        pub capabilities: Vec<PluginCapability>,
    }
}

message! {
    /// The request of `Identity.Probe`.
    pub struct ProbeRequest {}
}

message! {
    /// The answer of `Identity.Probe`.
    pub struct ProbeResponse {
        #[prost(message, optional, tag = "1")]
        pub ready: Option<bool>,
    }
}
