//! Kubeconfig files, readable by their owner only.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::pki::{Identity, write_secret};
use super::state::State;

/// Writes a kubeconfig for a service account, with a token of 24 hours that the API server issues for it, and returns
/// its path. A second call for the same account replaces the file.
pub async fn kubeconfig_for_service_account(
    client: &Client,
    state: &State,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PathBuf> {
    let token = service_account_token(client, namespace, name).await?;
    let dir = state.dir.join("service-accounts");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{namespace}.{name}.kubeconfig"));
    let user = format!("system:serviceaccount:{namespace}:{name}");
    write(&path, &state.server, &state.ca_pem, &user, namespace, json!({ "token": token }))?;
    Ok(path)
}

/// Asks the API server for a service account's token, valid for 24 hours.
pub async fn service_account_token(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(24 * 60 * 60), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
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

/// JSON is YAML too, and every reader of kubeconfigs takes it.
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
