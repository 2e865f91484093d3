//! The settings of a driver.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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

/// A protocol of object stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// S3.
    S3,
    /// Azure Blob.
    Azure,
    /// Google Cloud Storage.
    Gcs,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::S3, Self::Azure, Self::Gcs];
}

impl Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S3 => "s3",
            Self::Azure => "azure",
            Self::Gcs => "gcs",
        })
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|protocol| protocol.to_string() == text);
        known.ok_or_else(|| format!("{text:?} is no protocol, only s3, azure and gcs are"))
    }
}
