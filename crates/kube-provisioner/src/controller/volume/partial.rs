//! The fields of claims, volumes and classes that decisions read.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::controller::shared::watched::{self, Fields, Watched, null_as_default};

/// The metadata that decisions read.
pub(crate) type Meta = watched::Meta<Annotations>;
pub(crate) type WatchedClaim = Watched<PersistentVolumeClaim, ClaimFields>;
pub(crate) type WatchedVolume = Watched<PersistentVolume, VolumeFields>;

impl Fields for ClaimFields {
    type Annotations = Annotations;
    type Labels = IgnoredAny;

    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    /// The author's code receives waiting claims as whole objects. Most claims are bound.
    fn wanted_whole(&self) -> bool {
        self.bound_to().is_none() && self.metadata.annotations.asked().is_some()
    }
}

impl Fields for VolumeFields {
    type Annotations = Annotations;
    type Labels = IgnoredAny;

    fn metadata(&self) -> &Meta {
        &self.metadata
    }
}

/// The annotations that rules read. Other annotations are not stored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Annotations {
    #[serde(rename = "volume.kubernetes.io/storage-provisioner")]
    pub(crate) storage_provisioner: Option<String>,
    #[serde(rename = "volume.beta.kubernetes.io/storage-provisioner")]
    pub(crate) beta_storage_provisioner: Option<String>,
    #[serde(rename = "volume.beta.kubernetes.io/storage-class")]
    pub(crate) beta_storage_class: Option<String>,
    #[serde(rename = "volume.kubernetes.io/selected-node")]
    pub(crate) selected_node: Option<String>,
    #[serde(rename = "pv.kubernetes.io/provisioned-by")]
    pub(crate) provisioned_by: Option<String>,
    #[serde(rename = "kube-provisioner/identity")]
    pub(crate) identity: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/cluster-id")]
    pub(crate) cluster_id: Option<Box<str>>,
    #[serde(rename = "pv.kubernetes.io/migrated-to")]
    pub(crate) migrated_to: Option<String>,
    #[serde(rename = "kube-provisioner/release")]
    pub(crate) release: Option<Box<str>>,
    #[serde(rename = "pv.kubernetes.io/bind-completed")]
    pub(crate) bind_completed: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/adopted")]
    pub(crate) adopted: Option<Box<str>>,
}

impl Annotations {
    /// Returns the provisioner that the claim names.
    pub(crate) fn asked(&self) -> Option<&str> {
        self.storage_provisioner.as_deref().or(self.beta_storage_provisioner.as_deref())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimFields {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: Option<ClaimSpec>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: ClaimStatus,
}

impl ClaimFields {
    pub(crate) fn bound_to(&self) -> Option<&str> {
        self.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns whether the claim is or was bound to this volume, according to the PersistentVolume controller. Users
    /// can write the spec.
    pub(crate) fn has_had(&self, volume: &str) -> bool {
        self.bound_to() == Some(volume) && matches!(self.status.phase.as_deref(), Some("Bound" | "Lost"))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) access_modes: Vec<String>,
    pub(crate) data_source: Option<SourceFields>,
    pub(crate) data_source_ref: Option<SourceFields>,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) resources: Resources,
    pub(crate) selector: Option<serde::de::IgnoredAny>,
    pub(crate) storage_class_name: Option<String>,
    pub(crate) volume_attributes_class_name: Option<String>,
    pub(crate) volume_mode: Option<String>,
    pub(crate) volume_name: Option<String>,
}

/// The fields of a claim's status that show whether it has what it requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ClaimStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) allocated_resources: Storage,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) allocated_resource_statuses: Storage,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) capacity: Storage,
    pub(crate) phase: Option<String>,
}

/// The storage entry of a resource list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Storage {
    pub(crate) storage: Option<serde_json::Value>,
}

/// Returns the text of a quantity, which a client may write as a number.
pub(crate) fn amount_text(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) requests: BTreeMap<String, serde_json::Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SourceFields {
    pub(crate) api_group: Option<String>,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct VolumeFields {
    pub(crate) metadata: Meta,
    #[serde(default)]
    pub(crate) spec: Option<VolumeSpec>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub(crate) status: VolumeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) capacity: Storage,
    pub(crate) claim_ref: Option<ClaimRef>,
    pub(crate) csi: Option<CsiSource>,
    pub(crate) node_affinity: Option<VolumeNodeAffinity>,
    pub(crate) persistent_volume_reclaim_policy: Option<String>,
    pub(crate) storage_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ClaimRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CsiSource {
    pub(crate) driver: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VolumeStatus {
    pub(crate) phase: Option<String>,
}

#[cfg(test)]
mod tests {
    use provisioner_runtime::watch::FromJson as _;

    use super::*;

    #[test]
    fn an_unreadable_object_has_its_name_and_the_problem() {
        let text = r#"{"metadata":{"name":"c","namespace":"n","uid":"u"},"spec":{"accessModes":7}}"#;
        let claim: WatchedClaim = serde_json::from_str(text).unwrap();
        assert_eq!((claim.name(), claim.namespace()), ("c", "n"));
        assert!(claim.fields.unwrap_err().problem.contains("invalid type"));
        let nothing: WatchedClaim = serde_json::from_str("{}").unwrap();
        assert!(nothing.fields.is_err());
        assert!(WatchedClaim::from_json(r#"{"metadata":{"name":"c"}"#).is_err(), "truncated JSON is an error");
    }

    #[test]
    fn nulls_and_unknown_fields_are_read_as_absent() {
        let text = r#"{"kind":"x","metadata":{"name":"c","annotations":null,"finalizers":null,"new":{}},
            "spec":{"accessModes":null,"resources":null,"selector":null,"future":[1]},"status":null}"#;
        let claim: WatchedClaim = serde_json::from_str(text).unwrap();
        let claim = claim.fields.unwrap();
        assert!(claim.spec.unwrap().selector.is_none());
        let volume: WatchedVolume = serde_json::from_str(r#"{"metadata":{"name":"v"},"status":null}"#).unwrap();
        assert!(volume.fields.unwrap().spec.is_none());
    }

    #[test]
    fn works_inside_a_watch_event_and_a_list() {
        use kube::core::{ObjectList, WatchEvent};
        let event: WatchEvent<WatchedClaim> =
            serde_json::from_str(r#"{"type":"ADDED","object":{"metadata":{"name":"c"}}}"#).unwrap();
        assert!(matches!(event, WatchEvent::Added(claim) if claim.name() == "c"));
        let list: ObjectList<WatchedClaim> = serde_json::from_str(
            r#"{"kind":"PersistentVolumeClaimList","apiVersion":"v1","metadata":{"resourceVersion":"7"},
                "items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#,
        )
        .unwrap();
        assert_eq!(list.items.len(), 2);
        assert!(list.items[1].fields.is_err());
    }
}
