//! Deletes the objects of a test, even if its provisioner no longer runs.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// Identifies the objects that a test may have left.
pub(super) struct Leftovers {
    pub(super) namespace: String,
    pub(super) provisioner: String,
    pub(super) made: Vec<(ApiResource, String)>,
}

impl Leftovers {
    /// True if this test's provisioner created the volume, according to its annotation or its class.
    pub(super) fn owns(&self, volume: &PersistentVolume) -> bool {
        let provisioner = volume.annotations().get("pv.kubernetes.io/provisioned-by");
        let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        let own_class = |class: &str| self.made.iter().any(|(kind, name)| kind.kind == "StorageClass" && name == class);
        provisioner.is_some_and(|name| *name == self.provisioner) || class.is_some_and(own_class)
    }
}

/// Deletes as many objects as possible within some seconds. Errors are ignored because they must not fail a test.
pub(super) async fn clean(client: Client, leftovers: &Leftovers) {
    let _ = tokio::time::timeout(Duration::from_secs(10), delete_all(client, leftovers)).await;
}

async fn delete_all(client: Client, leftovers: &Leftovers) {
    let namespace = leftovers.namespace.as_str();
    // No kubelet confirms the end of a pod, and a claim stays while a pod uses it.
    let at_once = DeleteParams::default().grace_period(0);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let _ = pods.delete_collection(&at_once, &ListParams::default()).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let _ = claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await;

    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    if let Ok(list) = volumes.list(&ListParams::default()).await {
        for volume in list.iter().filter(|volume| leftovers.owns(volume)) {
            let name = volume.name_any();
            let _ = volumes.delete(&name, &DeleteParams::default()).await;
            // The provisioner that would remove its finalizer may no longer run.
            let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let _ = volumes.patch_metadata(&name, &PatchParams::default(), &none).await;
        }
    }
    for (resource, name) in leftovers.made.iter().rev() {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        let _ = objects.delete(name, &DeleteParams::default()).await;
    }
}
