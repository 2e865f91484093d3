//! The settings of a driver.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use driver_rpc::cosi::Protocol;

use crate::Fault;

/// The settings of a driver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the driver.
    pub name: String,
    /// Supported protocols, at least one. Buckets of `v1alpha1` use the first one.
    pub protocols: Vec<Protocol>,
    /// True if an account can have access to several buckets.
    pub multi_bucket: bool,
    /// Duration of each call. The work is done at its end, even if the caller has cancelled the call.
    pub latency: Duration,
    /// Injected faults.
    pub faults: BTreeSet<Fault>,
    /// File that stores buckets and accounts.
    pub state: Option<PathBuf>,
    /// Seed of IDs and keys.
    pub seed: u64,
}

impl Default for Settings {
    /// Returns the settings of an S3 driver without faults.
    fn default() -> Self {
        Self {
            name: "cosi-sim.example.com".to_owned(),
            protocols: vec![Protocol::S3],
            multi_bucket: true,
            latency: Duration::ZERO,
            faults: BTreeSet::new(),
            state: None,
            seed: 0,
        }
    }
}
