//! The options of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Parser;
use driver_rpc::Address;
use regex::Regex;

use crate::{Check, Protocol, Version};

/// The options of a run, as flags.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// The driver's socket: an absolute path or unix:///path
    #[arg(long, env = "COSI_ENDPOINT", default_value = "unix:///var/lib/cosi/cosi.sock")]
    pub endpoint: Address,

    /// The versions of the protocol; by default those that the driver serves
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    pub versions: Vec<Version>,

    /// The protocol of buckets and credentials; by default the first one that the driver supports, and s3 in v1alpha1
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Option<Protocol>,

    /// A parameter of buckets, as in a BucketClass
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub bucket_parameters: Vec<(String, String)>,

    /// Parameters that a bucket cannot have at the same time; without them, create/other-parameters is skipped
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub other_bucket_parameters: Vec<(String, String)>,

    /// A parameter of access, as in a BucketAccessClass
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub access_parameters: Vec<(String, String)>,

    /// Parameters that access cannot have at the same time; without them, grant/other-parameters is skipped
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub other_access_parameters: Vec<(String, String)>,

    /// Run only the checks whose names match, such as v1alpha2/grant/
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<Regex>,

    /// Leave out the checks whose names match
    #[arg(long, value_name = "REGEX")]
    pub skip: Option<Regex>,

    /// A shell command that restarts the driver and ends; without it, the checks of restarts are skipped
    #[arg(long, value_name = "COMMAND")]
    pub restart_command: Option<String>,

    /// How many calls run at a time in the checks of concurrent calls
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub concurrency: usize,

    /// How long a call may take, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub timeout: Duration,

    /// How long a call is repeated that a sidecar would repeat, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub patience: Duration,
}

/// Parameters of a class.
pub type Parameters = BTreeMap<String, String>;

impl Options {
    /// Whether a check runs.
    pub fn wants(&self, check: &Check, version: Version) -> bool {
        let name = format!("{version}/{}", check.name);
        let is_in = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.is_match(&name));
        is_in(&self.focus).unwrap_or(true) && !is_in(&self.skip).unwrap_or(false)
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let parsed = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    parsed.ok_or_else(|| format!("{text:?} is no KEY=VALUE"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
