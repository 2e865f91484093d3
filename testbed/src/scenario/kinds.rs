//! API paths of kinds.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

/// A kind's place in the API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Kind {
    pub(super) api_version: String,
    pub(super) plural: String,
    #[serde(default)]
    pub(super) cluster_scoped: bool,
}

impl Kind {
    /// The path of all objects in a namespace; an empty namespace is the path of all objects.
    pub(super) fn path(&self, namespace: &str) -> String {
        let prefix = if self.api_version.contains('/') { "apis" } else { "api" };
        let Self { api_version, plural, cluster_scoped } = self;
        if *cluster_scoped || namespace.is_empty() {
            format!("/{prefix}/{api_version}/{plural}")
        } else {
            format!("/{prefix}/{api_version}/namespaces/{namespace}/{plural}")
        }
    }
}

pub(super) fn find(kind: &str, own: &BTreeMap<String, Kind>) -> anyhow::Result<Kind> {
    if let Some(kind) = own.get(kind) {
        return Ok(kind.clone());
    }
    let (api_version, plural, cluster_scoped) = match kind {
        "ClusterRole" => ("rbac.authorization.k8s.io/v1", "clusterroles", true),
        "ClusterRoleBinding" => ("rbac.authorization.k8s.io/v1", "clusterrolebindings", true),
        "CSINode" => ("storage.k8s.io/v1", "csinodes", true),
        "ConfigMap" => ("v1", "configmaps", false),
        "CoreEvent" => ("v1", "events", false),
        "CustomResourceDefinition" => ("apiextensions.k8s.io/v1", "customresourcedefinitions", true),
        "Event" => ("events.k8s.io/v1", "events", false),
        "Lease" => ("coordination.k8s.io/v1", "leases", false),
        "Namespace" => ("v1", "namespaces", true),
        "Node" => ("v1", "nodes", true),
        "PersistentVolume" => ("v1", "persistentvolumes", true),
        "PersistentVolumeClaim" => ("v1", "persistentvolumeclaims", false),
        "Pod" => ("v1", "pods", false),
        "ReferenceGrant" => ("gateway.networking.k8s.io/v1beta1", "referencegrants", false),
        "Role" => ("rbac.authorization.k8s.io/v1", "roles", false),
        "RoleBinding" => ("rbac.authorization.k8s.io/v1", "rolebindings", false),
        "Secret" => ("v1", "secrets", false),
        "SelfSubjectAccessReview" => ("authorization.k8s.io/v1", "selfsubjectaccessreviews", true),
        "ServiceAccount" => ("v1", "serviceaccounts", false),
        "StorageClass" => ("storage.k8s.io/v1", "storageclasses", true),
        "VolumeAttachment" => ("storage.k8s.io/v1", "volumeattachments", true),
        "VolumeAttributesClass" => ("storage.k8s.io/v1", "volumeattributesclasses", true),
        "VolumeSnapshot" => ("snapshot.storage.k8s.io/v1", "volumesnapshots", false),
        "VolumeSnapshotContent" => ("snapshot.storage.k8s.io/v1", "volumesnapshotcontents", true),
        _ => return Err(anyhow::anyhow!("nothing is known of the kind {kind}")).context("see kinds.rs"),
    };
    Ok(Kind { api_version: api_version.to_owned(), plural: plural.to_owned(), cluster_scoped })
}
