//! The owner of the published objects, which are deleted together with it.

use kube_provisioner::error_chain;
use kube_provisioner::k8s_openapi::api::core::v1::Pod;
use kube_provisioner::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube_provisioner::kube::{Client, ResourceExt};

use crate::requests::limited;

/// Follows the controllers of a pod. Level 0 is the pod, 1 its StatefulSet, DaemonSet or ReplicaSet, and 2 the
/// Deployment of the ReplicaSet.
pub(super) async fn find(client: &Client, namespace: &str, pod: &str, level: u32) -> Result<OwnerReference, String> {
    let mut resource = ApiResource::erase::<Pod>(&());
    let mut name = pod.to_owned();
    let mut level = level;
    loop {
        let ApiResource { api_version, kind, .. } = &resource;
        let what = format!("the {kind} {namespace}/{name}");
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        let object = limited(api.get_metadata(&name)).await;
        let object = object.map_err(|error| format!("{what} cannot be read: {}", error_chain(&error)))?;
        if level == 0 {
            let (api_version, kind) = (api_version.clone(), kind.clone());
            let uid = object.uid().unwrap_or_default();
            return Ok(OwnerReference { api_version, kind, name, uid, controller: Some(true), ..Default::default() });
        }
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true)).cloned();
        let owner = owner.ok_or_else(|| {
            format!("{what} has no controller; set --capacity-ownerref-level to the number of owners, or -1 for none")
        })?;
        if level == 1 {
            // The program may lack permission to read this owner.
            return Ok(OwnerReference { block_owner_deletion: None, ..owner });
        }
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        name = owner.name;
        level -= 1;
    }
}
