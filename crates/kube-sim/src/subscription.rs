//! Changes as they happen, for actors inside the cluster.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::resource::Resource;
use crate::store::{ChangeKind, HistoryEntry, Stored};

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource in the version its objects are kept in.
    pub resource: Arc<Resource>,
    /// What happened.
    pub kind: ChangeKind,
    /// The state before; none of a created object.
    pub before: Option<Arc<Stored>>,
    /// The state after; none of a deleted object.
    pub after: Option<Arc<Stored>>,
    /// The resourceVersion of the change.
    pub resource_version: u64,
}

/// Changes in the order in which they happen. Made by `Cluster::subscribe`; none is lost however slowly they are taken.
#[derive(Debug)]
pub struct Subscription {
    queue: Arc<ChangeQueue>,
}

impl Subscription {
    pub(crate) fn new(queue: Arc<ChangeQueue>) -> Self {
        Self { queue }
    }

    /// The next change, pending for it. It never ends: a cluster lives as long as anybody holds it.
    pub async fn next(&mut self) -> Change {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The next change if it has happened.
    pub fn try_next(&mut self) -> Option<Change> {
        self.queue.lock().changes.pop_front()
    }

    /// As [`Subscription::next`], for own futures.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Change> {
        let mut pending = self.queue.lock();
        match pending.changes.pop_front() {
            Some(change) => Poll::Ready(change),
            None => {
                pending.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
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

    /// An object that is there already, told as if it were created now.
    pub(crate) fn existing(resource: &Arc<Resource>, object: &Arc<Stored>) -> Self {
        Self {
            resource: Arc::clone(resource),
            kind: ChangeKind::Created,
            before: None,
            after: Some(Arc::clone(object)),
            resource_version: object.resource_version(),
        }
    }

    /// The latest state there is: the one after the change, or the last one of a deleted object.
    pub fn object(&self) -> &Arc<Stored> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a state before or after it")
    }
}

/// What a subscriber has not taken yet.
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

    /// Whether changes of this resource are of interest.
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
