//! The settings of a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::Capability;

/// The settings of a driver. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the driver.
    pub name: String,
    /// Supported capabilities. Calls without their capability fail with `Unimplemented`.
    pub capabilities: BTreeSet<Capability>,
    /// Pools for volumes, preferred first.
    pub pools: Vec<Pool>,
    /// The nodes; the node service runs on the first one.
    pub nodes: Vec<NodeSettings>,
    /// Keys of the supported mutable parameters.
    pub mutable_parameters: BTreeSet<String>,
    /// Default size of a volume.
    pub default_size: i64,
    /// Minimum size of a volume.
    pub minimum_size: i64,
    /// Maximum size of a volume.
    pub maximum_size: i64,
    /// Sizes are multiples of this.
    pub granularity: i64,
    /// Duration of each call. The work is done at its end, even if the caller has cancelled the call.
    pub latency: Duration,
    /// True if repeated calls are idempotent. Otherwise a repeated call creates a second volume, and deleting a missing
    /// volume fails.
    pub is_idempotent: bool,
    /// Effects of calls on this machine.
    pub machine: Machine,
}

/// Effects of calls on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Calls have no effects.
    Untouched,
    /// Publish volumes as empty directories, or as empty files for block devices.
    TargetPaths,
    /// Store the data of volumes and snapshots below this directory, and mount published volumes.
    Data(PathBuf),
}

/// A pool for volumes.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the pool, which the context of its volumes contains.
    pub name: String,
    /// Topology segments from which the pool is accessible; empty for everywhere.
    pub segments: BTreeMap<String, String>,
    /// Size of the pool.
    pub size: i64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// ID of the node.
    pub id: String,
    /// Topology segments of the node.
    pub segments: BTreeMap<String, String>,
    /// Maximum number of volumes published on the node; 0 for no limit.
    pub max_volumes: i64,
}

impl Default for Settings {
    /// Returns settings with one node and one large pool, without topology.
    fn default() -> Self {
        Self {
            name: "csi-sim.example.com".to_owned(),
            capabilities: Capability::without_topology(),
            pools: vec![Pool { name: "pool-1".to_owned(), segments: BTreeMap::new(), size: 1 << 50 }],
            nodes: vec![NodeSettings { id: "node-1".to_owned(), segments: BTreeMap::new(), max_volumes: 0 }],
            mutable_parameters: BTreeSet::from(["iops".to_owned(), "tier".to_owned()]),
            default_size: 1 << 30,
            minimum_size: 1,
            maximum_size: 1 << 44,
            granularity: 1,
            latency: Duration::ZERO,
            is_idempotent: true,
            machine: Machine::Untouched,
        }
    }
}
