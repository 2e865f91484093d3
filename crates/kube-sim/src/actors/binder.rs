//! The binder of claims and volumes: `pkg/controller/volume/persistentvolume` of Kubernetes 1.37.

mod claims;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, ObservedObject};
use super::storage::{self, claim_ref};
use super::volume_index::VolumeIndex;
use super::worker::{Controller, WorkQueue};
use crate::status::Status;
use crate::store::{ChangeKind, Stored, key};
use crate::subscription::Change;

/// Resync period (`--pvclaimbinder-sync-period`). Some changes are noticed only at a resync.
const RESYNC: Duration = Duration::from_secs(15);

/// The binder with its caches.
#[derive(Default)]
pub(super) struct Binder {
    claims: BTreeMap<String, Arc<Stored>>,
    volumes: VolumeIndex,
    classes: BTreeMap<String, Arc<Stored>>,
    /// Keys whose last sync could not complete.
    waiting: BTreeSet<Key>,
    /// Time of the next resync.
    resync: Option<Instant>,
    start: Option<Instant>,
}

/// A key of the binder's queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A claim, by namespace and name.
    Claim(String),
    /// A volume.
    Volume(String),
    /// All keys in `waiting`.
    Resync,
}

impl Controller for Binder {
    type Key = Key;

    const RESOURCES: &'static [(&'static str, &'static str)] =
        &[("", "persistentvolumeclaims"), ("", "persistentvolumes"), ("storage.k8s.io", "storageclasses")];

    fn observe(&mut self, change: &Change, _: &Api, queue: &mut WorkQueue<Key>) {
        let object = change.object();
        match change.resource.plural.as_str() {
            "persistentvolumeclaims" => self.observe_claim(change, queue),
            "persistentvolumes" => self.observe_volume(change, queue),
            _ => match change.kind {
                ChangeKind::Deleted => drop(self.classes.remove(object.name())),
                _ => drop(self.classes.insert(object.name().to_owned(), Arc::clone(object))),
            },
        }
        self.plan_resync(queue);
    }

    async fn sync(&mut self, key: Key, api: &mut Api, queue: &mut WorkQueue<Key>) -> Result<(), Status> {
        self.waiting.remove(&key);
        let done = match &key {
            Key::Claim(name) => self.sync_claim(name, api).await,
            Key::Volume(name) => self.sync_volume(name, api, queue).await,
            Key::Resync => {
                self.resync = None;
                std::mem::take(&mut self.waiting).into_iter().for_each(|key| queue.add(key));
                Ok(SyncResult::Done)
            }
        };
        if done? == SyncResult::Pending {
            self.waiting.insert(key);
        }
        Ok(())
    }
}

/// Result of a sync: whether a later sync may make progress without a change of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncResult {
    Done,
    Pending,
}

impl Binder {
    fn observe_claim(&mut self, change: &Change, queue: &mut WorkQueue<Key>) {
        let claim = change.object();
        let name = key(claim.namespace(), claim.name());
        if change.kind != ChangeKind::Deleted {
            // The binder's own write is cached already, and its consequences were handled with it.
            let known = self.claims.get(&name).map(|known| known.resource_version());
            if known < Some(claim.resource_version()) {
                self.keep_claim(claim);
                queue.add(Key::Claim(name));
            }
            return;
        }
        self.claims.remove(&name);
        // The volume is released.
        let claim = claim.parsed();
        if !storage::volume_name(&claim).is_empty() {
            queue.add(Key::Volume(storage::volume_name(&claim).to_owned()));
        }
    }

    fn observe_volume(&mut self, change: &Change, queue: &mut WorkQueue<Key>) {
        let volume = change.object();
        if change.kind != ChangeKind::Deleted {
            let known = self.volumes.get(volume.name()).map(|known| known.resource_version());
            if known < Some(volume.resource_version()) {
                self.keep_volume(&ObservedObject::from(Arc::clone(volume)));
                queue.add(Key::Volume(volume.name().to_owned()));
            }
            return;
        }
        self.volumes.remove(volume.name());
        // The claim is lost.
        if let Some(reference) = claim_ref(&volume.parsed()) {
            queue.add(Key::Claim(reference.key()));
        }
    }

    /// Caches a state of a claim, unless a newer one is cached. The binder's own writes are cached before they are
    /// observed.
    fn keep_claim(&mut self, claim: &Arc<Stored>) {
        let known = self.claims.entry(key(claim.namespace(), claim.name())).or_insert_with(|| Arc::clone(claim));
        if known.resource_version() < claim.resource_version() {
            *known = Arc::clone(claim);
        }
    }

    fn keep_volume(&mut self, volume: &ObservedObject) {
        self.volumes.keep(volume);
    }

    /// Schedules the next regular resync after a change.
    fn plan_resync(&mut self, queue: &mut WorkQueue<Key>) {
        let now = Instant::now();
        let start = *self.start.get_or_insert(now);
        if self.resync.is_none() {
            let turns = (now - start).as_nanos() / RESYNC.as_nanos() + 1;
            let due = start + RESYNC * u32::try_from(turns).unwrap_or(u32::MAX);
            self.resync = Some(due);
            queue.add_at(due, Key::Resync);
        }
    }
}
