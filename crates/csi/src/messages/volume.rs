//! What a volume is: size, use, topology, source.

use std::collections::BTreeMap;

message! {
    /// A volume, as its driver describes it.
    pub struct Volume {
        #[prost(int64, tag = "1")]
        pub capacity_bytes: i64,
        #[prost(string, tag = "2")]
        pub volume_id: String,
        #[prost(btree_map = "string, string", tag = "3")]
        pub volume_context: BTreeMap<String, String>,
        #[prost(message, optional, tag = "4")]
        pub content_source: Option<VolumeContentSource>,
        #[prost(message, repeated, tag = "5")]
        pub accessible_topology: Vec<Topology>,
    }
}

message! {
    /// The smallest and the largest size, in bytes; 0 is no bound.
    pub struct CapacityRange {
        #[prost(int64, tag = "1")]
        pub required_bytes: i64,
        #[prost(int64, tag = "2")]
        pub limit_bytes: i64,
    }
}

message! {
    /// How a volume is used.
    pub struct VolumeCapability {
        #[prost(oneof = "volume_capability::AccessType", tags = "1, 2")]
        #[cfg_attr(feature = "serde", serde(flatten))]
        pub access_type: Option<volume_capability::AccessType>,
        #[prost(message, optional, tag = "3")]
        pub access_mode: Option<volume_capability::AccessMode>,
    }
}

/// The parts of [`VolumeCapability`].
pub mod volume_capability {
    /// As a block device or as a file system.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
    pub enum AccessType {
        #[prost(message, tag = "1")]
        Block(BlockVolume),
        #[prost(message, tag = "2")]
        Mount(MountVolume),
    }

    message! {
        /// As a raw block device.
        pub struct BlockVolume {}
    }

    message! {
        /// As a mounted file system.
        pub struct MountVolume {
            #[prost(string, tag = "1")]
            pub fs_type: String,
            #[prost(string, repeated, tag = "2")]
            pub mount_flags: Vec<String>,
            #[prost(string, tag = "3")]
            pub volume_mount_group: String,
        }
    }

    message! {
        /// By how many nodes and writers.
        pub struct AccessMode {
            #[prost(enumeration = "access_mode::Mode", tag = "1")]
            pub mode: i32,
        }
    }

    /// The parts of [`AccessMode`].
    pub mod access_mode {
        /// The access modes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
        #[repr(i32)]
        pub enum Mode {
            Unknown = 0,
            SingleNodeWriter = 1,
            SingleNodeReaderOnly = 2,
            MultiNodeReaderOnly = 3,
            MultiNodeSingleWriter = 4,
            MultiNodeMultiWriter = 5,
            SingleNodeSingleWriter = 6,
            SingleNodeMultiWriter = 7,
        }
    }
}

message! {
    /// The snapshot or the volume with which a new volume begins.
    pub struct VolumeContentSource {
        #[prost(oneof = "volume_content_source::Type", tags = "1, 2")]
        #[cfg_attr(feature = "serde", serde(flatten))]
        pub r#type: Option<volume_content_source::Type>,
    }
}

/// The parts of [`VolumeContentSource`].
pub mod volume_content_source {
    /// Which source it is.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
    pub enum Type {
        #[prost(message, tag = "1")]
        Snapshot(SnapshotSource),
        #[prost(message, tag = "2")]
        Volume(VolumeSource),
    }

    message! {
        /// A snapshot.
        pub struct SnapshotSource {
            #[prost(string, tag = "1")]
            pub snapshot_id: String,
        }
    }

    message! {
        /// A volume.
        pub struct VolumeSource {
            #[prost(string, tag = "1")]
            pub volume_id: String,
        }
    }
}

message! {
    /// From where a volume must be accessible.
    pub struct TopologyRequirement {
        #[prost(message, repeated, tag = "1")]
        pub requisite: Vec<Topology>,
        #[prost(message, repeated, tag = "2")]
        pub preferred: Vec<Topology>,
    }
}

message! {
    /// A part of the cluster by keys and values, such as a zone.
    pub struct Topology {
        #[prost(btree_map = "string, string", tag = "1")]
        pub segments: BTreeMap<String, String>,
    }
}
