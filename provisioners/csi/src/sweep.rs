//! Takes the finalizers off sources that no attempt needs. external-provisioner leaves its finalizer on a claim that was copied until
//! that claim is deleted, and a person may drop an attempt: nobody else would let such a source go.

use std::time::Duration;

use kube_provisioner::error_chain;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube_provisioner::kube::{Client, Error as KubeError, ResourceExt};
use serde_json::Value;
use tokio::time::sleep;

use crate::holds::Holds;
use crate::sources::{Kind, SNAPSHOTS, Source};

/// The list costs the API server some work, and this process leaves no finalizer by itself.
const INTERVAL: Duration = Duration::from_secs(3600);
/// After a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Objects per request.
const PAGE: u32 = 500;

pub(crate) struct Sweep<'a> {
    pub(crate) client: Client,
    pub(crate) driver: &'a str,
    pub(crate) holds: &'a Holds,
    pub(crate) kinds: Vec<Kind>,
}

impl Sweep<'_> {
    /// Never returns.
    pub(crate) async fn run(&self) {
        loop {
            let mut pause = INTERVAL;
            for kind in &self.kinds {
                match self.sweep(*kind).await {
                    Ok(()) => {}
                    // Its definition is not installed, or the account has no right: then there is nothing that this process has to do.
                    Err(KubeError::Api(status)) if [403, 404].contains(&status.code) => {
                        tracing::debug!(?kind, "sources are not looked for: {}", status.message);
                    }
                    Err(error) => {
                        tracing::warn!(
                            ?kind,
                            error = error_chain(&error),
                            "the finalizers of sources cannot be looked for"
                        );
                        pause = RETRY;
                    }
                }
            }
            sleep(pause).await;
        }
    }

    async fn sweep(&self, kind: Kind) -> Result<(), KubeError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = api.list_metadata(&page).await?;
            for object in list.items {
                let is_held = object.finalizers().iter().any(|finalizer| finalizer == kind.finalizer());
                let source = Source::unneeded(kind, &object.metadata).filter(|_| is_held);
                if let Some(source) = source
                    && self.is_of_driver(&source).await?
                    && self.holds.let_go(&self.client, &source).await?
                {
                    let Source { namespace, name, .. } = source;
                    tracing::info!(?kind, namespace, name, "no attempt needs the source: it is not protected any more");
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Other drivers protect their sources in the same way.
    async fn is_of_driver(&self, source: &Source) -> Result<bool, KubeError> {
        match source.kind {
            Kind::Claim => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &source.namespace);
                let claim = claims.get_opt(&source.name).await?;
                let Some(volume) = claim.and_then(|claim| claim.spec?.volume_name) else { return Ok(false) };
                let volume = Api::<PersistentVolume>::all(self.client.clone()).get_opt(&volume).await?;
                let csi = volume.and_then(|volume| volume.spec?.csi);
                Ok(csi.is_some_and(|csi| csi.driver == self.driver))
            }
            Kind::Snapshot => {
                let resource = source.kind.resource();
                let snapshots: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &source.namespace, &resource);
                let Some(snapshot) = snapshots.get_opt(&source.name).await? else { return Ok(false) };
                let content = snapshot.data.pointer("/status/boundVolumeSnapshotContentName").and_then(Value::as_str);
                let Some(content) = content else { return Ok(false) };
                let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(SNAPSHOTS, "v1", "VolumeSnapshotContent"));
                let contents: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
                let content = contents.get_opt(content).await?;
                let driver = content.as_ref().and_then(|content| content.data.pointer("/spec/driver")?.as_str());
                Ok(driver == Some(self.driver))
            }
        }
    }
}
