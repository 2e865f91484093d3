//! The argument of an author's `start`.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;

use crate::error::StartError;
use crate::request::ProvisionedVolume;

type List = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<PersistentVolume>, StartError>> + Send + Sync>;

/// What [`Provisioner::start`](crate::Provisioner::start) is given.
#[derive(Clone)]
pub struct Start {
    client: Client,
    list: List,
}

impl Start {
    /// For an author's own tests: a client, and the volumes that there are.
    pub fn new(client: Client, volumes: Vec<PersistentVolume>) -> Self {
        Self::listing(client, move || {
            let volumes = volumes.clone();
            Box::pin(async move { Ok(volumes) })
        })
    }

    pub(crate) fn listing(
        client: Client,
        list: impl Fn() -> BoxFuture<'static, Result<Vec<PersistentVolume>, StartError>> + Send + Sync + 'static,
    ) -> Self {
        Self { client, list: Arc::new(list) }
    }

    /// The client that the controller uses. What the author does with it needs
    /// [rights of its own](crate::Provisioner::access_rules).
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The volumes of this provisioner that exist now. They are listed when they are asked for.
    ///
    /// # Errors
    /// When the API server does not list them.
    pub async fn volumes(&self) -> Result<Vec<ProvisionedVolume>, StartError> {
        let volumes = (self.list)().await?;
        Ok(volumes.into_iter().map(ProvisionedVolume::new).collect())
    }
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").finish_non_exhaustive()
    }
}
