//! What a controller knows.

use std::fmt::{Debug, Display};
use std::hash::Hash;

/// What is known of the cluster: a plain data structure.
pub trait Cache: Send + 'static {
    /// What work is about. Equal keys are never worked on at the same time. Its text is the key of its journal entry.
    type Key: Clone + Ord + Hash + Debug + Display + for<'a> From<&'a str> + Send + Sync + 'static;
    /// What is known of one key.
    type Facts: Send + Sync;

    /// What is known of one key.
    fn facts(&self, key: &Self::Key) -> Self::Facts;

    /// A fingerprint of the inputs that work on this key depends on: while it is the same, no delay is cut short.
    fn inputs(&self, key: &Self::Key) -> u64;

    /// The keys among these that need work, in their order.
    fn unsettled(&self, among: &dyn Fn(&Self::Key) -> bool) -> Vec<Self::Key>;

    /// From now on no other process works on our keys. What the watches deliver of earlier versions is stale. The versions are
    /// in the order of [`Reconciler::watches`](super::Reconciler::watches), and 0 where a watch is not [dated](super::WatchSpec::dated).
    fn stale_before(&mut self, _versions: &[u64]) {}

    /// Work on these keys begins, and the watches have reached these positions. What is still stale has to be read before it
    /// is used.
    fn revalidate(&mut self, _positions: &[u64], _among: &dyn Fn(&Self::Key) -> bool) {}

    /// How the stale objects of a watch that is behind become current; `watch` is its index in
    /// [`Reconciler::watches`](super::Reconciler::watches).
    fn stale_reads(&self, _watch: usize) -> StaleReads {
        StaleReads::Each(0)
    }
}

/// How the stale objects of a watch become current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReads {
    /// The watch lists all objects again.
    ListAgain,
    /// At most so many objects are read one by one, unless a list is quicker.
    Each(usize),
}

/// A cache that also knows which attempts were begun, for a controller that records them in a journal.
pub trait Journaled: Cache {
    /// What was begun, as read from an entry of a journal.
    type Attempt: Send + 'static;

    /// Whether something may have been made for this key that the API server does not show yet. Its entry stays.
    fn unfinished(&self, key: &Self::Key) -> bool;

    /// Adopts what another process has begun. Returns `false` if there is nothing to finish.
    fn adopt(&mut self, key: &Self::Key, attempt: Self::Attempt) -> bool;

    /// Nothing is to be done about these keys until their entries are in a journal of this process.
    fn await_adoption(&mut self, keys: &[Self::Key]);

    /// The key's entry is in a journal of this process, or there is none.
    fn adopted(&mut self, key: &Self::Key);

    /// A person has dropped the attempt of this key.
    fn drop_attempt(&mut self, key: &Self::Key);

    /// Forgets the work on these keys: another process continues it.
    fn forget(&mut self, keys: &dyn Fn(&Self::Key) -> bool);
}
