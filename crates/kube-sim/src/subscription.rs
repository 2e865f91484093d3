//! Subscriptions to changes, for actors and tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::resource::Resource;
use crate::store::{ChangeKind, HistoryEntry, Stored};

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource in the stored version.
    pub resource: Arc<Resource>,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The state before. `None` for a created object.
    pub before: Option<Arc<Stored>>,
    /// The state after. `None` for a deleted object.
    pub after: Option<Arc<Stored>>,
    /// The resourceVersion of the change.
    pub resource_version: u64,
}

/// Changes in order. Created by `Cluster::subscribe`. Slow subscribers do not lose changes.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<ChangeQueue>,
}

impl Subscription {
    pub(crate) fn new(queue: Arc<ChangeQueue>) -> Self {
        Self { queue }
    }

    /// Waits for the next change. A subscription never ends.
    pub async fn next(&mut self) -> Change {
        std::future::poll_fn(|context| {
            let mut pending = self.queue.lock();
            match pending.changes.pop_front() {
                Some(change) => Poll::Ready(change),
                None => {
                    pending.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns the next change if it is already available.
    pub fn try_next(&mut self) -> Option<Change> {
        self.queue.lock().changes.pop_front()
    }
}

impl Change {
    pub(crate) fn new(resource: &Arc<Resource>, entry: &HistoryEntry) -> Self {
        Self {
            resource: Arc::clone(resource),
            kind: entry.kind,
            before: entry.before.clone(),
            after: (entry.kind != ChangeKind::Deleted).then(|| Arc::clone(&entry.object)),
            resource_version: entry.object.resource_version(),
        }
    }

    /// Returns a change for an existing object, as if it were created now.
    pub(crate) fn existing(resource: &Arc<Resource>, object: &Arc<Stored>) -> Self {
        Self {
            resource: Arc::clone(resource),
            kind: ChangeKind::Created,
            before: None,
            after: Some(Arc::clone(object)),
            resource_version: object.resource_version(),
        }
    }

    /// Returns the state after the change, or the last state of a deleted object.
    pub fn object(&self) -> &Arc<Stored> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a state before or after it")
    }
}

/// The changes that a subscriber has not received yet.
#[derive(Debug)]
pub(crate) struct ChangeQueue {
    /// Group and plural of the resources of interest; empty for all.
    resources: Vec<(String, String)>,
    pending: Mutex<PendingChanges>,
}

#[derive(Debug, Default)]
struct PendingChanges {
    changes: VecDeque<Change>,
    waker: Option<Waker>,
}

impl ChangeQueue {
    pub(crate) fn new(resources: &[(&str, &str)]) -> Self {
        let resources = resources.iter().map(|(group, plural)| ((*group).to_owned(), (*plural).to_owned())).collect();
        Self { resources, pending: Mutex::default() }
    }

    /// Returns whether the subscriber wants changes of this resource.
    pub(crate) fn wants(&self, resource: &Resource) -> bool {
        self.resources.is_empty() || self.resources.iter().any(|(group, plural)| resource.is(group, plural))
    }

    pub(crate) fn push(&self, change: Change) {
        let mut pending = self.lock();
        pending.changes.push_back(change);
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
