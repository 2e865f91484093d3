//! Locks that allow one call at a time per name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

type Entries = HashMap<String, Arc<tokio::sync::Mutex<()>>>;

/// Locks by name.
#[derive(Default)]
pub(super) struct Locks(Mutex<Entries>);

impl Locks {
    /// Waits until no other call holds the name. Dropping the guard releases it.
    pub(super) async fn lock(&self, name: String) -> OwnedMutexGuard<()> {
        let lock = {
            let mut entries = self.entries();
            // Remove the locks that no call holds or awaits.
            entries.retain(|_, lock| Arc::strong_count(lock) > 1);
            entries.entry(name).or_default().clone()
        };
        lock.lock_owned().await
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn locks_each_name_once_and_removes_unused_locks() {
        let locks = Locks::default();
        let held = locks.lock("a".to_owned()).await;
        assert!(locks.lock("a".to_owned()).now_or_never().is_none());
        assert!(locks.lock("b".to_owned()).now_or_never().is_some());
        drop(held);
        drop(locks.lock("a".to_owned()).await);
        drop(locks.lock("c".to_owned()).await);
        assert_eq!(locks.entries().len(), 1);
    }
}
