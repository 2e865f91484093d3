//! Removes finalizers from sources that no attempt and no waiting claim needs. external-provisioner leaves its
//! finalizer on a copied claim until the claim is deleted, and an administrator may drop an attempt: no other code
//! would release such a source.

use std::collections::BTreeSet;
use std::time::Duration;

use kube_provisioner::error_chain;
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube_provisioner::kube::api::{Api, DynamicObject, ListParams};
use kube_provisioner::kube::{Client, ResourceExt};
use kube_provisioner::protocol::{BETA_STORAGE_PROVISIONER, SELECTED_NODE, STORAGE_PROVISIONER};
use provisioner_runtime::CallError;
use serde_json::Value;
use tokio::time::sleep;

use crate::requests::{existing, limited};
use crate::source_holds::{SourceHolds, is_held};
use crate::sources::{Kind, Source, snapshot_contents};

/// The usual interval. It is long because the lists are expensive for the API server, and this process does not leave
/// finalizers behind itself.
const INTERVAL: Duration = Duration::from_secs(3600);
/// The interval while a claim waits for a protected source, the same as in external-provisioner.
const AWAITED: Duration = Duration::from_secs(300);
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
    pub(crate) holds: &'a SourceHolds,
    pub(crate) kinds: Vec<Kind>,
}

/// The result of a sweep for one source.
enum SweepResult {
    Released,
    /// A claim waits for it.
    Awaited,
    Unchanged,
}

/// The namespaces and names of sources.
type Names = BTreeSet<(String, String)>;

impl Sweep<'_> {
    /// Sweeps periodically. Never returns.
    pub(crate) async fn run(&self) {
        loop {
            let mut pause = INTERVAL;
            for kind in &self.kinds {
                let next = self.sweep(*kind).await.unwrap_or_else(|error| {
                    // Without the definition or the permission to list, this process has not protected any such source.
                    let nothing_to_do = matches!(error, CallError::Forbidden(_) | CallError::NotServed(_));
                    tracing::info!(?kind, error = error_chain(&error), "cannot list sources with finalizers");
                    if nothing_to_do { INTERVAL } else { RETRY }
                });
                pause = pause.min(next);
            }
            sleep(pause).await;
        }
    }

    /// Removes unneeded finalizers. If a source cannot be changed, the sweep continues with the others. Returns the
    /// time until the next sweep.
    async fn sweep(&self, kind: Kind) -> Result<Duration, CallError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource());
        let mut page = ListParams::default().limit(PAGE);
        let (mut pause, mut awaited) = (INTERVAL, None);
        loop {
            let list = limited(api.list_metadata(&page)).await?;
            let held = list.items.iter().filter(|object| is_held(*object, kind));
            for source in held.filter_map(|object| Source::listed(kind, &object.metadata)) {
                let Source { namespace, name, .. } = &source;
                match self.remove_finalizer(&source, &mut awaited).await {
                    Ok(SweepResult::Released) => {
                        tracing::info!(
                            ?kind,
                            namespace,
                            name,
                            "no attempt needs the source: it is no longer protected"
                        );
                    }
                    Ok(SweepResult::Awaited) => pause = pause.min(AWAITED),
                    Ok(SweepResult::Unchanged) => {}
                    Err(error) => {
                        let error = error_chain(&error);
                        tracing::warn!(
                            ?kind,
                            namespace,
                            name,
                            error,
                            "the finalizer cannot be removed from the source"
                        );
                        pause = RETRY;
                    }
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(pause),
            }
        }
    }

    /// Removes the finalizer if the source belongs to this driver and no claim waits for it. `awaited` caches the
    /// sources that claims wait for, from their first use.
    async fn remove_finalizer(&self, source: &Source, awaited: &mut Option<Names>) -> Result<SweepResult, CallError> {
        if !self.is_of_driver(source).await? {
            return Ok(SweepResult::Unchanged);
        }
        if awaited.is_none() {
            *awaited = Some(self.awaited(source.kind).await?);
        }
        let name = (source.namespace.clone(), source.name.clone());
        if awaited.as_ref().is_some_and(|awaited| awaited.contains(&name)) {
            return Ok(SweepResult::Awaited);
        }
        let was_held = self.holds.remove_finalizer(&self.client, source).await?;
        Ok(if was_held { SweepResult::Released } else { SweepResult::Unchanged })
    }

    /// Returns the sources of the claims without a volume. external-provisioner may have begun to copy them.
    async fn awaited(&self, kind: Kind) -> Result<Names, CallError> {
        let claims: Api<DynamicObject> = Api::all_with(self.client.clone(), &Kind::Claim.resource());
        let mut page = ListParams::default().limit(PAGE);
        let mut awaited = Names::new();
        loop {
            let list = limited(claims.list(&page)).await?;
            awaited.extend(list.items.iter().flat_map(|claim| awaited_by(claim, kind)));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(awaited),
            }
        }
    }

    /// Returns true if the source belongs to this driver: other drivers use the same finalizers.
    async fn is_of_driver(&self, source: &Source) -> Result<bool, CallError> {
        match source.kind {
            Kind::Claim => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &source.namespace);
                let claim = existing(claims.get(&source.name)).await?;
                let is_here = |claim: &PersistentVolumeClaim| {
                    self.node.is_none_or(|node| claim.annotations().get(SELECTED_NODE).is_some_and(|name| name == node))
                };
                let Some(claim) = claim.filter(is_here) else { return Ok(false) };
                let asked = [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER];
                let asked = asked.iter().find_map(|key| claim.annotations().get(*key)).cloned();
                let Some(volume) = claim.spec.and_then(|spec| spec.volume_name) else { return Ok(false) };
                let volumes = Api::<PersistentVolume>::all(self.client.clone());
                // The volume of a lost claim does not exist.
                let Some(volume) = existing(volumes.get(&volume)).await? else {
                    return Ok(asked.as_deref() == Some(self.driver));
                };
                Ok(volume.spec.and_then(|spec| spec.csi).is_some_and(|csi| csi.driver == self.driver))
            }
            Kind::Snapshot => {
                let resource = source.kind.resource();
                let snapshots: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &source.namespace, &resource);
                let Some(snapshot) = existing(snapshots.get(&source.name)).await? else { return Ok(false) };
                let content = snapshot.data.pointer("/status/boundVolumeSnapshotContentName").and_then(Value::as_str);
                let Some(content) = content else { return Ok(false) };
                let content = existing(snapshot_contents(&self.client).get(content)).await?;
                let driver = content.as_ref().and_then(|content| content.data.pointer("/spec/driver")?.as_str());
                Ok(driver == Some(self.driver))
            }
        }
    }
}

/// Returns the sources of this kind in the claim's namespace that the claim waits for. For other namespaces, the claim
/// may lack a grant.
fn awaited_by(claim: &DynamicObject, kind: Kind) -> Names {
    let phase = claim.data.pointer("/status/phase").and_then(Value::as_str);
    let is_waiting = matches!(phase, None | Some("" | "Pending"));
    let named = |source: &str| {
        let text = |key: &str| {
            let text = claim.data.pointer(&format!("/spec/{source}/{key}")).and_then(Value::as_str);
            text.filter(|text| !text.is_empty())
        };
        let (namespace, name) = (claim.namespace()?, text("name")?.to_owned());
        let is_here = text("namespace").is_none_or(|other| other == namespace);
        (is_here && text("kind")? == kind.resource().kind).then_some((namespace, name))
    };
    ["dataSource", "dataSourceRef"].into_iter().filter(|_| is_waiting).filter_map(named).collect()
}
