//! The resources of every API server. Their update and delete strategies are from `pkg/registry/*/*/strategy.go` and
//! `storage.go` of Kubernetes.

use std::sync::{Arc, LazyLock};

use super::{Resource, Special, StorageId};

/// Returns all built-in resources in the order of discovery, core first.
pub fn builtins() -> &'static [Arc<Resource>] {
    static BUILTINS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(build);
    &BUILTINS
}

/// The resources of one group. A row is plural name, kind, traits (see [`traits`]) and short names.
struct GroupTable {
    name: &'static str,
    version: &'static str,
    rows: &'static [(&'static str, &'static str, &'static str, &'static [&'static str])],
}

/// The letters for traits in a row.
mod traits {
    /// Namespaced.
    pub(super) const NAMESPACED: char = 'n';
    /// Has a `/status` subresource.
    pub(super) const STATUS: char = 's';
    /// Update needs a resourceVersion.
    pub(super) const CONDITIONAL_UPDATE: char = 'c';
    /// Update of a missing object creates it.
    pub(super) const CREATE_ON_UPDATE: char = 'u';
    /// Delete answers with the object.
    pub(super) const RETURNS_DELETED: char = 'd';
    /// Objects are answered but not stored.
    pub(super) const EPHEMERAL: char = 'e';
    /// Belongs to the category `all`.
    pub(super) const ALL: char = 'a';
}

const GROUPS: &[GroupTable] = &[
    GroupTable {
        name: "",
        version: "v1",
        rows: &[
            ("configmaps", "ConfigMap", "n", &["cm"]),
            ("endpoints", "Endpoints", "nu", &["ep"]),
            ("events", "Event", "nu", &["ev"]),
            ("limitranges", "LimitRange", "nu", &["limits"]),
            ("namespaces", "Namespace", "s", &["ns"]),
            ("nodes", "Node", "s", &["no"]),
            ("persistentvolumeclaims", "PersistentVolumeClaim", "nsd", &["pvc"]),
            ("persistentvolumes", "PersistentVolume", "sd", &["pv"]),
            ("pods", "Pod", "nsda", &["po"]),
            ("podtemplates", "PodTemplate", "nd", &[]),
            ("replicationcontrollers", "ReplicationController", "nsa", &["rc"]),
            ("resourcequotas", "ResourceQuota", "nsd", &["quota"]),
            ("secrets", "Secret", "n", &[]),
            ("serviceaccounts", "ServiceAccount", "nd", &["sa"]),
            ("services", "Service", "nsuda", &["svc"]),
        ],
    },
    GroupTable {
        name: "apiextensions.k8s.io",
        version: "v1",
        rows: &[("customresourcedefinitions", "CustomResourceDefinition", "sc", &["crd", "crds"])],
    },
    GroupTable {
        name: "apps",
        version: "v1",
        rows: &[
            ("controllerrevisions", "ControllerRevision", "n", &[]),
            ("daemonsets", "DaemonSet", "nsa", &["ds"]),
            ("deployments", "Deployment", "nsa", &["deploy"]),
            ("replicasets", "ReplicaSet", "nsa", &["rs"]),
            ("statefulsets", "StatefulSet", "nsa", &["sts"]),
        ],
    },
    GroupTable {
        name: "authentication.k8s.io",
        version: "v1",
        rows: &[("selfsubjectreviews", "SelfSubjectReview", "e", &[]), ("tokenreviews", "TokenReview", "e", &[])],
    },
    GroupTable {
        name: "authorization.k8s.io",
        version: "v1",
        rows: &[
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", "ne", &[]),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", "e", &[]),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview", "e", &[]),
            ("subjectaccessreviews", "SubjectAccessReview", "e", &[]),
        ],
    },
    GroupTable {
        name: "batch",
        version: "v1",
        rows: &[("cronjobs", "CronJob", "nsa", &["cj"]), ("jobs", "Job", "nsa", &[])],
    },
    GroupTable { name: "coordination.k8s.io", version: "v1", rows: &[("leases", "Lease", "ncu", &[])] },
    GroupTable { name: "discovery.k8s.io", version: "v1", rows: &[("endpointslices", "EndpointSlice", "n", &[])] },
    GroupTable { name: "events.k8s.io", version: "v1", rows: &[("events", "Event", "nu", &["ev"])] },
    GroupTable {
        name: "networking.k8s.io",
        version: "v1",
        rows: &[
            ("ingressclasses", "IngressClass", "", &[]),
            ("ingresses", "Ingress", "ns", &["ing"]),
            ("networkpolicies", "NetworkPolicy", "n", &["netpol"]),
        ],
    },
    GroupTable { name: "node.k8s.io", version: "v1", rows: &[("runtimeclasses", "RuntimeClass", "c", &[])] },
    GroupTable {
        name: "policy",
        version: "v1",
        rows: &[("poddisruptionbudgets", "PodDisruptionBudget", "nsc", &["pdb"])],
    },
    GroupTable {
        name: "rbac.authorization.k8s.io",
        version: "v1",
        rows: &[
            ("clusterrolebindings", "ClusterRoleBinding", "u", &[]),
            ("clusterroles", "ClusterRole", "u", &[]),
            ("rolebindings", "RoleBinding", "nu", &[]),
            ("roles", "Role", "nu", &[]),
        ],
    },
    GroupTable { name: "scheduling.k8s.io", version: "v1", rows: &[("priorityclasses", "PriorityClass", "", &["pc"])] },
    GroupTable {
        name: "storage.k8s.io",
        version: "v1",
        rows: &[
            ("csidrivers", "CSIDriver", "cd", &[]),
            ("csinodes", "CSINode", "cd", &[]),
            ("csistoragecapacities", "CSIStorageCapacity", "ncd", &[]),
            ("storageclasses", "StorageClass", "d", &["sc"]),
            ("volumeattachments", "VolumeAttachment", "scd", &[]),
            ("volumeattributesclasses", "VolumeAttributesClass", "d", &["vac"]),
        ],
    },
];

fn build() -> Vec<Arc<Resource>> {
    let mut built: Vec<Arc<Resource>> = Vec::new();
    for group in GROUPS {
        for (plural, kind, letters, short_names) in group.rows {
            // Both groups of events share one storage.
            let shared = built.iter().find(|other| *plural == "events" && other.plural == "events");
            let next = StorageId(u32::try_from(built.len()).expect("the table above is short"));
            let storage = shared.map_or(next, |other| other.storage);
            let has = |letter: char| letters.contains(letter);
            built.push(Arc::new(Resource {
                group: group.name.to_owned(),
                version: group.version.to_owned(),
                plural: (*plural).to_owned(),
                singular: kind.to_lowercase(),
                kind: (*kind).to_owned(),
                list_kind: format!("{kind}List"),
                namespaced: has(traits::NAMESPACED),
                short_names: short_names.iter().map(|name| (*name).to_owned()).collect(),
                categories: if has(traits::ALL) { vec!["all".to_owned()] } else { Vec::new() },
                status: has(traits::STATUS),
                storage,
                unconditional_update: !has(traits::CONDITIONAL_UPDATE),
                create_on_update: has(traits::CREATE_ON_UPDATE),
                returns_deleted: has(traits::RETURNS_DELETED),
                ephemeral: has(traits::EPHEMERAL),
                custom: false,
                special: Special::of(group.name, plural),
            }));
        }
    }
    built
}
