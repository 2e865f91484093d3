//! Kubeconfig files that only their owner can read.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};

use super::pki::{Identity, write_secret};
use super::state::State;

/// Writes a kubeconfig for a service account, with a token that is valid for 24 hours, and returns its path. A second
/// call for the same account replaces the file.
pub async fn kubeconfig_for_service_account(
    client: &Client,
    state: &State,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PathBuf> {
    let token = service_account_token(client, namespace, name, None).await?;
    write_for_account(state, (namespace, name), name, &token)
}

/// Like [`kubeconfig_for_service_account`], with the token of a pod of the account. The token names the pod and its
/// node, and is valid as long as the pod exists.
pub async fn kubeconfig_for_pod(client: &Client, state: &State, pod: &Pod) -> anyhow::Result<PathBuf> {
    let namespace = pod.metadata.namespace.as_deref().context("a pod without a namespace")?;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let token = service_account_token(client, namespace, account, Some(pod)).await?;
    write_for_account(state, (namespace, account), &pod.name_any(), &token)
}

fn write_for_account(
    state: &State,
    (namespace, account): (&str, &str),
    file: &str,
    token: &str,
) -> anyhow::Result<PathBuf> {
    let dir = state.dir.join("service-accounts");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{namespace}.{file}.kubeconfig"));
    let user = format!("system:serviceaccount:{namespace}:{account}");
    write(&path, &state.server, &state.ca_pem, &user, namespace, json!({ "token": token }))?;
    Ok(path)
}

/// Requests a token for a service account, valid for 24 hours, and bound to a pod if one is given.
pub async fn service_account_token(
    client: &Client,
    namespace: &str,
    name: &str,
    pod: Option<&Pod>,
) -> anyhow::Result<String> {
    let bound = pod.map(|pod| BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    });
    let spec = TokenRequestSpec {
        bound_object_ref: bound,
        expiration_seconds: Some(24 * 60 * 60),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer: TokenRequest = accounts
        .create_subresource("token", name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for service account {namespace}/{name}"))?;
    Ok(answer.status.context("the API server's answer has no token")?.token)
}

/// A client for the user of a kubeconfig file.
pub async fn client_from(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

/// The client configuration for the user of a kubeconfig file.
pub async fn config_from(kubeconfig: &Path) -> anyhow::Result<Config> {
    let parsed = Kubeconfig::read_from(kubeconfig).with_context(|| format!("cannot read {}", kubeconfig.display()))?;
    Ok(Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?)
}

pub(super) fn write_for(path: &Path, server: &str, ca_pem: &str, identity: &Identity) -> anyhow::Result<()> {
    let credentials = json!({
        "client-certificate-data": base64(identity.cert_pem.as_bytes()),
        "client-key-data": base64(identity.key_pem.as_bytes()),
    });
    write(path, server, ca_pem, &identity.user, "default", credentials)
}

/// Writes JSON, which is also YAML, so that every reader of kubeconfigs accepts it.
fn write(
    path: &Path,
    server: &str,
    ca_pem: &str,
    user: &str,
    namespace: &str,
    credentials: Value,
) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "test",
            "cluster": { "server": server, "certificate-authority-data": base64(ca_pem.as_bytes()) },
        }],
        "users": [{ "name": user, "user": credentials }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user, "namespace": namespace } }],
        "current-context": "test",
    }))?;
    write_secret(path, &text)
}

/// Base64 with padding, through the type that Kubernetes' API uses for it.
fn base64(bytes: &[u8]) -> Value {
    json!(k8s_openapi::ByteString(bytes.to_vec()))
}
