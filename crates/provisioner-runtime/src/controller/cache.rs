//! A controller's view of the cluster.

use std::fmt::{Debug, Display};
use std::hash::Hash;

/// A controller's view of the cluster: a plain data structure.
pub trait Cache: Send + 'static {
    /// The unit of work. Equal keys are never worked on at the same time. The key's text is the key of its journal
    /// entry.
    type Key: Clone + Ord + Hash + Debug + Display + for<'a> From<&'a str> + Send + Sync + 'static;
    /// The known state of one key.
    type Facts: Send + Sync;

    /// Returns the known state of one key.
    fn facts(&self, key: &Self::Key) -> Self::Facts;

    /// Returns a fingerprint of the inputs that work on this key depends on: while it is unchanged, no delay is cut
    /// short.
    fn inputs(&self, key: &Self::Key) -> u64;

    /// Returns, in order, the keys for which `among` returns true and that need work.
    fn unsettled(&self, among: &dyn Fn(&Self::Key) -> bool) -> Vec<Self::Key>;

    /// Returns true if an attempt of this key has begun and its result may not be visible in the API server yet. The
    /// key's journal entry is then kept. The default suits a controller that records nothing in its journal.
    fn unfinished(&self, _key: &Self::Key) -> bool {
        false
    }

    /// Discards the attempts of these keys: another process continues them.
    fn forget(&mut self, _keys: &dyn Fn(&Self::Key) -> bool) {}

    /// Suspends work on these keys until their entries are in a journal of this process. The default does nothing,
    /// which suits attempts that are determined by their key: a second attempt continues the first one.
    fn await_adoption(&mut self, _keys: &[Self::Key]) {}

    /// Resumes work on a key: its entry is in a journal of this process, or it has none.
    fn adopted(&mut self, _key: &Self::Key) {}

    /// Drops the attempt of this key at an administrator's request.
    fn drop_attempt(&mut self, key: &Self::Key) {
        if self.unfinished(key) {
            self.forget(&|other| other == key);
        }
    }

    /// Marks everything that the watches deliver from earlier versions as stale: from this point on, no other process
    /// works on our keys. The versions are in the order of [`Reconciler::watches`](super::Reconciler::watches), and 0
    /// for a watch that is not [versioned](super::WatchSpec::versioned).
    fn stale_before(&mut self, _versions: &[u64]) {}

    /// Called when work on these keys begins, with the positions that the watches have reached. Objects that are still
    /// stale have to be read before they are used.
    fn revalidate(&mut self, _positions: &[u64], _among: &dyn Fn(&Self::Key) -> bool) {}

    /// Returns how to refresh the stale objects of a watch that lags behind; `watch` is its index in
    /// [`Reconciler::watches`](super::Reconciler::watches).
    fn stale_reads(&self, _watch: usize) -> StaleReads {
        StaleReads::Each(0)
    }
}

/// The method of refreshing a watch's stale objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReads {
    /// The watch lists all objects again.
    ListAgain,
    /// At most this many objects are read one by one, unless a list is quicker.
    Each(usize),
}
