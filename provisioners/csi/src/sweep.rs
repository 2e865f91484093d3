//! Removes finalizers from sources that no attempt needs. external-provisioner leaves its finalizer on a copied claim
//! until the claim is deleted, and an administrator may drop an attempt: no other code would release such a source.

use std::time::Duration;

use kube_provisioner::error_chain;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::kube::api::{Api, DynamicObject, ListParams};
use kube_provisioner::kube::{Client, Error as KubeError, ResourceExt};
use kube_provisioner::protocol::SELECTED_NODE;
use serde_json::Value;
use tokio::time::sleep;

use crate::holds::{Holds, is_held};
use crate::requests::limited;
use crate::sources::{Kind, Source, snapshot_contents};

/// Long, because the lists are expensive for the API server, and this process does not leave finalizers behind itself.
const INTERVAL: Duration = Duration::from_secs(3600);
/// The interval after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// The number of objects per request.
const PAGE: u32 = 500;

pub(crate) struct Sweep<'a> {
    pub(crate) client: Client,
    pub(crate) driver: &'a str,
    /// The node of this replica, if each node has one. Only sources on this node are swept: their attempts are known
    /// here.
    pub(crate) node: Option<&'a str>,
    pub(crate) holds: &'a Holds,
    pub(crate) kinds: Vec<Kind>,
}

impl Sweep<'_> {
    /// Sweeps periodically. Never returns.
    pub(crate) async fn run(&self) {
        loop {
            let mut is_whole = true;
            for kind in &self.kinds {
                is_whole &= self.sweep(*kind).await.unwrap_or_else(|error| {
                    // Without the definition or the permission to list, this process has not protected any such source.
                    let nothing_to_do = matches!(&error, KubeError::Api(status) if [403, 404].contains(&status.code));
                    tracing::info!(?kind, error = error_chain(&error), "cannot list sources with finalizers");
                    nothing_to_do
                });
            }
            sleep(if is_whole { INTERVAL } else { RETRY }).await;
        }
    }

    /// Removes unneeded finalizers. Returns false if a source could not be changed; the sweep continues with the
    /// others.
    async fn sweep(&self, kind: Kind) -> Result<bool, KubeError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        let mut page = ListParams::default().limit(PAGE);
        let mut is_whole = true;
        loop {
            let list = limited(api.list_metadata(&page)).await?;
            let held = list.items.iter().filter(|object| is_held(*object, kind));
            for source in held.filter_map(|object| Source::listed(kind, &object.metadata)) {
                let Source { namespace, name, .. } = &source;
                match self.let_go(&source).await {
                    Ok(true) => {
                        tracing::info!(
                            ?kind,
                            namespace,
                            name,
                            "no attempt needs the source: it is not protected any more"
                        );
                    }
                    Ok(false) => {}
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(
                            ?kind,
                            namespace,
                            name,
                            error,
                            "the finalizer cannot be removed from the source"
                        );
                        is_whole = false;
                    }
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(is_whole),
            }
        }
    }

    async fn let_go(&self, source: &Source) -> Result<bool, KubeError> {
        Ok(self.is_of_driver(source).await? && self.holds.let_go(&self.client, source).await?)
    }

    /// Returns true if the source belongs to this driver: other drivers use the same finalizers.
    async fn is_of_driver(&self, source: &Source) -> Result<bool, KubeError> {
        match source.kind {
            Kind::Claim => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &source.namespace);
                let claim = limited(claims.get_opt(&source.name)).await?;
                let is_here = |claim: &PersistentVolumeClaim| {
                    self.node.is_none_or(|node| claim.annotations().get(SELECTED_NODE).is_some_and(|name| name == node))
                };
                let claim = claim.filter(is_here);
                let Some(volume) = claim.and_then(|claim| claim.spec?.volume_name) else { return Ok(false) };
                let volumes = Api::<PersistentVolume>::all(self.client.clone());
                let volume = limited(volumes.get_opt(&volume)).await?;
                let csi = volume.and_then(|volume| volume.spec?.csi);
                Ok(csi.is_some_and(|csi| csi.driver == self.driver))
            }
            Kind::Snapshot => {
                let resource = source.kind.resource();
                let snapshots: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &source.namespace, &resource);
                let Some(snapshot) = limited(snapshots.get_opt(&source.name)).await? else { return Ok(false) };
                let content = snapshot.data.pointer("/status/boundVolumeSnapshotContentName").and_then(Value::as_str);
                let Some(content) = content else { return Ok(false) };
                let content = limited(snapshot_contents(&self.client).get_opt(content)).await?;
                let driver = content.as_ref().and_then(|content| content.data.pointer("/spec/driver")?.as_str());
                Ok(driver == Some(self.driver))
            }
        }
    }
}
