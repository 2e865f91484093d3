//! Deletes objects whose owners no longer exist: `pkg/controller/garbagecollector` of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::api::{Api, ObservedObject};
use super::protection::remove_finalizer;
use super::worker::{Controller, WorkQueue};
use crate::object;
use crate::request::{DeleteOptions, Preconditions};
use crate::resource::{Resource, StorageId};
use crate::status::Status;
use crate::store::{ChangeKind, Stored, key};
use crate::subscription::Change;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The garbage collector with its graph of owners and dependents.
#[derive(Default)]
pub(super) struct GarbageCollector {
    resources: BTreeMap<StorageId, Arc<Resource>>,
    /// Dependents by their owner's UID.
    dependents: BTreeMap<String, BTreeSet<ObjectKey>>,
    owners: BTreeMap<ObjectKey, Vec<Owner>>,
}

/// An object: its storage, and its key there.
pub(super) type ObjectKey = (StorageId, String);

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    blocks: bool,
}

/// `classifyReferences`: the state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReferenceClass {
    /// The owner exists, or its existence is unknown.
    Solid,
    /// The owner waits for the deletion of its dependents.
    WaitingForDependents,
    /// The owner does not exist.
    Dangling,
}

impl Controller for GarbageCollector {
    type Key = ObjectKey;

    const RESOURCES: &'static [(&'static str, &'static str)] = &[];

    fn observe(&mut self, change: &Change, api: &Api, queue: &mut WorkQueue<ObjectKey>) {
        let object = change.object();
        let id = (change.resource.storage, key(object.namespace(), object.name()));
        let deleted = change.kind == ChangeKind::Deleted;
        let owners = if deleted || !object.is_owned() { Vec::new() } else { owners(&object.parsed()) };
        if owners.is_empty() && !self.owners.contains_key(&id) && !deleted && !object.is_deleting() {
            return;
        }
        self.resources.entry(id.0).or_insert_with(|| Arc::clone(&change.resource));
        let before = self.replace(&id, &owners);
        if before != owners {
            // This may be the last dependent that an owner in foreground deletion waits for.
            for owner in &before {
                queue.extend(self.owner_id(owner, object.namespace(), api));
            }
            if !owners.is_empty() {
                queue.add(id.clone());
            }
        }
        if deleted {
            queue.extend(self.dependents.get(object.uid()).into_iter().flatten().cloned());
        } else if object.is_deleting() {
            queue.add(id);
        }
    }

    async fn sync(&mut self, id: ObjectKey, api: &mut Api, queue: &mut WorkQueue<ObjectKey>) -> Result<(), Status> {
        let Some(resource) = self.resources.get(&id.0).cloned() else { return Ok(()) };
        let (namespace, name) = id.1.rsplit_once('/').unwrap_or(("", &id.1));
        let Some(object) = api.peek(&resource, namespace, name).map(ObservedObject::from) else { return Ok(()) };
        let held = |finalizer: &str| object::finalizers(&object.value).any(|name| name == finalizer);
        if !object.stored.is_deleting() {
            self.collect(&resource, &object, api).await
        } else if held(ORPHAN) {
            self.orphan(&resource, &object, api).await
        } else if held(FOREGROUND) {
            self.delete_dependents(&resource, &object, api, queue).await
        } else {
            Ok(())
        }
    }
}

impl GarbageCollector {
    /// Records an object's owners, and returns the previous ones.
    fn replace(&mut self, id: &ObjectKey, owners: &[Owner]) -> Vec<Owner> {
        let before = self.owners.remove(id).unwrap_or_default();
        for owner in &before {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        for owner in owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(id.clone());
        }
        if !owners.is_empty() {
            self.owners.insert(id.clone(), owners.to_vec());
        }
        before
    }

    /// Deletes an object without existing owners, or removes its references to missing ones: `attemptToDeleteItem`.
    async fn collect(&self, resource: &Arc<Resource>, object: &ObservedObject, api: &mut Api) -> Result<(), Status> {
        let owners = owners(&object.value);
        let found: Vec<ReferenceClass> = owners.iter().map(|owner| classify(owner, resource, object, api)).collect();
        if owners.is_empty() || found.iter().all(|found| *found == ReferenceClass::Solid) {
            return Ok(());
        }
        if found.contains(&ReferenceClass::Solid) {
            let gone = owners.iter().zip(&found).filter(|(_, found)| **found != ReferenceClass::Solid);
            let gone: BTreeSet<&str> = gone.map(|(owner, _)| owner.uid.as_str()).collect();
            return disown(resource, object, &gone, api).await;
        }
        let held = |finalizer: &str| object::finalizers(&object.value).any(|name| name == finalizer);
        let has_dependents = self.dependents.contains_key(object.stored.uid());
        let policy = match () {
            () if found.contains(&ReferenceClass::WaitingForDependents) && has_dependents => "Foreground",
            () if held(ORPHAN) => "Orphan",
            () if held(FOREGROUND) => "Foreground",
            () => "Background",
        };
        let options = DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(object.stored.uid().to_owned()),
                ..Preconditions::default()
            }),
            propagation_policy: Some(policy.to_owned()),
            ..DeleteOptions::default()
        };
        api.delete(resource, &object.stored, options).await
    }

    /// Removes an owner from all its dependents, then removes its finalizer: `orphanDependents`.
    async fn orphan(&self, resource: &Arc<Resource>, owner: &ObservedObject, api: &mut Api) -> Result<(), Status> {
        let uid = owner.stored.uid();
        for (resource, dependent) in self.dependents_of(uid, api) {
            disown(&resource, &dependent.into(), &BTreeSet::from([uid]), api).await?;
        }
        remove_finalizer(resource, owner, ORPHAN, api).await
    }

    /// Removes the finalizer of an owner whose dependents no longer exist: `processDeletingDependentsItem`.
    async fn delete_dependents(
        &self,
        resource: &Arc<Resource>,
        owner: &ObservedObject,
        api: &mut Api,
        queue: &mut WorkQueue<ObjectKey>,
    ) -> Result<(), Status> {
        let uid = owner.stored.uid();
        let mut blocked = false;
        for (resource, dependent) in self.dependents_of(uid, api) {
            let id = (resource.storage, key(dependent.namespace(), dependent.name()));
            let known = self.owners.get(&id).into_iter().flatten();
            blocked |= known.filter(|owner| owner.uid == uid).any(|owner| owner.blocks);
            if !dependent.is_deleting() {
                queue.add(id);
            }
        }
        if blocked { Ok(()) } else { remove_finalizer(resource, owner, FOREGROUND, api).await }
    }

    fn dependents_of(&self, uid: &str, api: &Api) -> Vec<(Arc<Resource>, Arc<Stored>)> {
        let ids = self.dependents.get(uid).into_iter().flatten();
        let found = ids.filter_map(|(storage, name)| {
            let resource = self.resources.get(storage)?;
            let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
            Some((Arc::clone(resource), api.peek(resource, namespace, name)?))
        });
        found.collect()
    }

    fn owner_id(&mut self, owner: &Owner, namespace: &str, api: &Api) -> Option<ObjectKey> {
        let resource = api.resource_of_kind(&owner.api_version, &owner.kind)?;
        let namespace = if resource.namespaced { namespace } else { "" };
        let id = (resource.storage, key(namespace, &owner.name));
        self.resources.entry(id.0).or_insert(resource);
        Some(id)
    }
}

fn owners(object: &Value) -> Vec<Owner> {
    let list = object::meta(object, "ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let read = |owner: &Value| {
        let text = |field: &str| object::text_at(owner, &[field]).to_owned();
        Owner {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            blocks: owner["blockOwnerDeletion"] == true,
        }
    };
    list.map(read).collect()
}

/// Looks up an owner. An owner of unknown kind, or a namespaced owner of a cluster-scoped object, is treated as
/// existing, so that its dependents are not deleted.
fn classify(owner: &Owner, resource: &Resource, object: &ObservedObject, api: &Api) -> ReferenceClass {
    let Some(owners) = api.resource_of_kind(&owner.api_version, &owner.kind) else { return ReferenceClass::Solid };
    if owners.namespaced && !resource.namespaced {
        return ReferenceClass::Solid;
    }
    let namespace = if owners.namespaced { object.stored.namespace() } else { "" };
    match api.peek(&owners, namespace, &owner.name).filter(|found| found.uid() == owner.uid) {
        None => ReferenceClass::Dangling,
        Some(found) if found.is_deleting() && object::finalizers(&found.parsed()).any(|name| name == FOREGROUND) => {
            ReferenceClass::WaitingForDependents
        }
        Some(_) => ReferenceClass::Solid,
    }
}

/// Removes owners from an object.
async fn disown(
    resource: &Arc<Resource>,
    object: &ObservedObject,
    uids: &BTreeSet<&str>,
    api: &mut Api,
) -> Result<(), Status> {
    let change = |object: &mut Value| {
        let Some(Value::Array(owners)) = object::metadata_mut(object).get_mut("ownerReferences") else { return };
        owners.retain(|owner| !uids.contains(object::text_at(owner, &["uid"])));
        if owners.is_empty() {
            object::remove_meta(object, "ownerReferences");
        }
    };
    api.update(resource, object, None, change).await.map(drop)
}
