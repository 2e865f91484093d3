//! Messages of the controller service that concern snapshots.

use std::collections::BTreeMap;

use prost_types::Timestamp;

use super::{Topology, TopologyRequirement};
use crate::Secrets;

message! {
    /// A snapshot, as its driver describes it.
    pub struct Snapshot {
        #[prost(int64, tag = "1")]
        pub size_bytes: i64,
        #[prost(string, tag = "2")]
        pub snapshot_id: String,
        #[prost(string, tag = "3")]
        pub source_volume_id: String,
        #[prost(message, optional, tag = "4")]
        #[cfg_attr(feature = "serde", serde(with = "crate::recording::time"))]
        pub creation_time: Option<Timestamp>,
        #[prost(bool, tag = "5")]
        pub ready_to_use: bool,
        #[prost(string, tag = "6")]
        pub group_snapshot_id: String,
        #[prost(message, repeated, tag = "7")]
        pub accessible_topology: Vec<Topology>,
    }
}

message! {
    /// The request of `Controller.CreateSnapshot`.
    pub struct CreateSnapshotRequest {
        #[prost(string, tag = "1")]
        pub source_volume_id: String,
        #[prost(string, tag = "2")]
        pub name: String,
        #[prost(message, repeated, tag = "3")]
        pub secrets: Secrets,
        #[prost(btree_map = "string, string", tag = "4")]
        pub parameters: BTreeMap<String, String>,
        #[prost(message, optional, tag = "5")]
        pub accessibility_requirements: Option<TopologyRequirement>,
    }
}

message! {
    /// The answer of `Controller.CreateSnapshot`.
    pub struct CreateSnapshotResponse {
        #[prost(message, optional, tag = "1")]
        pub snapshot: Option<Snapshot>,
    }
}

message! {
    /// The request of `Controller.DeleteSnapshot`.
    pub struct DeleteSnapshotRequest {
        #[prost(string, tag = "1")]
        pub snapshot_id: String,
        #[prost(message, repeated, tag = "2")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Controller.DeleteSnapshot`.
    pub struct DeleteSnapshotResponse {}
}

message! {
    /// The request of `Controller.ListSnapshots`.
    pub struct ListSnapshotsRequest {
        #[prost(int32, tag = "1")]
        pub max_entries: i32,
        #[prost(string, tag = "2")]
        pub starting_token: String,
        #[prost(string, tag = "3")]
        pub source_volume_id: String,
        #[prost(string, tag = "4")]
        pub snapshot_id: String,
        #[prost(message, repeated, tag = "5")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Controller.ListSnapshots`.
    pub struct ListSnapshotsResponse {
        #[prost(message, repeated, tag = "1")]
        pub entries: Vec<list_snapshots_response::Entry>,
        #[prost(string, tag = "2")]
        pub next_token: String,
    }
}

/// The parts of [`ListSnapshotsResponse`].
pub mod list_snapshots_response {
    message! {
        /// One snapshot of the list.
        pub struct Entry {
            #[prost(message, optional, tag = "1")]
            pub snapshot: Option<super::Snapshot>,
        }
    }
}

message! {
    /// The request of `Controller.GetSnapshot`.
    pub struct GetSnapshotRequest {
        #[prost(string, tag = "1")]
        pub snapshot_id: String,
        #[prost(message, repeated, tag = "2")]
        pub secrets: Secrets,
    }
}

message! {
    /// The answer of `Controller.GetSnapshot`.
    pub struct GetSnapshotResponse {
        #[prost(message, optional, tag = "1")]
        pub snapshot: Option<Snapshot>,
    }
}
