//! The state of a cluster, and the only functions that change it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};

use crate::clock::SimClock;
use crate::crd::Definition;
use crate::ownership::{Credit, Writer};
use crate::random::Random;
use crate::request::Subresource;
use crate::resource::{Resource, Special, StorageId, builtins};
use crate::store::{ChangeKind, HistoryEntry, Ownership, Registry, Storage, Stored, key};
use crate::subscription::{Change, ChangeQueue};

/// The state of a cluster. One lock guards it, so requests are handled one at a time.
pub(crate) struct State {
    pub(crate) clock: SimClock,
    pub(crate) random: Random,
    pub(crate) registry: Registry,
    /// A feature gate: see [`crate::Builder::cross_namespace_data_sources`].
    pub(crate) cross_namespace_data_sources: bool,
    /// The rules of CustomResourceDefinitions for their objects, by storage and version.
    pub(crate) definitions: BTreeMap<(StorageId, String), Arc<Definition>>,
    /// Indexed by [`StorageId`].
    storages: Vec<Storage>,
    /// The resourceVersion of the last change.
    version: u64,
    history_limit: usize,
    subscribers: Vec<Weak<ChangeQueue>>,
    watches: u64,
    /// All writers so far.
    writers: Vec<Arc<Writer>>,
}

/// The resourceVersion of a new cluster. It is not 0, and the history before it is compacted.
const FIRST_VERSION: u64 = 1000;

impl State {
    pub(crate) fn new(clock: SimClock, seed: u64, history_limit: usize) -> Self {
        let storage = |resource| Storage::new(Arc::clone(resource), history_limit, FIRST_VERSION);
        let storages = builtins().iter().map(storage).collect();
        let mut state = Self {
            clock,
            random: Random::new(seed),
            registry: Registry::new(),
            cross_namespace_data_sources: false,
            definitions: BTreeMap::new(),
            storages,
            version: FIRST_VERSION,
            history_limit,
            subscribers: Vec::new(),
            watches: 0,
            writers: Vec::new(),
        };
        state.create_first_namespaces();
        state
    }

    /// Returns the resourceVersion of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn storage(&self, id: StorageId) -> &Storage {
        &self.storages[id.0 as usize]
    }

    pub(crate) fn storages(&self) -> &[Storage] {
        &self.storages
    }

    pub(crate) fn storage_mut(&mut self, id: StorageId) -> &mut Storage {
        &mut self.storages[id.0 as usize]
    }

    /// Returns the id of the storage that [`State::add_storage`] will add.
    pub(crate) fn next_storage(&self) -> StorageId {
        StorageId(u32::try_from(self.storages.len()).expect("fewer resources than that"))
    }

    /// Adds a storage with the id of [`State::next_storage`].
    pub(crate) fn add_storage(&mut self, resource: Arc<Resource>) {
        self.storages.push(Storage::new(resource, self.history_limit, self.version));
    }

    /// Returns the id of a new watch.
    pub(crate) fn next_watch(&mut self) -> u64 {
        self.watches += 1;
        self.watches
    }

    /// Returns the definition of a custom resource.
    pub(crate) fn definition(&self, resource: &Resource) -> Option<&Definition> {
        // Most calls are for built-in resources.
        let known = || self.definitions.get(&(resource.storage, resource.version.clone()));
        if resource.custom { known().map(|definition| &**definition) } else { None }
    }

    /// Forgets the history.
    pub(crate) fn forget_history(&mut self) {
        for storage in &mut self.storages {
            storage.compact(self.version);
        }
    }

    pub(crate) fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.storage(resource.storage).get(&key(namespace, name))
    }

    /// Returns the unique [`Writer`] with these values.
    pub(crate) fn writer(
        &mut self,
        manager: &str,
        resource: &Arc<Resource>,
        subresource: Option<Subresource>,
    ) -> Arc<Writer> {
        let is_same = |writer: &&Arc<Writer>| {
            Arc::ptr_eq(&writer.resource, resource) && *writer.manager == *manager && writer.subresource == subresource
        };
        if let Some(known) = self.writers.iter().find(is_same) {
            return Arc::clone(known);
        }
        let writer = Arc::new(Writer { manager: manager.into(), resource: Arc::clone(resource), subresource });
        self.writers.push(Arc::clone(&writer));
        writer
    }

    /// Stores a new object.
    pub(crate) fn create(&mut self, storage: StorageId, object: Value, credit: Credit) -> Arc<Stored> {
        self.version += 1;
        let ownership = Ownership::of_new(credit);
        let stored = Stored::new(&self.storage(storage).resource, &object, self.version, ownership).first();
        let stored = Arc::new(stored);
        stored.remember(&self.storage(storage).resource, object);
        self.record(storage, HistoryEntry { kind: ChangeKind::Created, object: Arc::clone(&stored), before: None });
        stored
    }

    /// Stores a new state of an object. An equal state is not stored.
    pub(crate) fn update(
        &mut self,
        storage: StorageId,
        before: &Arc<Stored>,
        object: Value,
        credit: Credit,
    ) -> Arc<Stored> {
        let owners = if let Credit::Known(owners) = &credit { Some(Arc::clone(owners)) } else { None };
        let ownership = Ownership::after(before, credit);
        let stored = Stored::new(&self.storage(storage).resource, &object, self.version + 1, ownership);
        let same = stored.same_but_version(before) && owners.is_none_or(|owners| owners == before.managed_fields());
        // The server stores new claims in a form that it does not use for updates, so the first update always changes
        // the claim.
        let odd = before.is_first() && self.storage(storage).resource.special == Special::Claim;
        if same && !odd {
            return Arc::clone(before);
        }
        self.version += 1;
        let stored = Arc::new(stored);
        stored.remember(&self.storage(storage).resource, object);
        let before = Some(Arc::clone(before));
        self.record(storage, HistoryEntry { kind: ChangeKind::Updated, object: Arc::clone(&stored), before });
        stored
    }

    /// Removes an object. Returns its last state with the resourceVersion of the deletion.
    pub(crate) fn remove(&mut self, storage: StorageId, before: &Arc<Stored>) -> Arc<Stored> {
        self.version += 1;
        let last = Arc::new(before.at_version(self.version));
        let before = Some(Arc::clone(before));
        self.record(storage, HistoryEntry { kind: ChangeKind::Deleted, object: Arc::clone(&last), before });
        last
    }

    pub(crate) fn subscribe(&mut self, queue: &Arc<ChangeQueue>, existing: bool) {
        if existing {
            let mut objects: Vec<_> = self
                .storages
                .iter()
                .filter(|storage| queue.wants(&storage.resource))
                .flat_map(|storage| storage.range("", "").map(|object| (&storage.resource, object)))
                .collect();
            objects.sort_by_key(|(_, object)| object.resource_version());
            for (resource, object) in objects {
                queue.push(Change::existing(resource, object));
            }
        }
        self.subscribers.push(Arc::downgrade(queue));
    }

    fn record(&mut self, storage: StorageId, entry: HistoryEntry) {
        if !self.subscribers.is_empty() {
            let change = Change::new(&self.storage(storage).resource, &entry);
            self.subscribers.retain(|queue| match queue.upgrade() {
                Some(queue) => {
                    if queue.wants(&change.resource) {
                        queue.push(change.clone());
                    }
                    true
                }
                None => false,
            });
        }
        self.storage_mut(storage).record(entry);
    }

    /// Creates the namespaces that every API server creates.
    fn create_first_namespaces(&mut self) {
        let namespaces = Resource::builtin("", "namespaces");
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let object = json!({
                "metadata": {
                    "name": name, "uid": self.random.uid(), "creationTimestamp": self.clock.seconds(),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            self.create(namespaces.storage, object, Credit::Server);
        }
    }
}
