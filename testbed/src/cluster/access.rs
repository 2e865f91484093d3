//! Service accounts with exactly the permissions that a test grants.

use std::path::PathBuf;

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, TypeMeta};
use kube::{Api, Client, ResourceExt};
use kube_provisioner::rbac::{AccessRule, Account, manifests};
use serde_json::Value;

use super::TestSpace;
use crate::control_plane::{client_from, kubeconfig_for_pod, kubeconfig_for_service_account};

/// Access to the cluster as a service account.
#[derive(Clone, Debug)]
pub struct Access {
    /// The user name as the API server sees it.
    pub user: String,
    /// A kubeconfig with a token of the account.
    pub kubeconfig: PathBuf,
}

impl Access {
    /// A client that uses this kubeconfig.
    pub async fn client(&self) -> anyhow::Result<Client> {
        client_from(&self.kubeconfig).await
    }
}

impl TestSpace {
    /// Creates a service account with these permissions in this test's namespace.
    pub async fn account(&self, name: &str, rules: &[AccessRule]) -> anyhow::Result<Access> {
        self.apply(&manifests(&Account { name, namespace: self.namespace() }, rules)).await?;
        self.access_of(name).await
    }

    /// Access for an existing service account, such as one that [`TestSpace::apply`] created.
    pub async fn access_of(&self, account: &str) -> anyhow::Result<Access> {
        let state = self.cluster().state();
        let kubeconfig = kubeconfig_for_service_account(&self.client(), state, self.namespace(), account).await?;
        Ok(Access { user: format!("system:serviceaccount:{}:{account}", self.namespace()), kubeconfig })
    }

    /// Access as the service account of a pod, with a token that names the pod and its node.
    pub async fn access_of_pod(&self, pod: &Pod) -> anyhow::Result<Access> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let kubeconfig = kubeconfig_for_pod(&self.client(), self.cluster().state(), pod).await?;
        Ok(Access { user: format!("system:serviceaccount:{}:{account}", self.namespace()), kubeconfig })
    }

    /// [`apply`]s manifests as administrator; cluster-scoped objects are deleted at the end.
    pub async fn apply(&self, manifests: &[Value]) -> anyhow::Result<()> {
        for manifest in manifests {
            let (resource, object) = parse(manifest)?;
            if object.namespace().is_none() {
                self.delete_at_end(resource, object.name_any());
            }
        }
        apply(&self.client(), manifests).await
    }
}

/// Creates or updates objects of any kind, like `kubectl apply --server-side`. Objects without a namespace are
/// cluster-scoped.
pub async fn apply(client: &Client, manifests: &[Value]) -> anyhow::Result<()> {
    for manifest in manifests {
        let (api, name) = api_of(client, manifest)?;
        let parameters = PatchParams::apply("e2e").force();
        let applied = api.patch(&name, &parameters, &Patch::Apply(manifest)).await;
        applied.with_context(|| format!("cannot apply {}", described(manifest)))?;
    }
    Ok(())
}

/// The objects that exist, as texts such as `Namespace demo`.
pub async fn existing(client: &Client, manifests: &[Value]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for manifest in manifests {
        let (api, name) = api_of(client, manifest)?;
        let object = api.get_metadata_opt(&name).await;
        if object.with_context(|| format!("cannot look for {}", described(manifest)))?.is_some() {
            found.push(described(manifest));
        }
    }
    Ok(found)
}

/// Requests the deletion of the objects in reverse order. Ignores objects that do not exist.
pub async fn remove(client: &Client, manifests: &[Value]) -> anyhow::Result<()> {
    for manifest in manifests.iter().rev() {
        let (api, name) = api_of(client, manifest)?;
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            removed => {
                removed.with_context(|| format!("cannot delete {}", described(manifest)))?;
            }
        }
    }
    Ok(())
}

fn api_of(client: &Client, manifest: &Value) -> anyhow::Result<(Api<DynamicObject>, String)> {
    let (resource, object) = parse(manifest)?;
    let api = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, object.name_any()))
}

fn described(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
}

fn parse(manifest: &Value) -> anyhow::Result<(ApiResource, DynamicObject)> {
    let object: DynamicObject = serde_json::from_value(manifest.clone()).context("not a Kubernetes object")?;
    let types: &TypeMeta = object.types.as_ref().context("an object has no kind")?;
    let kind = types.try_into().with_context(|| format!("{} is no API version", types.api_version))?;
    Ok((ApiResource::from_gvk(&kind), object))
}
