//! Options of every provisioner, as command-line arguments with environment variables.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::Uri;
use provisioner_runtime::Limits;
use provisioner_runtime::journal::JournalKind;
use provisioner_runtime::lease::lease_name;
use provisioner_runtime::logs::{self, LogFormat};

use crate::address::parse_address;
use crate::duration::{expected, parse_duration};

// Headings in `--help`. The provisioner's own options come first, without a heading.
const KUBERNETES: &str = "Kubernetes";
const CALLS: &str = "Calls and retries";
const HEALTH: &str = "Health and logs";
const REPLICAS: &str = "Replicas";
#[cfg(feature = "cosi")]
const COSI: &str = "COSI";

/// Options of the controller. Flatten them into your own arguments, or set the fields:
///
/// ```
/// use kube_provisioner::Options;
///
/// let mut options = Options::new("example.com/nfs");
/// options.api_concurrency = 50;
/// ```
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Name in the `provisioner` field of StorageClasses, such as example.com/nfs
    #[arg(long, env, value_name = "NAME", value_parser = provisioner_name)]
    pub provisioner_name: String,

    /// Additional names that this provisioner serves, separated by commas
    #[arg(long, env, value_name = "NAMES", value_delimiter = ',', value_parser = provisioner_name)]
    pub additional_provisioner_names: Vec<String>,

    /// Kubeconfig file [default: $KUBECONFIG, the pod's service account, or ~/.kube/config]
    #[arg(long, help_heading = KUBERNETES, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The address of the API server, which overrides the kubeconfig's: `--master` of Go programs. Without
    /// [`kubeconfig`](Self::kubeconfig), the client uses no credentials.
    #[arg(skip)]
    pub api_server: Option<Uri>,

    /// Namespace of the provisioner's Leases and journal [default: the pod's or the kubeconfig's]
    #[arg(long, help_heading = KUBERNETES, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Node that this replica runs on; --coordination per-node needs it
    #[arg(long, help_heading = REPLICAS, env, value_name = "NODE")]
    pub node_name: Option<String>,

    /// Maximum concurrent requests to the API server for claims and volumes
    #[arg(long, help_heading = CALLS, env, alias = "workers", value_name = "COUNT", default_value_t = 32, value_parser = at_least_one)]
    pub api_concurrency: usize,

    /// Maximum concurrent backend calls, counted separately for deletion; 0 means 160, and at least 1 per class
    #[arg(long, help_heading = CALLS, env, alias = "backend-concurrency", value_name = "COUNT", default_value_t = 0)]
    pub max_concurrent_calls: usize,

    /// Maximum concurrent backend calls per class, counted likewise; 0 means a fair share, at most 80 %
    #[arg(long, help_heading = CALLS, env, value_name = "COUNT", default_value_t = 0)]
    pub class_concurrency: usize,

    /// Timeout of each call that creates storage or credentials, such as 30s or 5m
    #[arg(long, help_heading = CALLS, env, value_name = "TIME", default_value = "2m", value_parser = parse_time_limit)]
    pub provision_timeout: Duration,

    /// Timeout of each call that deletes or expands storage, such as 30s or 5m
    #[arg(long, help_heading = CALLS, env, value_name = "TIME", default_value = "5m", value_parser = parse_time_limit)]
    pub delete_timeout: Duration,

    /// Delay after the first failed attempt
    #[arg(long, help_heading = CALLS, env, value_name = "TIME", default_value = "1s", value_parser = parse_time_limit)]
    pub retry_interval_start: Duration,

    /// Longest delay between attempts
    #[arg(long, help_heading = CALLS, env, value_name = "TIME", default_value = "5m", value_parser = parse_time_limit)]
    pub retry_interval_max: Duration,

    /// Double the delay after each failed attempt; false keeps it at --retry-interval-start
    #[arg(long, help_heading = CALLS, env, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub exponential_backoff: bool,

    /// Retries before a failing claim waits for a change of the claim or its class; 0 means no limit
    #[arg(long, help_heading = CALLS, env, value_name = "COUNT", default_value_t = 0)]
    pub failed_provision_threshold: u32,

    /// Retries before a failing deletion waits for a change of the volume; 0 means no limit
    #[arg(long, help_heading = CALLS, env, value_name = "COUNT", default_value_t = 0)]
    pub failed_delete_threshold: u32,

    /// Interval at which the provisioner checks all unfinished work again
    #[arg(long, help_heading = CALLS, env, value_name = "TIME", default_value = "15m", value_parser = parse_time_limit)]
    pub resync_period: Duration,

    /// On each resync, retry claims and volumes that reached their retry limit, as the Go library does
    #[arg(long, help_heading = CALLS, env, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub retry_on_resync: bool,

    /// Listen address for /livez, /readyz and /metrics, such as 0.0.0.0:8080 [default: none]
    #[arg(long, help_heading = HEALTH, env, aliases = ["admin-address", "metrics-address"], value_name = "ADDRESS", value_parser = parse_address)]
    pub http_endpoint: Option<SocketAddr>,

    /// Format of log lines; RUST_LOG sets their level
    #[arg(long, help_heading = HEALTH, env, value_name = "FORMAT", value_enum, default_value_t = LogStyle::Text)]
    pub log_format: LogStyle,

    /// Mode in which replicas share the work
    #[arg(long, help_heading = REPLICAS, env, value_name = "MODE", value_enum, default_value_t = Coordination::Lease)]
    pub coordination: Coordination,

    /// Number of shards, each with its own Lease; up to that many replicas work in parallel
    #[arg(long, help_heading = REPLICAS, env, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub shards: u32,

    /// Time after which another replica may take a Lease that its holder did not renew
    #[arg(long, help_heading = REPLICAS, env, value_name = "TIME", default_value = "15s", value_parser = parse_time_limit)]
    pub lease_duration: Duration,

    /// Time after which a replica that cannot renew its Lease stops its work
    #[arg(long, help_heading = REPLICAS, env, value_name = "TIME", default_value = "10s", value_parser = parse_time_limit)]
    pub lease_renew_deadline: Duration,

    /// Interval between attempts to acquire or renew a Lease
    #[arg(long, help_heading = REPLICAS, env, value_name = "TIME", default_value = "2s", value_parser = parse_time_limit)]
    pub lease_retry_period: Duration,

    /// The name of the Lease, if it is not derived from the provisioner's name.
    #[arg(skip)]
    pub lease_name: Option<String>,

    /// Additional labels of the Lease.
    #[arg(skip)]
    pub lease_labels: BTreeMap<String, String>,

    /// Limits the controller to the permissions of external-provisioner: it keeps its journal in a Lease, or in memory
    /// if the account may not write Leases, writes events to `v1`, and can work without the cluster's ID.
    #[arg(skip)]
    pub sidecar_rbac: bool,

    /// The topology segments of the node, for [`Coordination::PerNode`] with a CSI driver: the replica deletes the
    /// volumes whose `nodeAffinity` matches its node, including volumes that another replica created. Without segments,
    /// it deletes the volumes that carry the node's name.
    #[arg(skip)]
    pub node_segments: Option<BTreeMap<String, String>>,

    /// The delays, with [`Coordination::PerNode`], before a replica takes a claim that does not wait for a pod and that
    /// its node [has room](crate::Hooks::has_room) for. Without delays, such claims are refused; with
    /// [`node_segments`](Self::node_segments), they wait until another program selects a node.
    #[arg(skip)]
    pub bid_delays: Option<BidDelays>,

    /// The prefix of the names of new volumes, before a hyphen and the claim's uid.
    #[arg(skip = String::from("pvc"))]
    pub volume_name_prefix: String,

    /// The number of characters of the claim's uid, without hyphens, in the names of new volumes: 1 to 32. The default
    /// is the whole uid, which [`Coordination::PerNode`] requires. If two claims map to the same volume name, one of
    /// them waits until the other claim and its volume are deleted.
    #[arg(skip)]
    pub volume_name_uid_length: Option<usize>,

    /// Name of this installation; it ignores volumes of other installations [default: namespace, or node if each node
    /// has a replica]
    #[arg(long, help_heading = KUBERNETES, env, value_name = "NAME", value_parser = identity)]
    pub identity: Option<String>,

    /// Cluster ID; the provisioner ignores volumes and buckets with another one [default: the uid of kube-system]
    #[arg(long, help_heading = KUBERNETES, env, value_name = "ID", value_parser = identity)]
    pub cluster_id: Option<String>,

    /// Time limit for unfinished calls during shutdown
    #[arg(long, help_heading = REPLICAS, env, alias = "grace-period", value_name = "TIME", default_value = "20s", value_parser = parse_time_limit)]
    pub shutdown_timeout: Duration,

    /// Add a finalizer to new PersistentVolumes, so that deleting one manually does not leak storage
    #[arg(long, help_heading = KUBERNETES, env, alias = "volume-finalizer", value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub add_finalizer: bool,
}

impl Options {
    /// The defaults for a provisioner's name.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self {
            provisioner_name: provisioner_name.into(),
            additional_provisioner_names: Vec::new(),
            kubeconfig: None,
            api_server: None,
            namespace: None,
            node_name: None,
            api_concurrency: 32,
            max_concurrent_calls: 0,
            class_concurrency: 0,
            provision_timeout: Duration::from_secs(120),
            delete_timeout: Duration::from_secs(300),
            retry_interval_start: Duration::from_secs(1),
            retry_interval_max: Duration::from_secs(300),
            exponential_backoff: true,
            failed_provision_threshold: 0,
            failed_delete_threshold: 0,
            resync_period: Duration::from_secs(15 * 60),
            retry_on_resync: false,
            http_endpoint: None,
            log_format: LogStyle::Text,
            coordination: Coordination::Lease,
            shards: 1,
            lease_duration: Duration::from_secs(15),
            lease_renew_deadline: Duration::from_secs(10),
            lease_retry_period: Duration::from_secs(2),
            lease_name: None,
            lease_labels: BTreeMap::new(),
            sidecar_rbac: false,
            node_segments: None,
            bid_delays: None,
            volume_name_prefix: "pvc".to_owned(),
            volume_name_uid_length: None,
            identity: None,
            cluster_id: None,
            shutdown_timeout: Duration::from_secs(20),
            add_finalizer: true,
        }
    }

    /// Returns true if the provisioner serves this name.
    pub fn serves(&self, name: &str) -> bool {
        self.provisioner_name == name || self.additional_provisioner_names.iter().any(|other| other == name)
    }

    /// Returns the name of the Lease, or the common prefix of the Lease names if there are several shards.
    pub(crate) fn lease_name(&self) -> String {
        self.lease_name.clone().unwrap_or_else(|| lease_name(&self.provisioner_name))
    }

    /// Returns the kind of journal that the options select. The account may lack the permissions for it.
    pub(crate) fn journal_kind(&self) -> JournalKind {
        if self.sidecar_rbac { JournalKind::Lease } else { JournalKind::ConfigMap }
    }

    /// Returns the limits of concurrent calls of the author's code. A call that only waits costs a few kilobytes. The
    /// default lets one namespace of one class run 102 calls, as many as external-provisioner allows.
    pub(crate) fn call_limits(&self) -> Limits {
        let given = self.max_concurrent_calls;
        // A given number is the exact bound.
        Limits { total: if given == 0 { 160 } else { given }, per_group: self.class_concurrency, one_each: given == 0 }
    }

    /// Starts the process's log early, for programs that log before their controller runs and starts it.
    pub fn start_log(&self) {
        logs::init(match self.log_format {
            LogStyle::Text => LogFormat::Text,
            LogStyle::Json => LogFormat::Json,
        });
    }
}

/// Options of the bucket controller. Flatten them into your own arguments, or set the fields:
///
/// ```
/// use kube_provisioner::BucketOptions;
///
/// let mut options = BucketOptions::new("example.com/bucket");
/// options.allowed_additional_config = Some(vec!["maxObjects".to_owned()]);
/// ```
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct BucketOptions {
    /// The options of every controller.
    #[command(flatten)]
    pub options: Options,

    /// Keys of `additionalConfig` that claims may use, separated by commas [default: all that the provisioner supports]
    #[arg(long, env, value_name = "KEYS", value_delimiter = ',')]
    pub allowed_additional_config: Option<Vec<String>>,

    /// Socket for a COSI sidecar, such as unix:///var/lib/cosi/cosi.sock; makes the program a COSI driver that ignores
    /// ObjectBucketClaims
    #[cfg(feature = "cosi")]
    #[arg(long, help_heading = COSI, env, value_name = "ADDRESS")]
    pub cosi_endpoint: Option<driver_rpc::Address>,

    /// Reconcile COSI's Buckets and BucketAccesses (v1alpha2, not released yet) without a sidecar, instead of
    /// ObjectBucketClaims
    #[cfg(feature = "cosi")]
    #[arg(long, help_heading = COSI, env, conflicts_with = "cosi_endpoint")]
    pub cosi_controller: bool,

    /// Name of the COSI driver [default: derived from the provisioner's name: example.com/s3 gives s3.example.com]
    #[cfg(feature = "cosi")]
    #[arg(long, help_heading = COSI, env, value_name = "NAME", value_parser = crate::cosi::driver_name)]
    pub cosi_driver_name: Option<String>,
}

impl BucketOptions {
    /// The defaults for a provisioner's name.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self {
            options: Options::new(provisioner_name),
            allowed_additional_config: None,
            #[cfg(feature = "cosi")]
            cosi_endpoint: None,
            #[cfg(feature = "cosi")]
            cosi_controller: false,
            #[cfg(feature = "cosi")]
            cosi_driver_name: None,
        }
    }
}

/// The mode in which replicas of a provisioner share the work. See `docs/book/pages/how/crash-safety.md`.
///
/// ```
/// use kube_provisioner::{Coordination, Options};
///
/// let mut options = Options::new("example.com/directories");
/// options.coordination = Coordination::PerNode;
/// options.node_name = Some("node-1".to_owned());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum Coordination {
    /// Leader election: the holder of a shard's Lease does its work.
    #[default]
    Lease,
    /// One replica on each node reconciles the claims and volumes of that node
    PerNode,
    /// A single replica; if another one starts, it takes over and the first exits
    None,
}

/// The delays before a node's replica takes a claim that does not wait for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BidDelays {
    /// The longest delay before the first attempt to take a claim. It doubles with each further attempt.
    pub base: Duration,
    /// The upper limit of all delays.
    pub max: Duration,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum LogStyle {
    /// One line of text for each message.
    #[default]
    Text,
    /// One JSON object for each message.
    Json,
}

/// The defaults of the Go library, for `--preset go-compat`. Explicit arguments take precedence.
pub(crate) const GO_COMPAT: [(&str, &str); 10] = [
    ("api_concurrency", "4"),
    ("max_concurrent_calls", "4"),
    // The Go library has no limit.
    ("provision_timeout", "366d"),
    ("delete_timeout", "366d"),
    ("retry_interval_start", "15s"),
    ("retry_interval_max", "1000s"),
    ("failed_provision_threshold", "15"),
    ("failed_delete_threshold", "15"),
    ("retry_on_resync", "true"),
    ("add_finalizer", "false"),
];

/// Parses a provisioner name by the API server's rule for `StorageClass.provisioner`: a qualified name. Rejects the
/// prefix `kubernetes.io/`.
pub(crate) fn provisioner_name(text: &str) -> Result<String, String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str, others: &[u8], most: usize| {
        let bytes = part.as_bytes();
        let ends = bytes.first().zip(bytes.last()).is_some_and(|(first, last)| letter(*first) && letter(*last));
        ends && bytes.len() <= most && bytes.iter().all(|byte| letter(*byte) || others.contains(byte))
    };
    let domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(|label| part(label, b"-", 63));
    if prefix.is_some_and(|prefix| !domain(prefix)) || !part(name, b"-_.", 63) {
        return Err(
            "expected DOMAIN/NAME in lower case letters, digits, `-` and `.`, such as example.com/nfs".to_owned()
        );
    }
    if prefix == Some("kubernetes.io") {
        return Err("names below kubernetes.io/ belong to Kubernetes itself; use a domain of your own".to_owned());
    }
    Ok(text.to_owned())
}

fn identity(text: &str) -> Result<String, String> {
    let visible = |letter: char| letter.is_ascii_graphic();
    if text.is_empty() || text.len() > 253 || !text.chars().all(visible) {
        return Err("expected 1 to 253 visible ASCII characters".to_owned());
    }
    Ok(text.to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// The longest pause or limit. Adding it to a timestamp does not overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a pause or a time limit: a duration as in [`parse_duration`] that is longer than zero and at most a year.
///
/// # Errors
/// If the text is not such a duration.
pub fn parse_time_limit(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time.is_zero() || time > LONGEST { Err(expected(text)) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser, Debug)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn new_and_parsed_options_have_the_same_defaults() {
        let program = <Program as clap::Parser>::parse_from(["p", "--provisioner-name", "example.com/p"]);
        let (mut parsed, by_hand) = (program.options, Options::new("example.com/p"));
        (parsed.namespace, parsed.node_name, parsed.identity, parsed.cluster_id) = (None, None, None, None);
        assert_eq!(format!("{parsed:?}"), format!("{by_hand:?}"));
    }

    #[test]
    fn provisioner_names_follow_the_api_servers_rule() {
        for good in ["example.com/nfs", "nfs", "a.b-c.d/x_y.z-1"] {
            assert!(provisioner_name(good).is_ok(), "{good}");
        }
        let long = format!("example.com/{}", "x".repeat(64));
        for bad in ["", "/", "a/", "/b", "a/b/c", "A/b", "a b", "kubernetes.io/nfs", "-a/b", "a../b", "a/b-", &long] {
            assert!(provisioner_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_limits_are_positive_and_at_most_a_year() {
        assert_eq!(parse_time_limit("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_time_limit("366d"), Ok(LONGEST));
        for bad in ["0s", "367d", "999999h", "5"] {
            assert!(parse_time_limit(bad).is_err(), "{bad}");
        }
    }
}
