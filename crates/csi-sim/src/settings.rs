//! The settings of a driver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::Capability;

/// The settings of a driver. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The driver's name.
    pub name: String,
    /// What it can do. Calls without their capability answer `Unimplemented`.
    pub capabilities: BTreeSet<Capability>,
    /// Where volumes are, the preferred place first.
    pub pools: Vec<Pool>,
    /// The nodes; the node service is that of the first one.
    pub nodes: Vec<NodeSettings>,
    /// The keys of mutable parameters that it knows.
    pub mutable_parameters: BTreeSet<String>,
    /// The size of a volume of no size.
    pub default_size: i64,
    /// The smallest volume.
    pub minimum_size: i64,
    /// The largest volume.
    pub maximum_size: i64,
    /// Sizes are multiples of this.
    pub granularity: i64,
    /// How long each call takes. Its work is done at the end, even if the caller has given up.
    pub latency: Duration,
    /// Whether a repeated call finds what the first one did. Otherwise a name gets a second volume, and the deletion of a missing
    /// one fails.
    pub is_idempotent: bool,
    /// What calls do on this machine.
    pub machine: Machine,
}

/// What calls do on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Nothing.
    Untouched,
    /// Volumes are published as empty directories, or as empty files for block devices.
    TargetPaths,
    /// Volumes and snapshots have data below this directory, and are mounted where they are published.
    Data(PathBuf),
}

/// A place for volumes.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name, which volumes have in their context.
    pub name: String,
    /// From where it is accessible; from everywhere if this is empty.
    pub segments: BTreeMap<String, String>,
    /// How much there is.
    pub size: i64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub segments: BTreeMap<String, String>,
    /// How many volumes can be published there; 0 is no limit.
    pub max_volumes: i64,
}

impl Default for Settings {
    /// One node and one large pool, without topology.
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
