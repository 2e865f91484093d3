//! Where calls of the author's code take place: so many at a time, and so many for one class.
//!
//! The queue's lanes let three times as many in, so that some record what they are about to begin while others are at
//! work: a commit of the journal takes about as long as a volume takes to be saved, and one may just have begun.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// How many times as many attempts as calls may be under way.
pub(crate) const ATTEMPTS_PER_CALL: usize = 3;

/// All places of a process.
pub(crate) struct Places {
    workers: Semaphore,
    backend: Option<Semaphore>,
    per_class: usize,
    classes: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

/// A place for work on the API server.
pub(crate) type Place<'a> = Option<SemaphorePermit<'a>>;

/// A place for a call of the author's code.
pub(super) struct CallPlace<'a> {
    _class: Option<OwnedSemaphorePermit>,
    _backend: Option<SemaphorePermit<'a>>,
    worker: Place<'a>,
}

impl<'a> CallPlace<'a> {
    /// The call has ended; what comes next costs the backend nothing.
    pub(super) fn for_work(self) -> Place<'a> {
        self.worker
    }
}

impl Places {
    /// `per_backend` and `per_class` are unbounded when 0.
    pub(crate) fn new(workers: usize, per_backend: usize, per_class: usize) -> Self {
        let backend = (per_backend > 0).then(|| Semaphore::new(per_backend));
        Self { workers: Semaphore::new(workers), backend, per_class, classes: Mutex::default() }
    }

    pub(super) async fn work(&self) -> Place<'_> {
        // It is never closed.
        self.workers.acquire().await.ok()
    }

    /// The worker's place is taken last: who waits for the backend keeps nobody else from working.
    pub(super) async fn call(&self, class: Option<&str>) -> CallPlace<'_> {
        let _class = match self.class(class.unwrap_or_default()) {
            Some(class) => class.acquire_owned().await.ok(),
            None => None,
        };
        let _backend = match &self.backend {
            Some(backend) => backend.acquire().await.ok(),
            None => None,
        };
        CallPlace { _class, _backend, worker: self.work().await }
    }

    fn class(&self, name: &str) -> Option<Arc<Semaphore>> {
        if self.per_class == 0 {
            return None;
        }
        let mut classes = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if !classes.contains_key(name) {
            // Of classes where nothing goes on nothing need be known.
            classes.retain(|_, class| Arc::strong_count(class) > 1);
            classes.insert(name.into(), Arc::new(Semaphore::new(self.per_class)));
        }
        classes.get(name).cloned()
    }
}
