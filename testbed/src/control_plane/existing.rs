//! An existing cluster, selected by a context of the user's kubeconfig.

use std::path::PathBuf;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig, NamedCluster};
use kube::{Client, Config};
use serde_json::json;

use super::instance::Instance;
use super::kubeconfig::service_account_token;
use super::pki::write_secret;
use super::state::State;
use crate::guard::Guard;

/// The user's cluster. Programs that are started for it end with this value, which also removes its local directory.
pub struct Existing {
    client: Client,
    cluster: NamedCluster,
    state: State,
    instance: Instance,
}

impl Existing {
    /// The cluster of a context in the files that `KUBECONFIG` lists, or else in `~/.kube/config`.
    pub async fn of_context(context: &str, guard: &Guard) -> anyhow::Result<Self> {
        let known = Kubeconfig::read().context("cannot read the kubeconfig")?;
        let names: Vec<_> = known.contexts.iter().map(|context| context.name.as_str()).collect();
        let found = known.contexts.iter().find(|known| known.name == context);
        let found = found
            .and_then(|found| found.context.as_ref())
            .with_context(|| format!("the kubeconfig has no context {context}; it has {}", names.join(", ")))?;
        let cluster = known.clusters.iter().find(|cluster| cluster.name == found.cluster).cloned();
        let cluster = cluster.with_context(|| format!("the context {context} names a cluster that does not exist"))?;
        let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(known, &options).await;
        let client = Client::try_from(config.with_context(|| format!("the context {context} cannot be used"))?)?;
        let instance = Instance::create()?;
        let state = State {
            dir: instance.dir.clone(),
            owner: None,
            guard: guard.exe().to_owned(),
            kubeconfig: PathBuf::new(),
            kubectl: None,
            kubernetes: None,
            server: cluster.cluster.as_ref().and_then(|cluster| cluster.server.clone()).unwrap_or_default(),
            ca_pem: String::new(),
            audit_log: None,
            node: None,
            components: Vec::new(),
            programs: Vec::new(),
        };
        Ok(Self { client, cluster, state, instance })
    }

    /// A client for the context's user.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The data that programs need about the cluster. It contains no administrator's kubeconfig.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Writes a kubeconfig for a service account, which uses the context's connection to the cluster.
    pub async fn kubeconfig_for_service_account(&self, namespace: &str, name: &str) -> anyhow::Result<PathBuf> {
        let token = service_account_token(&self.client, namespace, name, None).await?;
        let text = serde_json::to_string_pretty(&json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [self.cluster],
            "users": [{ "name": name, "user": { "token": token } }],
            "contexts": [{
                "name": name,
                "context": { "cluster": self.cluster.name, "user": name, "namespace": namespace },
            }],
            "current-context": name,
        }))?;
        let path = self.instance.dir.join(format!("{namespace}.{name}.kubeconfig"));
        write_secret(&path, &text)?;
        Ok(path)
    }

    /// Removes the local directory.
    pub fn end(self) -> anyhow::Result<()> {
        let dir = self.instance.dir.clone();
        drop(self);
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }
}
