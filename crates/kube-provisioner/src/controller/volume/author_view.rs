//! The parts of a claim and a class that provisioners receive. They are the same in every attempt, so the cache stores
//! this part of waiting claims, and the journal stores it for attempts. See
//! [`ProvisionRequest`](crate::ProvisionRequest).

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::capabilities::Capabilities;
use crate::controller::shared::watched::null_as_default;
use crate::protocol;

/// Annotations that the rules read.
const ALWAYS: [&str; 4] = [
    protocol::BETA_STORAGE_CLASS,
    protocol::BETA_STORAGE_PROVISIONER,
    protocol::SELECTED_NODE,
    protocol::STORAGE_PROVISIONER,
];

/// A claim as provisioners receive it.
#[derive(Deserialize, Serialize)]
struct ProjectedClaim<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    owner_references: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Option<&'a RawValue>,
}

/// The fields of a specification that every claim may have. None of them is large.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CommonSpec<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    access_modes: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    data_source: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    data_source_ref: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    resources: Option<Resources<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    storage_class_name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    volume_attributes_class_name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    volume_mode: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    volume_name: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
struct Resources<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    requests: Option<Requests<'a>>,
}

#[derive(Deserialize, Serialize)]
struct Requests<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    storage: Option<&'a RawValue>,
}

/// Returns the text of a claim as its provisioner receives it. Deterministic: the same claim has the same text. If the
/// class names annotations, [`of_class`] completes the reduction.
pub(crate) fn claim(object: &RawValue, capabilities: &Capabilities) -> serde_json::Result<Box<str>> {
    let mut claim: ProjectedClaim<'_> = serde_json::from_str(object.get())?;
    let is_key = |known: &String, key: &str| match known.as_str() {
        prefix if prefix.ends_with('/') => key.starts_with(prefix),
        known => known == key,
    };
    let declared = |key: &str| capabilities.claim_annotations.iter().any(|known| is_key(known, key));
    if capabilities.class_templates {
        (claim.metadata.labels, claim.metadata.owner_references) = (None, None);
    } else {
        claim.metadata.annotations.retain(|key, _| ALWAYS.contains(&key.as_str()) || declared(key));
    }
    let text = serde_json::to_string(&claim)?;
    // The parts are copied unchanged, but an entry of the journal must be one line.
    if text.contains('\n') {
        return Ok(serde_json::from_str::<serde_json::Value>(&text)?.to_string().into_boxed_str());
    }
    Ok(text.into_boxed_str())
}

/// Reduces the text of [`claim`] for provisioners that only read the annotations named in the class's parameters.
pub(crate) fn of_class(text: &str, parameters: &BTreeMap<String, String>) -> serde_json::Result<Box<str>> {
    let ProjectedClaim { mut metadata, spec } = serde_json::from_str(text)?;
    metadata.annotations.retain(|key, _| ALWAYS.contains(&key.as_str()) || is_named(key, parameters));
    let spec = spec.map(|spec| serde_json::from_str::<CommonSpec<'_>>(spec.get())).transpose()?;
    let spec = spec.map(|spec| serde_json::value::to_raw_value(&spec)).transpose()?;
    Ok(serde_json::to_string(&ProjectedClaim { metadata, spec: spec.as_deref() })?.into_boxed_str())
}

/// Returns the annotations in the text of [`claim`] that the class's parameters name.
pub(crate) fn named_annotations(text: &str, parameters: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    if !parameters.values().any(|value| value.contains("${pvc.annotations['")) {
        return BTreeMap::new();
    }
    let Ok(ProjectedClaim { mut metadata, .. }) = serde_json::from_str(text) else { return BTreeMap::new() };
    metadata.annotations.retain(|key, _| is_named(key, parameters));
    metadata.annotations
}

fn is_named(key: &str, parameters: &BTreeMap<String, String>) -> bool {
    let token = format!("${{pvc.annotations['{key}']}}");
    parameters.values().any(|value| value.contains(&token))
}

/// The text of a claim in three parts: its metadata without annotations, its annotations, and its spec. Many claims
/// share the last two.
pub(crate) struct Parts<'a> {
    pub(crate) metadata: String,
    pub(crate) annotations: String,
    pub(crate) spec: &'a RawValue,
}

/// Splits the text of [`claim`]. Returns `None` if it has no spec.
pub(crate) fn split(text: &str) -> serde_json::Result<Option<Parts<'_>>> {
    let ProjectedClaim { mut metadata, spec } = serde_json::from_str(text)?;
    let annotations = serde_json::to_string(&std::mem::take(&mut metadata.annotations))?;
    let metadata = serde_json::to_string(&metadata)?;
    Ok(spec.map(|spec| Parts { metadata, annotations, spec }))
}

/// Rebuilds the text of [`claim`]. Metadata that already contains annotations keeps them.
pub(crate) fn join(metadata: &RawValue, annotations: Option<&str>, spec: &str) -> serde_json::Result<String> {
    let mut metadata: Metadata<'_> = serde_json::from_str(metadata.get())?;
    if let Some(annotations) = annotations {
        metadata.annotations = serde_json::from_str(annotations)?;
    }
    Ok(format!(r#"{{"metadata":{},"spec":{spec}}}"#, serde_json::to_string(&metadata)?))
}

/// Returns a class as its provisioner receives it.
pub(crate) fn class(mut class: StorageClass, capabilities: &Capabilities) -> StorageClass {
    class.metadata.managed_fields = None;
    if let Some(annotations) = &mut class.metadata.annotations {
        annotations.retain(|key, _| capabilities.class_annotations.contains(key));
    }
    class
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn class_templates_keep_only_common_spec_fields() {
        let common = json!({
            "accessModes": ["ReadWriteOnce"], "dataSource": {"kind": "VolumeSnapshot", "name": "s"},
            "dataSourceRef": {"kind": "VolumeSnapshot", "name": "s"}, "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "fast", "volumeAttributesClassName": "gold", "volumeMode": "Block", "volumeName": "v",
        });
        let mut object = json!({"metadata": {"name": "c"}, "spec": common});
        object["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        object["spec"]["resources"] = json!({"limits": {"x": "1"}, "requests": {"storage": "1Gi", "y": "1"}});
        let raw: Box<RawValue> = serde_json::from_str(&object.to_string()).unwrap();
        let text = claim(&raw, &Capabilities::default().class_templates()).unwrap();
        let text = of_class(&text, &BTreeMap::new()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["spec"], common);
    }

    #[test]
    fn keeps_documented_fields_and_declared_annotations() {
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "db"}, "ownerReferences": [{"name": "o"}], "finalizers": ["f"], "managedFields": [{"f": {}}],
                "annotations": {"a": "1", "b": "2", protocol::SELECTED_NODE: "node-1"},
            },
            "spec": {"future": 1}, "status": {"phase": "Pending"},
        });
        let raw: Box<RawValue> = serde_json::from_str(&object.to_string()).unwrap();
        let text = claim(&raw, &Capabilities::default().claim_annotations(["b"])).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "metadata": {
                    "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7",
                    "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "db"},
                    "ownerReferences": [{"name": "o"}], "annotations": {"b": "2", protocol::SELECTED_NODE: "node-1"},
                },
                "spec": {"future": 1},
            })
        );
        let named = claim(&raw, &Capabilities::default().class_templates()).unwrap();
        let class = [("secret".to_owned(), "${pvc.name}-${pvc.annotations['b']}".to_owned())].into();
        let named = serde_json::from_str::<Value>(&of_class(&named, &class).unwrap()).unwrap();
        assert_eq!(named["metadata"]["annotations"], json!({"b": "2", protocol::SELECTED_NODE: "node-1"}));
        assert_eq!((named["metadata"].get("labels"), named["metadata"].get("ownerReferences")), (None, None));
        let again: Box<RawValue> = serde_json::from_str(&text).unwrap();
        assert_eq!(claim(&again, &Capabilities::default().claim_annotations(["b"])).unwrap(), text);
        let Parts { metadata, annotations, spec } = split(&text).unwrap().unwrap();
        assert!(!metadata.contains("annotations"), "{metadata}");
        let metadata: Box<RawValue> = serde_json::from_str(&metadata).unwrap();
        assert_eq!(join(&metadata, Some(&annotations), spec.get()).unwrap(), *text);
    }
}
