//! What a controller implements.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::{Step, WatchSpec};
use crate::events::{Event, EventRecorder};
use crate::journal::Entry;
use crate::queue::{Next, Work};

/// The rules and the work of one controller. [`ControlLoop`](super::ControlLoop) does the rest.
///
/// The way of one key: [`Cache::facts`] gathers what is known, [`decide`](Self::decide) says what to do,
/// [`act`](Self::act) does it, [`report`](Self::report) says what came of it and when the key is looked at again.
pub trait Reconciler: Send + Sync + Sized + 'static {
    /// What is known of the cluster.
    type Cache: Cache;
    /// What to do about one key.
    type Decision: Debug + Send;
    /// What came of a decision.
    type Outcome: Send;

    /// What the controller follows, in the order of [`Cache::stale_before`]. The watches start from the last to the first.
    fn watches(&self) -> Vec<WatchSpec<Self::Cache>>;

    /// What to do. A pure function.
    fn decide(&self, facts: &FactsOf<Self>) -> Self::Decision;

    /// Carries out a decision: the only place that writes to the API server or calls an author's code.
    fn act(
        &self,
        decision: Self::Decision,
        facts: &FactsOf<Self>,
        step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Self::Outcome> + Send;

    /// What users are told, and when the key is looked at again.
    fn report(&self, outcome: Self::Outcome, facts: &FactsOf<Self>, work: &Work<KeyOf<Self>>, took: Duration)
    -> Report;

    /// Lets an author begin, once in each term before the first decision.
    ///
    /// # Errors
    /// Why not: it is tried again.
    fn start(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// The attempt of a journal's entry. It may call an author's code: no lock is held.
    ///
    /// # Errors
    /// What is wrong with the entry. It stays in the journal.
    fn read_entry(&self, entry: &Entry) -> Result<<Self::Cache as Cache>::Attempt, String>;

    /// Whether an entry that nobody finishes is this process's, where processes have [journals of their own
    /// ](super::Sharing::Own).
    fn owns_entry(&self, _entry: &Entry) -> bool {
        true
    }

    /// Tells whoever waits for this key why nothing is done at the moment.
    fn held_up(&self, _facts: &FactsOf<Self>, _problem: &str, _events: &EventRecorder) {}

    /// Adds metrics of its own.
    fn register(&self, _registry: &mut Registry) {}
}

/// What is known of the cluster, and what was begun that the API server does not show: a plain data structure.
pub trait Cache: Send + 'static {
    /// What work is about. Two keys are never worked on at the same time if they are equal. Its text is that of journal
    /// entries.
    type Key: Clone + Ord + Hash + Debug + Display + for<'a> From<&'a str> + Send + Sync + 'static;
    /// What is known of one key.
    type Facts: Send + Sync;
    /// What was begun, as an entry of a journal tells it.
    type Attempt: Send;

    /// What is known of one key.
    fn facts(&self, key: &Self::Key) -> Self::Facts;

    /// Stands for the inputs that work on this key depends on: while it is the same, a pause is not cut short.
    fn inputs(&self, key: &Self::Key) -> u64;

    /// The keys among these that need work, in their order.
    fn unsettled(&self, among: &dyn Fn(&Self::Key) -> bool) -> Vec<Self::Key>;

    /// Whether something may have been made for this key that the API server does not show yet. Its entry stays.
    fn unfinished(&self, key: &Self::Key) -> bool;

    /// Takes in what another process has begun. `false`: there is nothing to finish.
    fn adopt(&mut self, key: &Self::Key, attempt: Self::Attempt) -> bool;

    /// Nothing is to be done about these keys until their entries are in a journal of this process.
    fn await_adoption(&mut self, keys: &[Self::Key]);

    /// The key's entry is in a journal of this process, or there is none.
    fn adopted(&mut self, key: &Self::Key);

    /// A person has ended the attempt of this key.
    fn drop_attempt(&mut self, key: &Self::Key);

    /// Drops what is remembered of work on these keys: another process goes on with it.
    fn forget(&mut self, keys: &dyn Fn(&Self::Key) -> bool);

    /// From now on no other process works on our keys. What the watches tell of earlier versions than these is stale; the
    /// versions are in the order of [`Reconciler::watches`], and 0 where a watch is not [dated](WatchSpec::dated).
    fn stale_before(&mut self, _versions: &[u64]) {}

    /// Work on these keys begins, and the watches have got to these positions: what is stale by then has to be looked at
    /// once more.
    fn revalidate(&mut self, _positions: &[u64], _among: &dyn Fn(&Self::Key) -> bool) {}

    /// How many objects of a watch, by its place in [`Reconciler::watches`], would be read one by one if all of them are stale.
    fn stale_reads(&self, _watch: usize) -> usize {
        0
    }
}

/// A reconciler's keys.
pub type KeyOf<R> = <<R as Reconciler>::Cache as Cache>::Key;
/// What is known of one of them.
pub type FactsOf<R> = <<R as Reconciler>::Cache as Cache>::Facts;

/// What comes of one look at a key.
#[derive(Debug)]
pub struct Report {
    /// When it is looked at again.
    pub next: Next,
    /// What its user is told.
    pub event: Option<Event>,
}
