//! The options that every provisioner has, as command line arguments with environment variables.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Options of the controller, to be flattened into an author's own arguments, or filled in by hand:
///
/// ```
/// use kube_provisioner::Options;
///
/// let mut options = Options::new("example.com/nfs");
/// options.workers = 50;
/// ```
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Name that StorageClasses use in `provisioner`, such as example.com/nfs
    #[arg(long, env, value_name = "NAME", value_parser = provisioner_name)]
    pub provisioner_name: String,

    /// Further names that this provisioner answers to, separated by commas
    #[arg(long, env, value_name = "NAMES", value_delimiter = ',', value_parser = provisioner_name)]
    pub additional_provisioner_names: Vec<String>,

    /// Kubeconfig file [default: $KUBECONFIG, the pod's service account, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the provisioner itself [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Node that this instance runs on
    #[arg(long, env, value_name = "NODE")]
    pub node_name: Option<String>,

    /// Requests to the API server at a time for claims and volumes
    #[arg(long, env, value_name = "COUNT", default_value_t = 32, value_parser = at_least_one)]
    pub workers: usize,

    /// Calls of the provisioner's own code at a time, of which a class takes four fifths of what others leave free; 0 is 100,
    /// and one for each class that has none
    #[arg(long, env, value_name = "COUNT", default_value_t = 0)]
    pub backend_concurrency: usize,

    /// Calls of the provisioner's own code at a time for one class; 0 is as many as its share
    #[arg(long, env, value_name = "COUNT", default_value_t = 0)]
    pub class_concurrency: usize,

    /// Time limit of one call of `provision`, such as 30s or 5m
    #[arg(long, env, value_name = "TIME", default_value = "2m", value_parser = duration)]
    pub provision_timeout: Duration,

    /// Time limit of one call of `delete`
    #[arg(long, env, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub delete_timeout: Duration,

    /// Pause after the first failed attempt
    #[arg(long, env, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub retry_interval_start: Duration,

    /// Longest pause between attempts
    #[arg(long, env, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub retry_interval_max: Duration,

    /// Double the pause after every failed attempt; if false it is always --retry-interval-start
    #[arg(long, env, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub exponential_backoff: bool,

    /// Attempts after the first before a claim waits for a change; 0 tries for ever
    #[arg(long, env, value_name = "COUNT", default_value_t = 0)]
    pub failed_provision_threshold: u32,

    /// Attempts after the first before a volume waits for a change; 0 tries for ever
    #[arg(long, env, value_name = "COUNT", default_value_t = 0)]
    pub failed_delete_threshold: u32,

    /// Time between looks at everything that needs work, as a safety net
    #[arg(long, env, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub resync_period: Duration,

    /// Try what was given up once more with every resync, as the Go library does
    #[arg(long, env, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub retry_on_resync: bool,

    /// Address for /livez, /readyz and /metrics, such as 0.0.0.0:8080 [default: not served]
    #[arg(long, env, value_name = "ADDRESS")]
    pub admin_address: Option<SocketAddr>,

    /// How log lines look; RUST_LOG chooses what is logged
    #[arg(long, env, value_name = "FORMAT", value_enum, default_value_t = LogStyle::Text)]
    pub log_format: LogStyle,

    /// How several replicas share the work
    #[arg(long, env, value_name = "MODE", value_enum, default_value_t = Coordination::Lease)]
    pub coordination: Coordination,

    /// Parts of the work, each held by one replica at a time; more than 1 lets replicas work side by side
    #[arg(long, env, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub shards: u32,

    /// How long a Lease that is not renewed belongs to its holder
    #[arg(long, env, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub lease_duration: Duration,

    /// How long after the last renewal of its Lease a replica stops working
    #[arg(long, env, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub lease_renew_deadline: Duration,

    /// Time between renewals of a Lease, and between attempts to get one
    #[arg(long, env, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub lease_retry_period: Duration,

    /// Name of this installation, written on its volumes; volumes of others are left alone [default: the namespace]
    #[arg(long, env, value_name = "NAME", value_parser = identity)]
    pub identity: Option<String>,

    /// How long work in flight may take to end when the provisioner is told to stop
    #[arg(long, env, value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub grace_period: Duration,

    /// Protect new volumes by a finalizer, so that deleting one by hand cannot leave its data behind
    #[arg(long, env, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub volume_finalizer: bool,
}

impl Options {
    /// The defaults for a provisioner's name.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self {
            provisioner_name: provisioner_name.into(),
            additional_provisioner_names: Vec::new(),
            kubeconfig: None,
            namespace: None,
            node_name: None,
            workers: 32,
            backend_concurrency: 0,
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
            admin_address: None,
            log_format: LogStyle::Text,
            coordination: Coordination::Lease,
            shards: 1,
            lease_duration: Duration::from_secs(15),
            lease_renew_deadline: Duration::from_secs(10),
            lease_retry_period: Duration::from_secs(2),
            identity: None,
            grace_period: Duration::from_secs(20),
            volume_finalizer: true,
        }
    }
}

/// Options of the controller of buckets, to be flattened into an author's own arguments, or filled in by hand:
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
    /// Those of every controller.
    #[command(flatten)]
    pub options: Options,

    /// Keys of `additionalConfig` that claims may use, separated by commas [default: all that the provisioner knows]
    #[arg(long, env, value_name = "KEYS", value_delimiter = ',')]
    pub allowed_additional_config: Option<Vec<String>>,
}

impl BucketOptions {
    /// The defaults for a provisioner's name.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self { options: Options::new(provisioner_name), allowed_additional_config: None }
    }
}

/// How several replicas of a provisioner share the work. See `docs/reliability.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Coordination {
    /// A Lease for each shard; who holds it works.
    #[default]
    Lease,
    /// Every replica works, one at a time for each claim: the lock of the first provisioner library
    PerClaim,
    /// Every node has a replica of its own, which serves the claims of that node
    PerNode,
    /// There is one replica at a time; a second one ends the first
    None,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The defaults of the Go library, for `--preset go-compat`. Given arguments win.
pub(crate) const GO_COMPAT: [(&str, &str); 8] = [
    ("workers", "4"),
    ("backend_concurrency", "4"),
    ("retry_interval_start", "15s"),
    ("retry_interval_max", "1000s"),
    ("failed_provision_threshold", "15"),
    ("failed_delete_threshold", "15"),
    ("retry_on_resync", "true"),
    ("volume_finalizer", "false"),
];

/// The rule of the API server for `StorageClass.provisioner`: a qualified name, here without `kubernetes.io/`.
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

/// A time with its unit: `500ms`, `30s`, `5m`, `2h`, or several of them.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time with its unit, such as 500ms, 30s, 5m or 1h30m, not {text:?}");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(expected)?;
        let count: u64 = rest[..digits].parse().map_err(|_| expected())?;
        rest = &rest[digits..];
        let unit_end = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let millis = match &rest[..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(expected()),
        };
        let step = count.checked_mul(millis).map(Duration::from_millis).ok_or_else(expected)?;
        total = total.checked_add(step).ok_or_else(expected)?;
        rest = &rest[unit_end..];
    }
    // A year is more than any pause or limit needs, and clocks can add it.
    if total.is_zero() || total > Duration::from_secs(366 * 24 * 3600) {
        return Err(expected());
    }
    Ok(total)
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
    fn the_defaults_by_hand_and_by_arguments_are_the_same() {
        let program = <Program as clap::Parser>::parse_from(["p", "--provisioner-name", "example.com/p"]);
        let (mut parsed, by_hand) = (program.options, Options::new("example.com/p"));
        (parsed.namespace, parsed.node_name, parsed.identity) = (None, None, None);
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
    fn times_need_a_unit() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "5", "0s", "-1s", "1.5s", "1x", "s", "99999999999999999999s", "999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
