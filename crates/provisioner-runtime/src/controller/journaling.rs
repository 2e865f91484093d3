//! Conversion of journal entries to attempts in the cache.

use super::cache::Cache;
use crate::journal::Entry;

/// Describes how journal entries become attempts in the cache.
pub struct JournalSpec<C: Cache> {
    read: Box<Read<C>>,
    on_drop: Box<OnDrop<C>>,
    pub(super) part_of: fn(&Entry) -> Option<String>,
    pub(super) tenant_of: fn(&Entry) -> String,
}

type Read<C> = dyn Fn(&Entry) -> Result<Adopt<C>, String> + Send + Sync;
type OnDrop<C> = dyn Fn(&<C as Cache>::Key) + Send + Sync;
/// Adopts an attempt that was read. Returns `false` if there is nothing to finish.
pub(super) type Adopt<C> = Box<dyn FnOnce(&mut C) -> bool + Send>;

impl<C: Cache> JournalSpec<C> {
    /// Creates a spec. `read` decodes an entry, or returns the problem, in which case the entry stays in the journal.
    /// `read` may call an author's code, because no lock is held. `adopt` puts an attempt that another process has
    /// begun into the cache, and returns `false` if there is nothing to finish.
    pub fn new<A: Send + 'static>(
        read: impl Fn(&Entry) -> Result<A, String> + Send + Sync + 'static,
        adopt: fn(&mut C, &C::Key, A) -> bool,
    ) -> Self {
        let read = move |entry: &Entry| {
            let (key, attempt) = (C::Key::from(&entry.key), read(entry)?);
            Ok(Box::new(move |cache: &mut C| adopt(cache, &key, attempt)) as Adopt<C>)
        };
        Self { read: Box::new(read), on_drop: Box::new(|_| {}), part_of: |_| None, tenant_of: |_| String::new() }
    }

    /// Creates a spec for a controller that records nothing in its journal.
    pub fn none() -> Self {
        let read = |_: &Entry| Err::<(), _>("this controller records nothing in its journal".to_owned());
        Self::new(read, |_, _, ()| false)
    }

    /// Sets the function that returns the part to which an entry belongs, for processes with [parts of their
    /// own](super::Sharing::Own). An entry without a part stays in its journal, and an event reports it.
    #[must_use]
    pub fn parted_by(self, part_of: fn(&Entry) -> Option<String>) -> Self {
        Self { part_of, ..self }
    }

    /// Sets the function to call when an administrator drops an attempt. No lock is held.
    #[must_use]
    pub fn on_drop(self, on_drop: impl Fn(&C::Key) + Send + Sync + 'static) -> Self {
        Self { on_drop: Box::new(on_drop), ..self }
    }

    /// Sets the function that returns the tenant of an entry, such as a namespace: see
    /// [`JournalOptions::tenant_of`](crate::JournalOptions::tenant_of).
    #[must_use]
    pub fn shared_by(self, tenant_of: fn(&Entry) -> String) -> Self {
        Self { tenant_of, ..self }
    }

    pub(super) fn read(&self, entry: &Entry) -> Result<Adopt<C>, String> {
        (self.read)(entry)
    }

    pub(super) fn dropped(&self, key: &C::Key) {
        (self.on_drop)(key);
    }
}

impl<C: Cache> std::fmt::Debug for JournalSpec<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalSpec").finish_non_exhaustive()
    }
}
