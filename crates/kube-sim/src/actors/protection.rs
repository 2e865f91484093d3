//! Protects claims that pods use, and bound volumes, from deletion: `pkg/controller/volume/pvcprotection` and
//! `pvprotection` of Kubernetes. Since 1.37 `pvcprotection` also sets the claim's condition `Unused` (KEP-5541).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::api::{Api, ObservedObject};
use super::worker::{Controller, WorkQueue};
use super::{pods, storage};
use crate::object;
use crate::request::Subresource;
use crate::resource::Resource;
use crate::status::Status;
use crate::store::{ChangeKind, Stored, key};
use crate::subscription::Change;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Both controllers with their index of pods and claims.
#[derive(Default)]
pub(super) struct Protection {
    /// Known pods by their key.
    pods: BTreeMap<String, Pod>,
    /// Keys of the pods that use a claim, by the claim's key.
    users: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A claim, by namespace and name.
    Claim(String),
    /// A volume.
    Volume(String),
}

/// Cached facts about a pod.
struct Pod {
    /// Namespaces and names of its claims.
    claims: Vec<String>,
    scheduled: bool,
    ended: bool,
}

/// The pods that count as users of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Pods on a node that have mounted the volume, or may have.
    HoldsVolume,
    /// Pods that refer to the claim and have not ended.
    WantsVolume,
}

impl Controller for Protection {
    type Key = Key;

    const RESOURCES: &'static [(&'static str, &'static str)] =
        &[("", "persistentvolumeclaims"), ("", "persistentvolumes"), ("", "pods")];

    fn observe(&mut self, change: &Change, _: &Api, queue: &mut WorkQueue<Key>) {
        let object = change.object();
        let deleted = change.kind == ChangeKind::Deleted;
        let name = key(object.namespace(), object.name());
        match change.resource.plural.as_str() {
            "pods" => self.observe_pod(name, (!deleted).then_some(object), queue),
            _ if deleted => {}
            "persistentvolumeclaims" => queue.add(Key::Claim(name)),
            _ => queue.add(Key::Volume(name)),
        }
    }

    async fn sync(&mut self, key: Key, api: &mut Api, _: &mut WorkQueue<Key>) -> Result<(), Status> {
        match key {
            Key::Claim(name) => {
                let (namespace, name) = name.split_once('/').unwrap_or_default();
                match api.peek(storage::claims(), namespace, name) {
                    Some(claim) => self.sync_claim(&claim.into(), api).await,
                    None => Ok(()),
                }
            }
            Key::Volume(name) => match api.peek(storage::volumes(), "", &name) {
                Some(volume) => sync_volume(&volume.into(), api).await,
                None => Ok(()),
            },
        }
    }
}

impl Protection {
    fn observe_pod(&mut self, name: String, pod: Option<&Arc<Stored>>, queue: &mut WorkQueue<Key>) {
        for claim in self.pods.remove(&name).into_iter().flat_map(|before| before.claims) {
            if let Some(users) = self.users.get_mut(&claim) {
                users.remove(&name);
                if users.is_empty() {
                    self.users.remove(&claim);
                }
            }
            queue.add(Key::Claim(claim));
        }
        if let Some(now) = pod.map(Pod::of) {
            for claim in &now.claims {
                self.users.entry(claim.clone()).or_default().insert(name.clone());
                queue.add(Key::Claim(claim.clone()));
            }
            self.pods.insert(name, now);
        }
    }

    async fn sync_claim(&mut self, claim: &ObservedObject, api: &mut Api) -> Result<(), Status> {
        let protected = object::finalizers(&claim.value).any(|name| name == CLAIM_FINALIZER);
        if claim.stored.is_deleting() {
            return if protected && !self.is_used(claim, Use::HoldsVolume, api).await {
                remove_finalizer(storage::claims(), claim, CLAIM_FINALIZER, api).await
            } else {
                Ok(())
            };
        }
        if storage::phase(&claim.value) == "Bound" {
            let used = self.is_used(claim, Use::WantsVolume, api).await;
            update_unused_condition(claim, used, api).await?;
        }
        if protected { Ok(()) } else { add_finalizer(storage::claims(), claim, CLAIM_FINALIZER, api).await }
    }

    /// Returns whether a pod uses a claim. Trusts the cache if it lists a user; otherwise it lists the pods from the
    /// API server.
    async fn is_used(&mut self, claim: &ObservedObject, kind: Use, api: &mut Api) -> bool {
        let (namespace, name) = (claim.stored.namespace(), claim.stored.name());
        let users = self.users.get(&key(namespace, name)).into_iter().flatten();
        if users.filter_map(|pod| self.pods.get(pod)).any(|pod| pod.counts(kind)) {
            return true;
        }
        let pods = api.list(storage::pods(), Some(namespace)).await;
        pods.iter().map(Pod::of).any(|pod| pod.counts(kind) && pod.claims.contains(&key(namespace, name)))
    }
}

impl Pod {
    fn of(pod: &Arc<Stored>) -> Self {
        let value = pod.parsed();
        Self {
            claims: pods::claims_of(&value).map(|name| key(pod.namespace(), &name)).collect(),
            scheduled: !pods::node(&value).is_empty(),
            ended: pods::has_ended(&value),
        }
    }

    fn counts(&self, kind: Use) -> bool {
        match kind {
            Use::HoldsVolume => self.scheduled,
            Use::WantsVolume => !self.ended,
        }
    }
}

async fn sync_volume(volume: &ObservedObject, api: &mut Api) -> Result<(), Status> {
    let protected = object::finalizers(&volume.value).any(|name| name == VOLUME_FINALIZER);
    match (volume.stored.is_deleting(), protected) {
        (true, true) if storage::phase(&volume.value) != "Bound" => {
            remove_finalizer(storage::volumes(), volume, VOLUME_FINALIZER, api).await
        }
        (false, false) => add_finalizer(storage::volumes(), volume, VOLUME_FINALIZER, api).await,
        _ => Ok(()),
    }
}

/// `updateUnusedCondition`.
async fn update_unused_condition(claim: &ObservedObject, used: bool, api: &mut Api) -> Result<(), Status> {
    let (status, reason, message) = if used {
        ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
    } else {
        ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")
    };
    let known = object::at(&claim.value, &["status", "conditions"]).and_then(Value::as_array);
    let mut conditions = known.cloned().unwrap_or_default();
    let own = conditions.iter_mut().find(|condition| condition["type"] == "Unused");
    if own.as_ref().is_some_and(|condition| condition["status"] == status) {
        return Ok(());
    }
    let condition = json!({
        "type": "Unused", "status": status, "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": api.cluster().clock().seconds(),
    });
    match own {
        Some(own) => *own = condition,
        None => conditions.push(condition),
    }
    let change = |claim: &mut Value| claim["status"]["conditions"] = conditions.into();
    api.update(storage::claims(), claim, Some(Subresource::Status), change).await.map(drop)
}

async fn add_finalizer(
    resource: &Arc<Resource>,
    seen: &ObservedObject,
    name: &str,
    api: &mut Api,
) -> Result<(), Status> {
    let change = |object: &mut Value| {
        let finalizers: Vec<String> = object::finalizers(object).chain([name]).map(str::to_owned).collect();
        object::set_finalizers(object, finalizers);
    };
    api.update(resource, seen, None, change).await.map(drop)
}

/// Removes a finalizer from an object.
pub(super) async fn remove_finalizer(
    resource: &Arc<Resource>,
    seen: &ObservedObject,
    name: &str,
    api: &mut Api,
) -> Result<(), Status> {
    let change = |object: &mut Value| {
        let others = object::finalizers(object).filter(|finalizer| *finalizer != name);
        let others: Vec<String> = others.map(str::to_owned).collect();
        object::set_finalizers(object, others);
    };
    api.update(resource, seen, None, change).await.map(drop)
}
