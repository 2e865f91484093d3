//! The stored objects of one resource, and their latest changes.

mod managed_fields;
mod parsed;
mod registry;
mod snapshot;
mod stored;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

pub(crate) use registry::Registry;
pub(crate) use snapshot::Snapshot;
use stored::ByKey;
pub use stored::Stored;
pub(crate) use stored::{Ownership, head, key};

use crate::resource::Resource;

/// The objects of one resource with a history of their latest changes.
pub(crate) struct Storage {
    /// The resource in the stored version.
    pub(crate) resource: Arc<Resource>,
    /// True if the CustomResourceDefinition was deleted, which ends watches.
    pub(crate) closed: bool,
    objects: BTreeSet<ByKey>,
    history: VecDeque<HistoryEntry>,
    history_limit: usize,
    /// Changes up to this resourceVersion are compacted.
    compacted: u64,
    waiting: Vec<(u64, Waker)>,
}

/// One change in the history.
#[derive(Clone)]
pub(crate) struct HistoryEntry {
    pub(crate) kind: ChangeKind,
    /// The state after the change. For a deleted object, the last state with the resourceVersion of the deletion.
    pub(crate) object: Arc<Stored>,
    pub(crate) before: Option<Arc<Stored>>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// The object was deleted.
    Deleted,
}

impl Storage {
    pub(crate) fn new(resource: Arc<Resource>, history_limit: usize, compacted: u64) -> Self {
        Self {
            resource,
            closed: false,
            objects: BTreeSet::new(),
            history: VecDeque::new(),
            history_limit,
            compacted,
            waiting: Vec::new(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Stored>> {
        self.objects.get(key).map(|found| &found.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns all objects whose key starts with `prefix`, in the order of keys, from the key `from` on.
    pub(crate) fn range<'a>(&'a self, prefix: &'a str, from: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
        let start = if from > prefix { from } else { prefix };
        let objects = self.objects.range::<str, _>((Bound::Included(start), Bound::Unbounded));
        objects.map(|found| &found.0).take_while(move |object| object.key().starts_with(prefix))
    }

    /// Returns the resourceVersion up to which changes are compacted.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Returns the changes in the history after a resourceVersion, in order.
    pub(crate) fn changes_after(&self, version: u64) -> impl DoubleEndedIterator<Item = &HistoryEntry> {
        let start = self.history.partition_point(|entry| entry.object.resource_version() <= version);
        self.history.range(start..)
    }

    /// Records a change and wakes all waiting tasks.
    pub(crate) fn record(&mut self, entry: HistoryEntry) {
        match entry.kind {
            ChangeKind::Created | ChangeKind::Updated => drop(self.objects.replace(ByKey(Arc::clone(&entry.object)))),
            ChangeKind::Deleted => drop(self.objects.remove(entry.object.key())),
        }
        self.history.push_back(entry);
        while self.history.len() > self.history_limit {
            self.forget_oldest();
        }
        self.wake();
    }

    /// Removes changes up to a resourceVersion from the history.
    pub(crate) fn compact(&mut self, version: u64) {
        while self.history.front().is_some_and(|entry| entry.object.resource_version() <= version) {
            self.forget_oldest();
        }
        self.compacted = self.compacted.max(version);
    }

    /// Wakes `waker` at the next change; one waker per `id`.
    pub(crate) fn wait(&mut self, id: u64, waker: &Waker) {
        match self.waiting.iter_mut().find(|(other, _)| *other == id) {
            Some((_, known)) => known.clone_from(waker),
            None => self.waiting.push((id, waker.clone())),
        }
    }

    /// Undoes [`Storage::wait`].
    pub(crate) fn stop_waiting(&mut self, id: u64) {
        self.waiting.retain(|(other, _)| *other != id);
    }

    pub(crate) fn wake(&mut self) {
        for (_, waker) in self.waiting.drain(..) {
            waker.wake();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(entry) = self.history.pop_front() {
            // As in the watch cache, everything before the oldest event is unknown, even if nothing changed.
            if Arc::strong_count(&entry.object) > 1 {
                entry.object.settle_owners();
            }
            let oldest = self.history.front().map(|next| next.object.resource_version() - 1);
            self.compacted = oldest.unwrap_or(entry.object.resource_version());
        }
    }
}
