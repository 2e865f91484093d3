//! The rules and the work of a controller.

use std::fmt::Debug;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::cache::Cache;
use super::step::Step;
use super::watches::WatchSpec;
use crate::events::{Event, EventRecorder};
use crate::journal::Entry;
use crate::queue::{Next, Work};

/// The rules and the work of one controller. [`ControlLoop`](super::ControlLoop) does the rest.
///
/// For one key, [`Cache::facts`] gathers what is known, [`decide`](Self::decide) says what to do, [`act`](Self::act) does
/// it, and [`report`](Self::report) says what users are to know and when the key runs again.
pub trait Reconciler: Send + Sync + Sized + 'static {
    /// What is known of the cluster.
    type Cache: Cache;
    /// What to do about one key.
    type Decision: Debug + Send;
    /// The result of a decision.
    type Outcome: Send;

    /// What the controller watches, in the order of [`Cache::stale_before`]. The watches start from the last to the first.
    fn watches(&self) -> Vec<WatchSpec<Self::Cache>>;

    /// What to do. A pure function.
    fn decide(&self, facts: &FactsOf<Self>) -> Self::Decision;

    /// Carries out a decision. Nothing else writes to the API server or calls an author's code.
    fn act(
        &self,
        decision: Self::Decision,
        facts: &FactsOf<Self>,
        step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Self::Outcome> + Send;

    /// The event for users, and when the key runs again.
    fn report(&self, outcome: Self::Outcome, facts: &FactsOf<Self>, work: &Work<KeyOf<Self>>, took: Duration)
    -> Report;

    /// Starts an author's code, once in each term before the first decision.
    ///
    /// # Errors
    /// Why it did not start. It is tried again.
    fn start(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether an author's backend can work now, for `/readyz`.
    ///
    /// # Errors
    /// Why not, for a person.
    fn probe(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Reads a journal's entry. It may call an author's code: no lock is held.
    ///
    /// # Errors
    /// What is wrong with the entry. It stays in the journal.
    fn read_entry(&self, entry: &Entry) -> Result<<Self::Cache as Cache>::Attempt, String>;

    /// Whether an entry that nobody finishes is this process's, where processes have [journals of their own
    /// ](super::Sharing::Own).
    fn owns_entry(&self, _entry: &Entry) -> bool {
        true
    }

    /// Reports to the users of this key why nothing is done at the moment.
    fn held_up(&self, _facts: &FactsOf<Self>, _problem: &str, _events: &EventRecorder) {}

    /// Adds the controller's metrics.
    fn register(&self, _registry: &mut Registry) {}
}

/// A reconciler's keys.
pub type KeyOf<R> = <<R as Reconciler>::Cache as Cache>::Key;
/// What is known of one of them.
pub type FactsOf<R> = <<R as Reconciler>::Cache as Cache>::Facts;

/// The result of one step of a key.
#[derive(Debug)]
pub struct Report {
    /// When the key runs again.
    pub next: Next,
    /// The event for its user.
    pub event: Option<Event>,
}
