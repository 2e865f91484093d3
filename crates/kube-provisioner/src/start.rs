//! The argument of an author's `start`.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;

use crate::error::StartError;
use crate::request::{ProvisionedVolume, TEST_CLUSTER};

type List = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<PersistentVolume>, StartError>> + Send + Sync>;

/// What [`Provisioner::start`](crate::Provisioner::start) is given.
#[derive(Clone)]
#[non_exhaustive]
pub struct Start {
    /// The client that the controller uses. What the author does with it needs
    /// [rights of its own](crate::Hooks::access_rules).
    pub client: Client,
    /// The cluster in which this provisioner runs, as [`ProvisionRequest::cluster_id`](crate::ProvisionRequest::cluster_id).
    pub cluster_id: String,
    list: List,
}

impl Start {
    /// For an author's own tests: a client, and the volumes that there are.
    pub fn new(client: Client, volumes: Vec<PersistentVolume>) -> Self {
        Self::listing(client, TEST_CLUSTER, move || {
            let volumes = volumes.clone();
            Box::pin(async move { Ok(volumes) })
        })
    }

    pub(crate) fn listing(
        client: Client,
        cluster_id: &str,
        list: impl Fn() -> BoxFuture<'static, Result<Vec<PersistentVolume>, StartError>> + Send + Sync + 'static,
    ) -> Self {
        Self { client, cluster_id: cluster_id.to_owned(), list: Arc::new(list) }
    }

    /// The volumes of this provisioner that exist now. They are listed when they are asked for.
    ///
    /// # Errors
    /// When the API server does not list them.
    pub async fn volumes(&self) -> Result<Vec<ProvisionedVolume>, StartError> {
        let volumes = (self.list)().await?;
        let here = |volume| ProvisionedVolume::new(volume).in_cluster(&self.cluster_id);
        Ok(volumes.into_iter().map(here).collect())
    }
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").finish_non_exhaustive()
    }
}
