//! The finalizers that protect sources, and the attempts that need them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_provisioner::kube::api::{Api, DynamicObject, PostParams};
use kube_provisioner::kube::{Client, Resource, ResourceExt};
use provisioner_runtime::CallError;
use tokio::sync::Mutex as Turn;

use crate::requests::{existing, limited};
use crate::sources::{Kind, Source};

/// Attempts to write an object that others change at the same time.
const MAX_WRITES: u32 = 5;

/// This process's attempts by the uid of their source. They may be in several namespaces. The last one removes the
/// finalizer.
#[derive(Default)]
pub(crate) struct SourceHolds(Mutex<BTreeMap<String, Hold>>);

#[derive(Default)]
struct Hold {
    /// The names of the attempts' volumes.
    attempts: BTreeSet<String>,
    /// Serializes changes, so that a release cannot remove a finalizer that another attempt has just found in place.
    turn: Arc<Turn<()>>,
}

impl SourceHolds {
    /// Forgets the attempts of an earlier term, which may have ended since.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Protects an attempt's source, even if the finalizer was removed since the last call. Returns false if the source
    /// no longer exists or is being deleted without protection: then the driver decides.
    pub(crate) async fn protect(&self, client: &Client, source: &Source, volume: &str) -> Result<bool, CallError> {
        let turn = self.add_attempt(source, volume);
        let _turn = turn.lock().await;
        let mut is_protected = false;
        change(client, source, |object| {
            let is_new = !is_held(object, source.kind) && object.metadata.deletion_timestamp.is_none();
            is_protected = is_new || is_held(object, source.kind);
            is_new.then(|| object.finalizers_mut().push(source.kind.finalizer().to_owned()))
        })
        .await?;
        Ok(is_protected)
    }

    /// Records that an attempt needs the source.
    pub(crate) fn add_attempt(&self, source: &Source, volume: &str) -> Arc<Turn<()>> {
        let mut holds = self.lock();
        let held = holds.entry(source.uid.clone()).or_default();
        held.attempts.insert(volume.to_owned());
        held.turn.clone()
    }

    /// Records that an attempt has ended. Removes the finalizer if no other attempt needs the source.
    pub(crate) async fn release(&self, client: &Client, source: &Source, volume: &str) -> Result<(), CallError> {
        let turn = self.add_attempt(source, volume);
        let _turn = turn.lock().await;
        if !self.is_needed_by_another(source, volume) {
            unprotect(client, source).await?;
        }
        let mut holds = self.lock();
        if let Some(held) = holds.get_mut(&source.uid) {
            held.attempts.remove(volume);
            if held.attempts.is_empty() {
                holds.remove(&source.uid);
            }
        }
        Ok(())
    }

    /// Forgets an attempt that will not release its source, so that [`remove_finalizer`](Self::remove_finalizer) can.
    pub(crate) fn forget(&self, volume: &str) {
        for held in self.lock().values_mut() {
            held.attempts.remove(volume);
        }
    }

    /// Removes the finalizer from a source that no attempt needs. Returns true if the finalizer was present.
    pub(crate) async fn remove_finalizer(&self, client: &Client, source: &Source) -> Result<bool, CallError> {
        let turn = self.lock().entry(source.uid.clone()).or_default().turn.clone();
        let _turn = turn.lock().await;
        let is_needed = || self.lock().get(&source.uid).is_some_and(|held| !held.attempts.is_empty());
        let was_held = !is_needed() && unprotect(client, source).await?;
        let mut holds = self.lock();
        if holds.get(&source.uid).is_some_and(|held| held.attempts.is_empty()) {
            holds.remove(&source.uid);
        }
        Ok(was_held)
    }

    fn is_needed_by_another(&self, source: &Source, volume: &str) -> bool {
        self.lock().get(&source.uid).is_some_and(|held| held.attempts.iter().any(|holder| holder != volume))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn is_held(object: &impl ResourceExt, kind: Kind) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == kind.finalizer())
}

/// Removes the finalizer. Returns true if it was present.
async fn unprotect(client: &Client, source: &Source) -> Result<bool, CallError> {
    change(client, source, |object| {
        let finalizer = source.kind.finalizer();
        is_held(object, source.kind).then(|| object.finalizers_mut().retain(|one| one != finalizer))
    })
    .await
}

/// Writes the source back if `edit` changes it, and returns true if so. The charts of drivers grant update, not patch.
async fn change(
    client: &Client,
    source: &Source,
    mut edit: impl FnMut(&mut DynamicObject) -> Option<()>,
) -> Result<bool, CallError> {
    let Source { name, namespace, .. } = source;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &source.kind.resource());
    let mut writes = 0;
    loop {
        let Some(mut object) = existing(api.get(name)).await? else { return Ok(false) };
        if object.meta().uid.as_deref() != Some(&*source.uid) || edit(&mut object).is_none() {
            return Ok(false);
        }
        writes += 1;
        match limited(api.replace(name, &PostParams::default(), &object)).await {
            Ok(_) => return Ok(true),
            Err(CallError::Conflict) if writes < MAX_WRITES => {}
            // Charts that are older than the finalizer do not grant this.
            Err(CallError::Forbidden(reason)) if source.kind == Kind::Snapshot => {
                if is_held(&object, source.kind) {
                    tracing::info!("the VolumeSnapshot {namespace}/{name} is not protected: {reason}");
                } else {
                    tracing::warn!(
                        "the VolumeSnapshot {namespace}/{name} cannot be deleted while it has the finalizer {}, which this \
                         program may not remove: {reason}",
                        source.kind.finalizer()
                    );
                }
                return Ok(false);
            }
            Err(CallError::NotFound) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube_provisioner::error_chain;
    use kube_sim::{Cluster, Faults, PatchKind, Target};
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// Returns a cluster with slow requests, and a claim that is a source.
    fn cluster() -> (Cluster, Source) {
        cluster_with(Duration::from_millis(10))
    }

    fn cluster_with(latency: Duration) -> (Cluster, Source) {
        let cluster = Cluster::builder().faults(&Faults::none(1).latency(latency..=latency)).build();
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "source", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        let uid = cluster.create(&claim).unwrap()["metadata"]["uid"].take();
        let source = json!({"kind": "Claim", "namespace": "default", "name": "source", "uid": uid, "id": "7"});
        (cluster, serde_json::from_value(source).unwrap())
    }

    fn is_held(cluster: &Cluster) -> bool {
        let claim = cluster.get("", "persistentvolumeclaims", "default", "source").unwrap();
        claim["metadata"]["finalizers"].as_array().unwrap().contains(&json!(Kind::Claim.finalizer()))
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_that_begins_during_a_release_has_the_finalizer() {
        for later in (0..60).step_by(5).map(Duration::from_millis) {
            let (cluster, source) = cluster();
            let (client, holds) = (cluster.client("sidecar"), SourceHolds::default());
            holds.protect(&client, &source, "one").await.unwrap();
            let begin = async {
                sleep(later).await;
                holds.protect(&client, &source, "two").await
            };
            let (ended, begun) = tokio::join!(holds.release(&client, &source, "one"), begin);
            ended.unwrap();
            begun.unwrap();
            assert!(is_held(&cluster), "{later:?}");
            holds.release(&client, &source, "two").await.unwrap();
            assert!(!is_held(&cluster) && holds.lock().is_empty(), "{later:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn release_succeeds_although_others_change_the_source() {
        for later in (0..30).step_by(5).map(Duration::from_millis) {
            let (cluster, source) = cluster();
            let (client, holds) = (cluster.client("sidecar"), SourceHolds::default());
            holds.protect(&client, &source, "one").await.unwrap();
            let change = async {
                sleep(later).await;
                let target =
                    Target { group: "", plural: "persistentvolumeclaims", namespace: "default", name: "source" };
                let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
                cluster.patch(&target, None, PatchKind::Merge, &patch).unwrap();
            };
            let (released, ()) = tokio::join!(holds.release(&client, &source, "one"), change);
            released.unwrap();
            assert!(!is_held(&cluster), "{later:?}");
        }
    }

    /// The limit of an attempt does not suffice: some charts allow the driver hours for a call.
    #[tokio::test(start_paused = true)]
    async fn request_without_a_response_times_out() {
        let (cluster, source) = cluster_with(Duration::from_secs(3600));
        let (client, started) = (cluster.client("sidecar"), Instant::now());
        let error = SourceHolds::default().protect(&client, &source, "one").await.unwrap_err();
        assert!(error_chain(&error).contains("did not answer within 30s"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_of_a_former_term_hold_sources_only_if_taken_over() {
        for is_taken_over in [false, true] {
            let (cluster, source) = cluster();
            let (client, holds) = (cluster.client("sidecar"), SourceHolds::default());
            for volume in ["one", "two"] {
                holds.protect(&client, &source, volume).await.unwrap();
            }
            holds.clear();
            if is_taken_over {
                holds.add_attempt(&source, "two");
            }
            holds.release(&client, &source, "one").await.unwrap();
            assert_eq!(is_held(&cluster), is_taken_over);
        }
    }
}
