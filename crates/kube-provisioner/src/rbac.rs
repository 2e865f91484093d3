//! The permissions that a provisioner needs. The manifests and the check at startup use the same list.

#[cfg(test)]
mod tests;

use provisioner_runtime::access::AccessRule as Rule;
use provisioner_runtime::journal::journal_name;
use provisioner_runtime::lease;
use serde_json::{Value, json};

use crate::bucket::BucketCapabilities;
use crate::capabilities::Capabilities;
use crate::controller::SYSTEM_NAMESPACE;
#[cfg(feature = "cosi")]
use crate::options::BucketOptions;
use crate::options::{Coordination, Options};

pub use provisioner_runtime::access::AccessRule;

/// The account that receives the permissions.
#[derive(Clone, Debug)]
pub struct Account<'a> {
    /// The name of the ServiceAccount, its roles and their bindings.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

/// Returns every permission that the controller needs with these options and for the provisioner's
/// [capabilities](crate::Provisioner::capabilities). [`Hooks::access_rules`](crate::Hooks::access_rules) are additional
/// permissions.
///
/// Permissions on objects with known names are limited to these names. `former_shards` are the values of `--shards`
/// with which this installation has run before: the entries in their journals are adopted. The journals of a single
/// shard are always included.
///
/// ```
/// use kube_provisioner::rbac::{Account, manifests, rules};
/// use kube_provisioner::{Capabilities, Options};
///
/// let rules = rules(&Options::new("example.com/nfs"), &Capabilities::default(), &[]);
/// let role = &manifests(&Account { name: "nfs", namespace: "storage" }, &rules)[3];
/// assert_eq!(role["rules"][0]["resourceNames"][0], "example.com-nfs-journal");
/// ```
pub fn rules(options: &Options, capabilities: &Capabilities, former_shards: &[u32]) -> Vec<AccessRule> {
    let mut rules = required_rules(options, capabilities, former_shards);
    if options.sidecar_rbac {
        rules.iter_mut().filter(|rule| rule.resource == VOLUMES).for_each(|rule| rule.verbs = ALL_OF_VOLUMES);
        rules.extend(cluster_id(options));
        rules.push(journal_leases());
    }
    rules
}

const VOLUMES: &str = "persistentvolumes";
const ALL_OF_VOLUMES: &[&str] = &["get", "list", "watch", "create", "delete", "patch"];

/// Returns the permission that finalizers of volumes need, which some charts of CSI drivers do not grant.
pub(crate) fn finalizers() -> AccessRule {
    cluster("", VOLUMES, &["patch"])
}

/// Returns the subset of [`rules`] that the controller cannot work without.
pub(crate) fn required_rules(options: &Options, capabilities: &Capabilities, former_shards: &[u32]) -> Vec<AccessRule> {
    let (of_volumes, of_claims, of_events): (&[_], &[_], _) = if options.sidecar_rbac {
        (&["get", "list", "watch", "create", "delete"], &["get", "list", "watch"], "")
    } else {
        (ALL_OF_VOLUMES, &["get", "list", "watch", "patch"], "events.k8s.io")
    };
    let mut rules = vec![
        cluster("", VOLUMES, of_volumes),
        cluster("", "persistentvolumeclaims", of_claims),
        cluster("storage.k8s.io", "storageclasses", &["list", "watch"]),
        cluster(of_events, "events", &["create", "patch"]),
    ];
    if capabilities.node_labels || options.coordination == Coordination::PerNode {
        rules.push(cluster("", "nodes", &["get"]));
    }
    if capabilities.expansion {
        rules.push(cluster("", "persistentvolumeclaims/status", &["patch"]));
    }
    if !capabilities.secrets.is_empty() {
        rules.push(cluster("", "secrets", &["get"]));
    }
    if !options.sidecar_rbac {
        rules.extend(cluster_id(options));
        rules.extend(journals(options, former_shards));
    }
    rules.extend(leases(options));
    rules
}

/// Returns the permissions as [`rules`] does, for the bucket controller. The Secrets and ConfigMaps of claims can be in
/// any namespace.
pub fn bucket_rules(options: &Options, _: &BucketCapabilities, former_shards: &[u32]) -> Vec<AccessRule> {
    const GROUP: &str = objectbucket_api::GROUP;
    const OWN: &[&str] = &["get", "list", "watch", "create", "delete", "patch"];
    let mut rules = vec![
        cluster(GROUP, "objectbuckets", OWN),
        cluster(GROUP, "objectbuckets/status", &["patch"]),
        cluster(GROUP, "objectbucketclaims", &["get", "list", "watch", "patch"]),
        cluster(GROUP, "objectbucketclaims/status", &["patch"]),
        // To block the deletion of an owner, its dependent's creator must be allowed to change the owner's finalizers.
        cluster(GROUP, "objectbucketclaims/finalizers", &["update"]),
        cluster("", "secrets", OWN),
        cluster("", "configmaps", OWN),
        cluster("storage.k8s.io", "storageclasses", &["list", "watch"]),
        cluster("events.k8s.io", "events", &["create", "patch"]),
    ];
    rules.extend(cluster_id(options));
    rules.extend(journals(options, former_shards));
    rules.extend(leases(options));
    rules
}

/// Returns the permissions as [`rules`] does, for a COSI driver: the Secrets of its accounts are in its own namespace,
/// but a class can name Secrets in any. The sidecar needs additional permissions.
#[cfg(feature = "cosi")]
pub fn cosi_rules(options: &Options, capabilities: &BucketCapabilities) -> Vec<AccessRule> {
    let mut rules = vec![own("secrets", &["get", "create", "update", "delete"])];
    if !capabilities.secrets.is_empty() {
        rules.push(cluster("", "secrets", &["get"]));
    }
    rules.extend(cluster_id(options));
    rules
}

/// Returns the permissions as [`cosi_rules`] does, for the controller of a driver's Buckets and BucketAccesses. The
/// Secrets of BucketAccesses can be in any namespace. The controller deletes no COSI objects, and needs no permissions
/// on claims and classes.
#[cfg(feature = "cosi")]
pub fn cosi_controller_rules(driver: &str, options: &Options) -> Vec<AccessRule> {
    const GROUP: &str = "objectstorage.k8s.io";
    const OBJECT: &[&str] = &["get", "list", "watch", "patch"];
    let in_loop = crate::cosi::controller::loop_options(driver, options);
    let mut rules = vec![
        cluster(GROUP, "buckets", OBJECT),
        cluster(GROUP, "buckets/status", &["patch"]),
        cluster(GROUP, "bucketaccesses", OBJECT),
        cluster(GROUP, "bucketaccesses/status", &["patch"]),
        cluster("", "secrets", &["get", "list", "watch", "create", "delete", "patch"]),
        // The records of accounts.
        own("secrets", &["update"]),
        cluster("events.k8s.io", "events", &["create", "patch"]),
    ];
    rules.extend(cluster_id(options));
    rules.extend(journals(&in_loop, &[]));
    rules.extend(leases(&in_loop));
    rules
}

/// Generates the ServiceAccount, roles and role bindings of a provisioner.
pub fn manifests(account: &Account<'_>, rules: &[AccessRule]) -> Vec<Value> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let Account { name, namespace } = account;
    // Cluster-wide names must not collide with the names of another installation.
    let cluster_name = format!("{namespace}-{name}");
    let in_namespace = json!({"name": name, "namespace": namespace});
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let rules =
        |namespaced: bool| rules.iter().filter(|rule| rule.namespaced == namespaced).map(rule).collect::<Value>();
    let object =
        |kind: &str, metadata: Value| json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata});
    let role = |kind: &str, metadata: Value, namespaced| {
        let mut role = object(kind, metadata);
        role["rules"] = rules(namespaced);
        role
    };
    let binding = |kind: &str, metadata: Value, role: &str| {
        let mut binding = object(kind, metadata.clone());
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": role, "name": metadata["name"]});
        binding["subjects"] = subjects.clone();
        binding
    };
    let cluster = json!({"name": cluster_name});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_namespace}),
        role("ClusterRole", cluster.clone(), false),
        binding("ClusterRoleBinding", cluster, "ClusterRole"),
        role("Role", in_namespace.clone(), true),
        binding("RoleBinding", in_namespace, "Role"),
    ]
}

/// Returns advice about missing permissions: the `rbac` command of this program with the relevant options.
pub fn advice(options: &Options, namespace: &str) -> String {
    advice_with(options, namespace, "")
}

/// Returns the advice for a COSI driver.
#[cfg(feature = "cosi")]
pub(crate) fn cosi_advice(options: &Options, namespace: &str) -> String {
    advice_with(options, namespace, " --cosi")
}

/// Returns the advice for the controller that replaces COSI's sidecar.
#[cfg(feature = "cosi")]
pub(crate) fn cosi_controller_advice(options: &BucketOptions, namespace: &str) -> String {
    let name = options.cosi_driver_name.as_ref().map(|name| format!(" --cosi-driver-name {name}"));
    advice_with(&options.options, namespace, &format!(" --cosi-controller{}", name.unwrap_or_default()))
}

fn advice_with(options: &Options, namespace: &str, mode: &str) -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let program = program.as_deref().and_then(|path| path.file_name()?.to_str()).unwrap_or("PROGRAM");
    let mut command = format!("{program} rbac --provisioner-name {}", options.provisioner_name);
    command.push_str(&format!(" --namespace {namespace}{mode}"));
    if let Some(mode) = clap::ValueEnum::to_possible_value(&options.coordination)
        && options.coordination != Coordination::default()
    {
        command.push_str(&format!(" --coordination {}", mode.get_name()));
    }
    if options.shards > 1 {
        command.push_str(&format!(" --shards {}", options.shards));
    }
    format!(
        "Grant them, for instance by: {command} --service-account ACCOUNT | kubectl apply -f - \
         (ACCOUNT is the ServiceAccount that the provisioner runs as)"
    )
}

/// The permission to read the namespace whose uid identifies the cluster.
fn cluster_id(options: &Options) -> Option<AccessRule> {
    let rule = || Rule { names: vec![SYSTEM_NAMESPACE.to_owned()], ..cluster("", "namespaces", &["get"]) };
    options.cluster_id.is_none().then(rule)
}

/// The permissions on the ConfigMaps in which attempts are recorded.
fn journals(options: &Options, former_shards: &[u32]) -> Vec<AccessRule> {
    const NAMED: &[&str] = &["get", "update", "delete"];
    let shards = match options.coordination {
        // The names of future nodes are unknown.
        Coordination::PerNode => return vec![own("configmaps", &["get", "list", "create", "update", "delete"])],
        Coordination::None => 1,
        Coordination::Lease => options.shards,
    };
    let mut layouts = [&[1, shards], former_shards].concat();
    layouts.sort_unstable();
    layouts.dedup();
    let names = |shards: u32| (0..shards).map(move |shard| journal_name(&options.provisioner_name, shard, shards));
    let names = layouts.into_iter().flat_map(names).collect();
    vec![Rule { names, ..own("configmaps", NAMED) }, own("configmaps", &["list", "create"])]
}

/// Returns the permissions on the Leases in which attempts are recorded if ConfigMaps are not permitted, see
/// [`Options::sidecar_rbac`].
pub(crate) fn journal_leases() -> AccessRule {
    // Some drivers' charts do not grant deletion, which is only used to clean up.
    const VERBS: &[&str] = &["get", "list", "create", "update"];
    Rule { namespaced: true, ..cluster("coordination.k8s.io", "leases", VERBS) }
}

fn leases(options: &Options) -> Vec<AccessRule> {
    if options.coordination != Coordination::Lease {
        return Vec::new();
    }
    let all = lease::access_rule(options.shards);
    // With several shards, each replica has an additional Lease with an unknown name. A sidecar's Lease is named after
    // its driver, in another form.
    if options.shards > 1 || options.sidecar_rbac {
        return vec![all];
    }
    let names = vec![options.lease_name()];
    let (named, others): (&[&str], &[&str]) = (&["get", "update"], &["list", "watch", "create"]);
    vec![Rule { names, verbs: named, ..all.clone() }, Rule { verbs: others, ..all }]
}

fn cluster(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> AccessRule {
    Rule { group, resource, verbs, names: Vec::new(), namespaced: false }
}

/// A rule for the provisioner's own namespace.
fn own(resource: &'static str, verbs: &'static [&'static str]) -> AccessRule {
    Rule { namespaced: true, ..cluster("", resource, verbs) }
}

fn rule(rule: &AccessRule) -> Value {
    let mut value = json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs});
    if !rule.names.is_empty() {
        value["resourceNames"] = json!(rule.names);
    }
    value
}
