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
    /// Socket of the driver: an absolute path or unix:///path
    #[arg(long, env = "COSI_ENDPOINT", default_value = "unix:///var/lib/cosi/cosi.sock")]
    pub endpoint: Address,

    /// Protocol versions to check; by default all that the driver serves
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    pub versions: Vec<Version>,

    /// Protocol of buckets and credentials; by default the first one that the driver supports, and s3 in v1alpha1
    #[arg(long, value_name = "PROTOCOL")]
    pub protocol: Option<Protocol>,

    /// Parameter of buckets, as in a BucketClass
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub bucket_parameters: Vec<(String, String)>,

    /// Parameters that conflict with --bucket-parameters; without them, create/other-parameters is skipped
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub other_bucket_parameters: Vec<(String, String)>,

    /// Parameter of access, as in a BucketAccessClass
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub access_parameters: Vec<(String, String)>,

    /// Parameters that conflict with --access-parameters; without them, grant/other-parameters is skipped
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub other_access_parameters: Vec<(String, String)>,

    /// Run only checks whose names match, such as v1alpha2/grant/
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<Regex>,

    /// Skip checks whose names match
    #[arg(long, value_name = "REGEX")]
    pub skip: Option<Regex>,

    /// Shell command that restarts the driver and exits; without it, restart checks are skipped
    #[arg(long, value_name = "COMMAND")]
    pub restart_command: Option<String>,

    /// Number of concurrent calls in concurrency checks
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub concurrency: usize,

    /// Timeout of a call in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    pub timeout: Duration,

    /// Time in seconds for which a call is retried like by a sidecar
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    pub patience: Duration,
}

/// Parameters of a class.
pub type Parameters = BTreeMap<String, String>;

impl Options {
    /// Returns whether a check runs.
    pub fn wants(&self, check: &Check, version: Version) -> bool {
        let name = format!("{version}/{}", check.name);
        let is_in = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.is_match(&name));
        is_in(&self.focus).unwrap_or(true) && !is_in(&self.skip).unwrap_or(false)
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let parsed = text.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    parsed.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
