//! Probes of the components' readiness.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client, Config};

use super::kubeconfig::config_from;
use super::state::{Process, State};

/// A client with the administrator's certificate. The certificates of all components come from the same authority.
pub(super) struct Prober {
    config: Config,
}

impl Prober {
    pub(super) async fn new(state: &State) -> anyhow::Result<Self> {
        let mut config = config_from(&state.kubeconfig).await?;
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        config.default_retry = false;
        Ok(Self { config })
    }

    /// True if the component reports that it is ready.
    pub(super) async fn is_ready(&self, component: &Process) -> bool {
        match &component.health {
            Some(health) => self.get(&health.url).await.is_ok_and(|answer| answer.contains(&health.says)),
            None => true,
        }
    }

    /// The response for a URL of any component.
    pub(super) async fn get(&self, url: &str) -> anyhow::Result<String> {
        let (base, path) = split(url).with_context(|| format!("{url} is no URL"))?;
        let mut config = self.config.clone();
        config.cluster_url = base.parse()?;
        let client = Client::try_from(config)?;
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(tokio::time::timeout(PATIENCE, client.request_text(request)).await??)
    }

    /// True if the default namespace has its service account, without which pods cannot be created there.
    pub(super) async fn has_default_service_account(&self) -> bool {
        let Ok(client) = Client::try_from(self.config.clone()) else {
            return false;
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        tokio::time::timeout(PATIENCE, accounts.get("default")).await.is_ok_and(|answer| answer.is_ok())
    }
}

const PATIENCE: Duration = Duration::from_secs(2);

/// Splits `https://host:port/path` before the path.
fn split(url: &str) -> Option<(&str, &str)> {
    let authority = url.find("://")? + 3;
    let path = authority + url[authority..].find('/')?;
    Some(url.split_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_before_the_path() {
        assert_eq!(split("https://127.0.0.1:1/a/b"), Some(("https://127.0.0.1:1", "/a/b")));
        assert_eq!(split("https://127.0.0.1:1"), None);
    }
}
