//! What the controller may do, in one place: manifests are made of it, and it is checked at the start.

pub use provisioner_runtime::access::AccessRule;
use provisioner_runtime::lease;
use serde_json::{Value, json};

/// Every right that the controller needs in the whole cluster.
pub const CLUSTER_RULES: &[AccessRule] = &[
    AccessRule {
        group: "",
        resource: "persistentvolumes",
        verbs: &["get", "list", "watch", "create", "delete", "patch"],
        names: Vec::new(),
        namespaced: false,
    },
    AccessRule {
        group: "",
        resource: "persistentvolumeclaims",
        verbs: &["get", "list", "watch", "patch"],
        names: Vec::new(),
        namespaced: false,
    },
    AccessRule {
        group: "storage.k8s.io",
        resource: "storageclasses",
        verbs: &["list", "watch"],
        names: Vec::new(),
        namespaced: false,
    },
    AccessRule {
        group: "events.k8s.io",
        resource: "events",
        verbs: &["create", "patch"],
        names: Vec::new(),
        namespaced: false,
    },
];

/// Every right that the controller needs in its own namespace: for its journal, and to share the work with other replicas.
pub const NAMESPACE_RULES: &[AccessRule] = &[
    AccessRule {
        group: "",
        resource: "configmaps",
        verbs: &["get", "list", "create", "update", "delete"],
        names: Vec::new(),
        namespaced: true,
    },
    lease::access_rule(2),
];

/// Who gets the rights.
#[derive(Clone, Debug)]
pub struct Account<'a> {
    /// Name of the ServiceAccount, also of the roles and their bindings.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

/// ServiceAccount, roles and their bindings for a provisioner.
pub fn manifests(account: &Account<'_>) -> Vec<Value> {
    let Account { name, namespace } = account;
    // Cluster-wide names must not meet those of another installation.
    let cluster_name = format!("{namespace}-{name}");
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace},
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": cluster_name},
            "rules": CLUSTER_RULES.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": cluster_name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": name, "namespace": namespace},
            "rules": NAMESPACE_RULES.iter().map(rule).collect::<Vec<_>>(),
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }),
    ]
}

fn rule(rule: &AccessRule) -> Value {
    json!({"apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs})
}
