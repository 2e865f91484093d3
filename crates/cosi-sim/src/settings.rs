//! The settings of a driver.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use driver_rpc::cosi::Protocol;

use crate::Fault;

/// The settings of a driver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The driver's name.
    pub name: String,
    /// The protocols that it supports, at least one. Buckets of `v1alpha1` have the first one.
    pub protocols: Vec<Protocol>,
    /// Whether an account has access to several buckets.
    pub multi_bucket: bool,
    /// How long each call takes. Its work is done at the end, even if the caller has given up.
    pub latency: Duration,
    /// How it breaks the contract.
    pub faults: BTreeSet<Fault>,
    /// A file that keeps buckets and accounts.
    pub state: Option<PathBuf>,
    /// Where ids and keys come from.
    pub seed: u64,
}

impl Default for Settings {
    /// A driver of S3 that keeps the contract.
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
