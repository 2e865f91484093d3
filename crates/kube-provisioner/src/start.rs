//! The argument of `Provisioner::start`.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::Client;

use crate::error::StartError;
use crate::request::{ProvisionedVolume, TEST_CLUSTER};

type List = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<PersistentVolume>, StartError>> + Send + Sync>;

/// The argument of [`Provisioner::start`](crate::Provisioner::start).
#[derive(Clone)]
#[non_exhaustive]
pub struct StartContext {
    /// The client that the controller uses. Requests of the provisioner itself need
    /// [permissions of their own](crate::Hooks::access_rules).
    pub client: Client,
    /// The ID of the cluster in which this provisioner runs, as in
    /// [`ProvisionRequest::cluster_id`](crate::ProvisionRequest::cluster_id).
    pub cluster_id: String,
    list: List,
}

impl StartContext {
    /// Creates a value with a client and the existing volumes, for use in tests.
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

    /// Lists the volumes of this provisioner that exist now. The list is read from the API server on each call.
    ///
    /// # Errors
    /// If the API server cannot list them.
    pub async fn volumes(&self) -> Result<Vec<ProvisionedVolume>, StartError> {
        let volumes = (self.list)().await?;
        let here = |volume| ProvisionedVolume::new(volume).in_cluster(&self.cluster_id);
        Ok(volumes.into_iter().map(here).collect())
    }
}

impl std::fmt::Debug for StartContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StartContext").finish_non_exhaustive()
    }
}
