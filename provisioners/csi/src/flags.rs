//! The command line of external-provisioner v6.4.0, so that charts can keep their arguments.

#[cfg(test)]
mod charts;
mod features;
mod ignored;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{ArgAction, Parser};
use http::Uri;
use kube_provisioner::{BidDelays, Coordination, LogStyle, Options, parse_address, parse_duration};

pub(crate) use self::features::Features;
use self::ignored::Ignored;
use csi_provisioner::{CapacitySettings, DriverInfo, OwnNode, Settings};

/// Provisions volumes for the CSI driver behind a socket, instead of external-provisioner
#[derive(Clone, Debug, Parser)]
#[command(name = "csi-provisioner", version, args_override_self = true)]
pub(crate) struct Flags {
    /// The driver's socket
    #[arg(long, value_name = "ADDRESS", default_value = "/run/csi/socket")]
    pub(crate) csi_address: driver_rpc::Address,

    /// Timeout of each call to the driver
    #[arg(long, help_heading = "Calls and retries", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) timeout: Duration,

    /// File system for classes that do not specify one [default: the driver's choice]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    default_fstype: String,

    /// Send the names of the claim and the volume to the driver
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    extra_create_metadata: bool,

    /// Publish volumes read-only if ReadOnlyMany is their claim's only access mode
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    controller_publish_readonly: bool,

    /// Refuse claims whose volume mode differs from their snapshot's, unless the snapshot allows it
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set)]
    prevent_volume_mode_conversion: bool,

    /// For claims that wait for a pod, send the driver only the topology of the selected node, instead of all nodes'
    /// topology
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    strict_topology: bool,

    /// For claims that do not wait for a pod, send the driver the topology of all nodes; false: the driver chooses
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set)]
    immediate_topology: bool,

    /// Send the driver the whole topology of the nodes that a class's allowedTopologies match, instead of only the
    /// labels in them
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    filter_allowed_topologies: bool,

    /// Prefix of volume names, followed by a hyphen and the claim's uid
    #[arg(long, value_name = "TEXT", default_value = "pvc", value_parser = NonEmptyStringValueParser::new())]
    volume_name_prefix: String,

    /// Number of characters of the claim's uid in volume names, 1 to 32 without hyphens; -1: the whole uid
    #[arg(long, value_name = "COUNT", default_value = "-1", allow_negative_numbers = true, value_parser = uuid_length)]
    volume_name_uuid_length: UuidLength,

    /// Delay after the first failed attempt
    #[arg(long, help_heading = "Calls and retries", value_name = "TIME", default_value = "1s", value_parser = time)]
    retry_interval_start: Duration,

    /// Longest delay between attempts
    #[arg(long, help_heading = "Calls and retries", value_name = "TIME", default_value = "5m", value_parser = time)]
    retry_interval_max: Duration,

    /// Maximum concurrent calls to the driver, counted separately for deletion; 0 means 160
    #[arg(long, help_heading = "Calls and retries", value_name = "COUNT", default_value_t = 0)]
    worker_threads: usize,

    /// Kubeconfig file, unless $KUBECONFIG is set [default: the pod's service account]
    #[arg(long, help_heading = "Kubernetes", value_name = "FILE", default_value = "", hide_default_value = true)]
    kubeconfig: OsString,

    /// Address of the API server, such as https://10.0.0.1:6443 [default: the kubeconfig's]
    #[arg(long, help_heading = "Kubernetes", value_name = "URL", default_value = "", hide_default_value = true, value_parser = server)]
    master: Server,

    /// Elect a leader, so that only one of several replicas works at a time
    #[arg(long, alias = "enable-leader-election", help_heading = "Replicas", value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    leader_election: bool,

    /// Namespace of the Lease and of the journal [default: $POD_NAMESPACE, or the service account's]
    #[arg(long, help_heading = "Replicas", value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    leader_election_namespace: String,

    /// Labels of the Lease, such as team:storage,tier:csi
    #[arg(long, help_heading = "Replicas", value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    leader_election_labels: Vec<(String, String)>,

    /// Time after which another replica may acquire a Lease that its holder did not renew
    #[arg(long, help_heading = "Replicas", value_name = "TIME", default_value = "15s", value_parser = time)]
    leader_election_lease_duration: Duration,

    /// Time after which a replica that cannot renew its Lease stops working
    #[arg(long, help_heading = "Replicas", value_name = "TIME", default_value = "10s", value_parser = time)]
    leader_election_renew_deadline: Duration,

    /// Interval between attempts to acquire or renew the Lease
    #[arg(long, help_heading = "Replicas", value_name = "TIME", default_value = "5s", value_parser = time)]
    leader_election_retry_period: Duration,

    /// Provision only for the node named by $NODE_NAME, where the driver behind the socket runs; each node has a
    /// replica
    #[arg(long, help_heading = "Replicas", value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    node_deployment: bool,

    /// With --node-deployment, let a node with enough space take claims that do not wait for a pod
    #[arg(long, help_heading = "Replicas", value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = ArgAction::Set)]
    node_deployment_immediate_binding: bool,

    /// With --node-deployment, longest random delay before a node takes such a claim; it doubles after each failed
    /// attempt
    #[arg(long, help_heading = "Replicas", value_name = "TIME", default_value = "20s", value_parser = time)]
    node_deployment_base_delay: Duration,

    /// Upper limit of --node-deployment-base-delay after failed attempts
    #[arg(long, help_heading = "Replicas", value_name = "TIME", default_value = "60s", value_parser = time)]
    node_deployment_max_delay: Duration,

    /// Listen address for /livez, /readyz and /metrics, such as :8080 [default: none]
    #[arg(long, help_heading = "Health and logs", alias = "metrics-address", value_name = "ADDRESS", default_value = "", hide_default_value = true, value_parser = endpoint)]
    http_endpoint: Endpoint,

    /// Cluster ID; the provisioner ignores volumes with another cluster ID [default: the uid of kube-system]
    #[arg(long, help_heading = "Kubernetes", env, value_name = "ID")]
    cluster_id: Option<String>,

    /// Format of log lines; RUST_LOG sets their level
    #[arg(long, help_heading = "Health and logs", value_name = "FORMAT", value_enum, default_value_t = LogStyle::Text)]
    pub(crate) logging_format: LogStyle,

    #[command(flatten)]
    pub(crate) features: Features,

    /// Maximum concurrent GetCapacity calls
    #[arg(long, help_heading = "Storage capacity", value_name = "COUNT", default_value_t = 1)]
    capacity_threads: usize,

    /// Interval between GetCapacity calls for the same class and topology segment
    #[arg(long, help_heading = "Storage capacity", value_name = "TIME", default_value = "1m", value_parser = time)]
    capacity_poll_interval: Duration,

    /// Also publish the capacity of classes with immediate binding
    #[arg(long, help_heading = "Storage capacity", value_name = "BOOL", value_parser = BoolishValueParser::new(), num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = ArgAction::Set)]
    capacity_for_immediate_binding: bool,

    /// Owner of CSIStorageCapacity objects: 0: the pod $NAMESPACE/$POD_NAME, 1: the pod's controller, such as a
    /// DaemonSet, 2: the controller of the pod's controller, such as a Deployment; -1: none
    #[arg(
        long,
        help_heading = "Storage capacity",
        value_name = "LEVEL",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    capacity_ownerref_level: i32,

    #[command(flatten)]
    ignored: Ignored,
}

/// `None` means the address from the kubeconfig.
#[derive(Clone, Debug)]
struct Server(Option<Uri>);

/// `None` means that there is no server.
#[derive(Clone, Copy, Debug)]
struct Endpoint(Option<SocketAddr>);

/// `None` means the whole uid.
#[derive(Clone, Copy, Debug)]
struct UuidLength(Option<usize>);

impl Flags {
    /// Returns the settings of storage capacity. `variable` returns the value of an environment variable.
    fn capacity(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<CapacitySettings>, String> {
        if !self.features.has_capacity() {
            return Ok(None);
        }
        let needed = |name: &str, field: &str, what: &str| {
            let missing =
                format!("--enable-capacity needs {what} in the environment variable {name}; set it from {field}");
            variable(name).ok_or(missing)
        };
        let mut settings = CapacitySettings::new(needed("NAMESPACE", "metadata.namespace", "the pod's namespace")?);
        if let Ok(level) = u32::try_from(self.capacity_ownerref_level) {
            settings.owner = Some((needed("POD_NAME", "metadata.name", "the pod's name")?, level));
        }
        settings.threads = self.capacity_threads;
        settings.poll_interval = self.capacity_poll_interval;
        settings.for_immediate_binding = self.capacity_for_immediate_binding;
        settings.retry_interval_start = self.retry_interval_start;
        settings.retry_interval_max = self.retry_interval_max;
        Ok(Some(settings))
    }

    /// Returns the name of the only node to provision for, if any. `variable` is the value of `$NODE_NAME`.
    pub(crate) fn node_name(&self, variable: Option<String>) -> Result<Option<String>, &'static str> {
        if !self.node_deployment {
            return Ok(None);
        }
        if self.leader_election {
            return Err(
                "--node-deployment works without --leader-election, because the replicas of all nodes work at the same time",
            );
        }
        if !self.features.has_topology() {
            return Err(
                "--node-deployment needs the topology of the driver; remove Topology=false from --feature-gates",
            );
        }
        if self.volume_name_uuid_length.0.is_some() {
            return Err("--node-deployment needs whole uids in the names of volumes; remove --volume-name-uuid-length");
        }
        let name = variable.filter(|name| !name.is_empty());
        name.map(Some).ok_or("--node-deployment needs the node's name in the environment variable NODE_NAME; set it from the pod's field spec.nodeName")
    }

    /// Returns the flags that are set but have no effect.
    pub(crate) fn ignored(&self) -> Vec<String> {
        let gates = self.features.ignored_gates().map(|name| format!("--feature-gates={name}"));
        self.ignored.0.iter().map(|name| format!("--{name}")).chain(gates).collect()
    }

    /// Returns the settings of the provisioner, or the reason why the flags are invalid.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        let mut settings = Settings::default();
        settings.capacity = self.capacity(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
        settings.default_fs_type = Some(self.default_fstype.clone()).filter(|name| !name.is_empty());
        settings.extra_create_metadata = self.extra_create_metadata;
        settings.controller_publish_read_only = self.controller_publish_readonly;
        settings.prevent_volume_mode_conversion = self.prevent_volume_mode_conversion;
        settings.cross_namespace_data_sources = self.features.has_cross_namespace_data_sources();
        settings.topology = self.features.has_topology();
        settings.immediate_topology = self.immediate_topology;
        settings.strict_topology = self.strict_topology;
        settings.filter_allowed_topologies = self.filter_allowed_topologies;
        settings.retry_interval_max = self.retry_interval_max;
        Ok(settings)
    }

    /// Returns the controller's options for the driver with this name.
    pub(crate) fn options(&self, driver: &str) -> Options {
        let mut options = Options::new(driver);
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let kubeconfig = || Some(self.kubeconfig.clone()).filter(|path| !path.is_empty());
        options.kubeconfig = variable("KUBECONFIG").or_else(kubeconfig).map(PathBuf::from);
        options.api_server = self.master.0.clone();
        let namespace = Some(self.leader_election_namespace.clone()).filter(|name| !name.is_empty());
        options.namespace = namespace.or_else(|| variable("POD_NAMESPACE")?.into_string().ok());
        options.max_concurrent_calls = self.worker_threads;
        // The calls to the driver have their own timeouts. An attempt may need two calls, and also reads Secrets.
        (options.provision_timeout, options.delete_timeout) = (self.timeout * 3, self.timeout * 3);
        (options.retry_interval_start, options.retry_interval_max) =
            (self.retry_interval_start, self.retry_interval_max);
        options.http_endpoint = self.http_endpoint.0;
        options.cluster_id = self.cluster_id.clone().filter(|id| !id.is_empty());
        options.log_format = self.logging_format;
        options.coordination = if self.leader_election { Coordination::Lease } else { Coordination::None };
        options.sidecar_rbac = true;
        options.lease_name = Some(sanitized(driver));
        options.lease_labels = self.leader_election_labels.iter().cloned().collect();
        options.volume_name_prefix = self.volume_name_prefix.clone();
        options.volume_name_uid_length = self.volume_name_uuid_length.0;
        options.lease_duration = self.leader_election_lease_duration;
        options.lease_renew_deadline = self.leader_election_renew_deadline;
        options.lease_retry_period = self.leader_election_retry_period;
        options
    }

    /// Returns the controller's options for a driver that provisions only for this node.
    pub(crate) fn options_on(&self, node: &OwnNode, driver: &str) -> Options {
        let mut options = self.options(driver);
        options.coordination = Coordination::PerNode;
        options.node_name = Some(node.name().to_owned());
        options.node_segments = Some(node.segments().clone());
        let (base, max) = (self.node_deployment_base_delay, self.node_deployment_max_delay);
        options.bid_delays = self.node_deployment_immediate_binding.then_some(BidDelays { base, max });
        options
    }
}

/// Returns the identity in the attributes of volumes, in the same format as external-provisioner.
pub(crate) fn identity(driver: &DriverInfo, node: Option<&OwnNode>) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let node = node.map(|node| format!("-{}", node.name())).unwrap_or_default();
    format!("{}-{}-{}{node}", since.as_millis(), since.subsec_nanos() % 10_000, driver.name())
}

/// Returns the name of the sidecars' Lease: csi-lib-utils replaces dots.
fn sanitized(driver: &str) -> String {
    let text: String = driver.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    if text.ends_with('-') { format!("{text}X") } else { text }
}

fn time(text: &str) -> Result<Duration, String> {
    // Go writes zero without a unit.
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

fn uuid_length(text: &str) -> Result<UuidLength, String> {
    match text.parse() {
        Ok(-1) => Ok(UuidLength(None)),
        Ok(length @ 1..=32) => Ok(UuidLength(usize::try_from(length).ok())),
        Ok(_) | Err(_) => Err("expected -1 or a number from 1 to 32".to_owned()),
    }
}

fn server(text: &str) -> Result<Server, String> {
    let parsed = text.parse().ok().filter(|uri: &Uri| uri.scheme().is_some() && uri.authority().is_some());
    match parsed {
        _ if text.is_empty() => Ok(Server(None)),
        Some(uri) => Ok(Server(Some(uri))),
        None => Err(format!("expected an address such as https://10.0.0.1:6443, not {text:?}")),
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    if text.is_empty() { Ok(Endpoint(None)) } else { parse_address(text).map(|address| Endpoint(Some(address))) }
}

fn label(text: &str) -> Result<(String, String), String> {
    let label = text.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    label
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("expected a label such as team:storage, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(arguments: &[&str]) -> Flags {
        Flags::try_parse_from([&["csi-provisioner"], arguments].concat()).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn parses_the_arguments_of_a_chart() {
        let flags = flags(&[
            "-v=5",
            "--csi-address=/csi/csi.sock",
            "--timeout=2m30s",
            "--feature-gates=Topology=false,CrossNamespaceVolumeDataSource=true",
            "--extra-create-metadata",
            "--leader-election=true",
            "--leader-election-namespace=storage",
            "--leader-election-labels=team:storage,tier:csi",
            "--default-fstype=ext4",
            "--http-endpoint=:8080",
            "--kube-api-qps=100",
            "--strict-topology=true",
            "--snapshot-orphan-sweep-interval=0",
            "--enable-capacity=false",
        ]);
        let options = flags.options("rbd.csi.ceph.com");
        assert_eq!(options.namespace.as_deref(), Some("storage"));
        assert_eq!(options.lease_name.as_deref(), Some("rbd-csi-ceph-com"));
        assert_eq!(options.lease_labels.get("tier").map(String::as_str), Some("csi"));
        assert_eq!(options.coordination, Coordination::Lease);
        assert_eq!(options.http_endpoint, Some(([0, 0, 0, 0], 8080).into()));
        assert_eq!(flags.timeout, Duration::from_secs(150));
        let settings = flags.settings().unwrap();
        assert_eq!(settings.default_fs_type.as_deref(), Some("ext4"));
        assert!(settings.extra_create_metadata && settings.strict_topology && !settings.topology);
        assert!(settings.cross_namespace_data_sources && settings.capacity.is_none());
        let ignored = ["--kube-api-qps", "--snapshot-orphan-sweep-interval", "--v"];
        assert_eq!(flags.ignored(), ignored);
    }

    /// Go takes the last value, and charts append to the arguments of another chart.
    #[test]
    fn last_value_of_a_repeated_flag_wins() {
        let repeated = ["--timeout=90s", "--v=2", "--extra-create-metadata=false", "--http-endpoint=:1"];
        let last = ["--timeout=300s", "--v=5", "--extra-create-metadata", "--http-endpoint=localhost:8202"];
        let flags = flags(&[repeated, last].concat());
        assert_eq!(flags.timeout, Duration::from_secs(300));
        assert!(flags.extra_create_metadata);
        assert_eq!(flags.http_endpoint.0, Some(([127, 0, 0, 1], 8202).into()));
    }

    /// Go treats an empty value as unset, and templates of charts produce empty values.
    #[test]
    fn empty_values_mean_the_default() {
        let flags = flags(&["--http-endpoint=", "--kubeconfig=", "--master=", "--feature-gates=", "--cluster-id="]);
        assert!(flags.kubeconfig.is_empty() && flags.features.has_topology());
        let options = flags.options("d");
        assert_eq!((options.http_endpoint, options.api_server, options.cluster_id), (None, None, None));
    }

    /// Versions up to 1.6 had other flags for the election, and versions up to 5.1 the flags of klog.
    #[test]
    fn flags_of_older_versions_are_accepted() {
        let arguments = [
            "--provisioner=d",
            "--connection-timeout=15s",
            "--enable-leader-election",
            "--leader-election-type=leases",
            "--logtostderr",
            "--alsologtostderr=true",
            "--stderrthreshold=INFO",
            "--add_dir_header",
            "--vmodule=controller*=5",
            "--log_file=",
            "-v5",
        ];
        let flags = flags(&arguments);
        assert!(flags.leader_election);
        assert_eq!(flags.ignored().len(), arguments.len() - 1);
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert!(Flags::try_parse_from(["csi-provisioner", "--unknown"]).is_err());
    }

    #[test]
    fn capacity_requires_namespace_and_pod_name() {
        let in_pod = |name: &str| ["NAMESPACE", "POD_NAME"].contains(&name).then(|| name.to_lowercase());
        let settings = |arguments: &[&str], variable: fn(&str) -> Option<String>| {
            flags(&[&["--enable-capacity"], arguments].concat()).capacity(variable)
        };
        let given = ["--capacity-ownerref-level=2", "--capacity-poll-interval=30s", "--capacity-threads=4"];
        let with = settings(&given, in_pod).unwrap().unwrap();
        assert_eq!((with.owner, with.namespace), (Some(("pod_name".to_owned(), 2)), "namespace".to_owned()));
        assert_eq!((with.poll_interval, with.threads), (Duration::from_secs(30), 4));
        assert_eq!(settings(&["--capacity-ownerref-level=-1"], in_pod).unwrap().unwrap().owner, None);
        let problem = settings(&[], |_| None).unwrap_err();
        assert!(problem.contains("environment variable NAMESPACE; set it from metadata.namespace"), "{problem}");
        let without_pod = |name: &str| (name == "NAMESPACE").then(|| "storage".to_owned());
        let problem = settings(&[], without_pod).unwrap_err();
        assert!(problem.contains("environment variable POD_NAME"), "{problem}");
        assert!(settings(&["--capacity-ownerref-level", "-1"], without_pod).is_ok());
    }

    #[test]
    fn node_deployment_requires_a_name_topology_and_whole_uids() {
        let node = |arguments: &[&str], name: &str| flags(arguments).node_name(Some(name.to_owned()));
        assert_eq!(node(&[], "node-1"), Ok(None));
        assert_eq!(node(&["--node-deployment"], "node-1"), Ok(Some("node-1".to_owned())));
        assert!(
            node(&["--node-deployment"], "")
                .unwrap_err()
                .contains("NODE_NAME; set it from the pod's field spec.nodeName")
        );
        for other in ["--leader-election", "--feature-gates=Topology=false", "--volume-name-uuid-length=8"] {
            let problem = node(&["--node-deployment", other], "node-1").unwrap_err();
            assert!(problem.contains(other.split('=').next().unwrap()), "{problem}");
        }
    }

    #[test]
    fn master_flag_sets_the_api_server() {
        let server = |arguments: &[&str]| flags(arguments).options("d").api_server.map(|uri| uri.to_string());
        assert_eq!(server(&["--master=https://10.0.0.1:6443"]).as_deref(), Some("https://10.0.0.1:6443/"));
        assert_eq!([server(&[]), server(&["--master="])], [None, None]);
        assert!(Flags::try_parse_from(["csi-provisioner", "--master=10.0.0.1"]).is_err());
    }

    #[test]
    fn flags_set_prefix_and_length_of_volume_names() {
        let names = |arguments: &[&str]| {
            let flags = flags(arguments);
            let options = flags.options("d");
            (options.volume_name_prefix, options.volume_name_uid_length)
        };
        assert_eq!(names(&[]), ("pvc".to_owned(), None));
        assert_eq!(names(&["--volume-name-uuid-length", "-1"]), ("pvc".to_owned(), None));
        let chosen = ["--volume-name-prefix=kube", "--volume-name-uuid-length=8"];
        assert_eq!(names(&chosen), ("kube".to_owned(), Some(8)));
        for bad in ["prefix=", "uuid-length=0", "uuid-length=33", "uuid-length=-2", "uuid-length=x"] {
            assert!(Flags::try_parse_from(["csi-provisioner", &format!("--volume-name-{bad}")]).is_err(), "{bad}");
        }
    }

    #[test]
    fn lease_name_matches_the_sidecars() {
        for (driver, lease) in
            [("ebs.csi.aws.com", "ebs-csi-aws-com"), ("example.com/a_b", "example-com-a-b"), ("a.", "a-X")]
        {
            assert_eq!(sanitized(driver), lease);
        }
    }
}
