//! Builds the PersistentVolume from the claim, its class and the provisioner's result.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;

use crate::protocol;
use crate::quantity;
use crate::volume::{Volume, VolumeSource};

/// The problem with a volume that a provisioner returned. Nothing was saved.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    #[error("the provisioner created a volume without the access mode {0}, which the claim requests")]
    AccessMode(String),
    #[error("the provisioner created a volume of {made} bytes, but the claim asks for {asked}")]
    TooSmall { made: u64, asked: u64 },
    #[error("the provisioner returned a local volume without a node; it must name the volume's node")]
    LocalWithoutNode,
    #[error("the provisioner returned the path {0:?}; a volume's path must be absolute and must not contain `..`")]
    Path(String),
}

pub(crate) struct VolumeInputs<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: u64,
    pub(crate) claim: &'a PersistentVolumeClaim,
    pub(crate) class: &'a StorageClass,
    pub(crate) finalizer: bool,
    /// The installation that creates the volume.
    pub(crate) identity: Option<&'a str>,
    pub(crate) cluster_id: &'a str,
}

/// Builds the PersistentVolume.
///
/// The claim reference contains the claim's uid, so the volume cannot be bound to another claim, and
/// the controller-manager needs no additional write to pre-bind it.
pub(crate) fn build(inputs: &VolumeInputs<'_>, volume: Volume) -> Result<PersistentVolume, TemplateError> {
    check(inputs, &volume)?;
    let claim = inputs.claim.spec.clone().unwrap_or_default();
    let access_modes =
        volume.access_modes.map(|modes| modes.into_iter().map(|mode| mode.as_str().to_owned()).collect());
    let mut annotations = volume.annotations;
    annotations.insert(protocol::PROVISIONED_BY.to_owned(), inputs.class.provisioner.clone());
    annotations.extend(inputs.identity.map(|identity| (protocol::IDENTITY.to_owned(), identity.to_owned())));
    annotations.insert(protocol::CLUSTER_ID.to_owned(), inputs.cluster_id.to_owned());
    let mut spec = PersistentVolumeSpec {
        access_modes: access_modes.or(claim.access_modes),
        capacity: Some(BTreeMap::from([("storage".to_owned(), Quantity(capacity(inputs, volume.capacity)))])),
        claim_ref: Some(claim_reference(inputs.claim)),
        mount_options: volume.mount_options.or_else(|| inputs.class.mount_options.clone()),
        node_affinity: volume.node_affinity,
        persistent_volume_reclaim_policy: Some(
            inputs.class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
        ),
        storage_class_name: inputs.class.metadata.name.clone(),
        // In a claim, an empty name means that it has no such class; a volume must not contain an empty name.
        volume_attributes_class_name: claim.volume_attributes_class_name.filter(|name| !name.is_empty()),
        volume_mode: claim.volume_mode,
        ..PersistentVolumeSpec::default()
    };
    volume.source.fill(&mut spec);
    Ok(PersistentVolume {
        metadata: ObjectMeta {
            name: Some(inputs.name.to_owned()),
            annotations: Some(annotations),
            labels: (!volume.labels.is_empty()).then_some(volume.labels),
            finalizers: inputs.finalizer.then(|| vec![protocol::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    })
}

fn check(inputs: &VolumeInputs<'_>, volume: &Volume) -> Result<(), TemplateError> {
    if let Some(made) = volume.capacity
        && made < inputs.bytes
    {
        return Err(TemplateError::TooSmall { made, asked: inputs.bytes });
    }
    if let Some(modes) = &volume.access_modes {
        let asked = inputs.claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        if let Some(missing) = asked.iter().find(|mode| modes.iter().all(|made| made.as_str() != **mode)) {
            return Err(TemplateError::AccessMode(missing.clone()));
        }
    }
    let path = match &volume.source {
        VolumeSource::Local(_) if volume.node_affinity.is_none() => return Err(TemplateError::LocalWithoutNode),
        VolumeSource::HostPath(source) => &source.path,
        VolumeSource::Local(source) => &source.path,
        VolumeSource::Nfs(source) => &source.path,
        _ => return Ok(()),
    };
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(TemplateError::Path(path.clone()));
    }
    Ok(())
}

/// Returns the claim's own text if the volume has the requested size: `1500Mi` stays `1500Mi`.
fn capacity(inputs: &VolumeInputs<'_>, made: Option<u64>) -> String {
    let requests = inputs.claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    match (made, requests.and_then(|requests| requests.get("storage"))) {
        (Some(made), _) if made > inputs.bytes => quantity::format_bytes(made),
        (_, Some(asked)) => quantity::in_whole_bytes(&asked.0, inputs.bytes),
        (_, None) => quantity::format_bytes(inputs.bytes),
    }
}

fn claim_reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessMode;
    use serde_json::json;

    fn claim() -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1500Mi"}}, "storageClassName": "k",
                "volumeAttributesClassName": "gold",
            },
        }))
        .unwrap()
    }

    fn class(extra: serde_json::Value) -> StorageClass {
        let mut class = json!({"metadata": {"name": "k"}, "provisioner": "example.com/p"});
        class.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(class).unwrap()
    }

    fn inputs<'a>(claim: &'a PersistentVolumeClaim, class: &'a StorageClass) -> VolumeInputs<'a> {
        VolumeInputs {
            name: "pvc-u",
            bytes: 1500 << 20,
            claim,
            class,
            finalizer: true,
            identity: Some("here"),
            cluster_id: "this",
        }
    }

    // Rules: L10.
    #[test]
    fn the_volume_is_built_from_claim_and_class() {
        let (claim, class) = (claim(), class(json!({"reclaimPolicy": "Retain", "mountOptions": ["ro"]})));
        let volume =
            build(&inputs(&claim, &class), Volume::host_path("/v/pvc-u").on_node("a").label("x", "y")).unwrap();
        let got = serde_json::to_value(volume).unwrap();
        assert_eq!(
            got,
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": {
                    "name": "pvc-u", "labels": {"x": "y"},
                    "annotations": {
                        "kube-provisioner/cluster-id": "this", "kube-provisioner/identity": "here", "pv.kubernetes.io/provisioned-by": "example.com/p",
                    },
                    "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
                },
                "spec": {
                    "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1500Mi"},
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "n", "name": "c",
                        "uid": "u", "resourceVersion": "7"},
                    "hostPath": {"path": "/v/pvc-u", "type": "Directory"},
                    "mountOptions": ["ro"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "k",
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]}]}},
                    "volumeAttributesClassName": "gold", "volumeMode": "Filesystem",
                },
            })
        );
    }

    // Rules: G12, L9.
    #[test]
    fn defaults_to_delete_and_shows_a_larger_size() {
        let (claim, class) = (claim(), class(json!({})));
        let spec = build(&inputs(&claim, &class), Volume::nfs("s", "/x").capacity(2 << 30)).unwrap().spec.unwrap();
        assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
        assert_eq!(spec.capacity.unwrap()["storage"].0, "2Gi");
    }

    #[test]
    fn a_capacity_is_in_whole_bytes() {
        let (mut claim, class) = (claim(), class(json!({})));
        let requests = claim.spec.as_mut().unwrap().resources.as_mut().unwrap().requests.as_mut().unwrap();
        // Kubernetes converts 1.2Gi to this text.
        requests.insert("storage".to_owned(), Quantity("1288490188800m".to_owned()));
        let inputs = VolumeInputs { bytes: 1_288_490_189, ..inputs(&claim, &class) };
        let spec = build(&inputs, Volume::nfs("s", "/x")).unwrap().spec.unwrap();
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1288490189");
    }

    #[test]
    fn omits_an_empty_volume_attributes_class_name() {
        let mut claim = claim();
        for (name, expected) in [(None, None), (Some(""), None), (Some("silver"), Some("silver"))] {
            claim.spec.as_mut().unwrap().volume_attributes_class_name = name.map(str::to_owned);
            let spec = build(&inputs(&claim, &class(json!({}))), Volume::nfs("s", "/x")).unwrap().spec.unwrap();
            assert_eq!(spec.volume_attributes_class_name.as_deref(), expected);
        }
    }

    // Rules: G20.
    #[test]
    fn more_access_modes_than_requested_are_reported_and_fewer_are_refused() {
        let (claim, class) = (claim(), class(json!({})));
        let all = [AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany, AccessMode::ReadWriteMany];
        let made = build(&inputs(&claim, &class), Volume::nfs("s", "/x").access_modes(all)).unwrap();
        assert_eq!(made.spec.unwrap().access_modes.unwrap().len(), 3);
        let refused = build(&inputs(&claim, &class), Volume::nfs("s", "/x").access_modes([AccessMode::ReadWriteOnce]));
        assert_eq!(refused, Err(TemplateError::AccessMode("ReadOnlyMany".to_owned())));
    }

    // Rules: G20.
    #[test]
    fn rejects_invalid_volumes() {
        let (claim, class) = (claim(), class(json!({})));
        let refused = |volume| build(&inputs(&claim, &class), volume).unwrap_err();
        assert!(matches!(refused(Volume::nfs("s", "/x").capacity(1)), TemplateError::TooSmall { .. }));
        assert_eq!(refused(Volume::local("/x")), TemplateError::LocalWithoutNode);
        assert!(matches!(refused(Volume::host_path("/a/../b")), TemplateError::Path(_)));
        assert!(matches!(refused(Volume::host_path("a")), TemplateError::Path(_)));
    }
}
