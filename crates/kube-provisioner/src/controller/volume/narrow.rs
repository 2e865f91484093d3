//! The fields that the watches decode: only those that decisions read. Nothing else is allocated.
//!
//! An object that cannot be read does not stop the others: it decodes into its name and the reason.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use provisioner_runtime::watch::FromJson;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::protocol;

/// An object of kind `K`, decoded as a `T`.
#[derive(Clone, Debug)]
pub(crate) struct Watched<K, T> {
    /// The metadata that the watch needs: the resource version.
    meta: ObjectMeta,
    /// The fields of interest, or why they cannot be read.
    pub(crate) fields: Result<T, Unreadable>,
    /// The object as the API server sent it, if it may be needed whole.
    pub(crate) raw: Option<Box<RawValue>>,
    kind: std::marker::PhantomData<K>,
}

/// What is known of an object that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    metadata: Meta,
    pub(crate) problem: String,
}

pub(crate) type WatchedClaim = Watched<PersistentVolumeClaim, ClaimFields>;
pub(crate) type WatchedClass = Watched<StorageClass, ClassFields>;
pub(crate) type WatchedVolume = Watched<PersistentVolume, VolumeFields>;

impl<K, T: Fields> Watched<K, T> {
    pub(crate) fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> Option<&str> {
        self.metadata().resource_version.as_deref()
    }

    pub(crate) fn metadata(&self) -> &Meta {
        self.fields.as_ref().map_or_else(|unreadable| &unreadable.metadata, Fields::metadata)
    }
}

/// What every kind of object has.
pub(crate) trait Fields {
    fn metadata(&self) -> &Meta;

    /// Whether the whole object may be needed.
    fn wanted_whole(&self) -> bool;
}

impl Fields for ClaimFields {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    /// The author gets waiting claims whole. Most claims are bound.
    fn wanted_whole(&self) -> bool {
        self.bound_to().is_none() && self.metadata.annotations.asked().is_some()
    }
}

impl Fields for ClassFields {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn wanted_whole(&self) -> bool {
        true
    }
}

impl Fields for VolumeFields {
    fn metadata(&self) -> &Meta {
        &self.metadata
    }

    fn wanted_whole(&self) -> bool {
        false
    }
}

impl<K, T: DeserializeOwned + Fields> FromJson for Watched<K, T> {
    fn from_json(json: &str) -> serde_json::Result<Self> {
        #[derive(Default, Deserialize)]
        struct Head {
            metadata: Meta,
        }
        let fields = match serde_json::from_str(json) {
            Err(error) if error.is_data() => Err(Unreadable {
                // Only an unreadable object is parsed twice.
                metadata: serde_json::from_str::<Head>(json).unwrap_or_default().metadata,
                problem: error.to_string(),
            }),
            fields => Ok(fields?),
        };
        let wanted_whole = fields.as_ref().is_ok_and(T::wanted_whole);
        let mut watched = Self {
            meta: ObjectMeta::default(),
            fields,
            raw: wanted_whole.then(|| RawValue::from_string(json.to_owned())).transpose()?,
            kind: std::marker::PhantomData,
        };
        watched.meta.resource_version = watched.metadata().resource_version.clone();
        Ok(watched)
    }
}

/// In a list.
impl<'de, K, T: DeserializeOwned + Fields> Deserialize<'de> for Watched<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Borrowed: most objects are foreign, and nothing of them is kept.
        let raw = <&RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}

impl<K, T> kube::Resource for Watched<K, T>
where
    K: kube::Resource<DynamicType = ()>,
{
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        K::kind(&())
    }
    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        K::group(&())
    }
    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        K::version(&())
    }
    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        K::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// The metadata that is read. Everything is optional here; what must be there is checked where it is used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub(crate) name: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) annotations: Annotations,
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) finalizers: Vec<String>,
}

/// The annotations that rules read; all others are skipped without being kept.
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
    #[serde(rename = "control-plane.alpha.kubernetes.io/leader")]
    pub(crate) lock: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/identity")]
    pub(crate) identity: Option<Box<str>>,
    #[serde(rename = "pv.kubernetes.io/migrated-to")]
    pub(crate) migrated_to: Option<String>,
    #[serde(rename = "kube-provisioner/attempt")]
    pub(crate) attempt: Option<Box<str>>,
    #[serde(rename = "kube-provisioner/deleting")]
    pub(crate) deleting: Option<Box<str>>,
}

impl Annotations {
    /// The provisioner that a claim asks.
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
    /// Whether the claim records an attempt.
    pub(crate) fn is_held(&self) -> bool {
        self.metadata.finalizers.iter().any(|name| name == protocol::CLAIM_FINALIZER)
    }

    /// The volume that the claim has.
    pub(crate) fn bound_to(&self) -> Option<&str> {
        self.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
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

/// What says whether the claim has what it asks for.
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

/// The entry of a resource list that is about storage.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Storage {
    pub(crate) storage: Option<serde_json::Value>,
}

/// A quantity's text. A client may write it as a number.
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

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassFields {
    pub(crate) metadata: Meta,
    pub(crate) provisioner: String,
}

pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_object_keeps_its_name_and_says_why() {
        let text = r#"{"metadata":{"name":"c","namespace":"n","uid":"u"},"spec":{"accessModes":7}}"#;
        let claim: WatchedClaim = serde_json::from_str(text).unwrap();
        assert_eq!((claim.name(), claim.namespace()), ("c", "n"));
        assert!(claim.fields.unwrap_err().problem.contains("invalid type"));
        let nothing: WatchedClaim = serde_json::from_str("{}").unwrap();
        assert!(nothing.fields.is_err());
        assert!(WatchedClaim::from_json(r#"{"metadata":{"name":"c"}"#).is_err(), "half an object is none");
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
