//! The rules and the work of a controller.

use std::fmt::Debug;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::cache::Cache;
use super::journaling::JournalSpec;
use super::step::Step;
use super::watches::WatchSpec;
use crate::events::{Event, EventRecorder};
use crate::queue::{Next, Work};

/// The rules and the work of one controller. [`ControlLoop`](super::ControlLoop) does the rest.
///
/// For one key, [`Cache::facts`] gathers what is known, [`decide`](Self::decide) says what to do, [`act`](Self::act) does
/// it, and [`report`](Self::report) gives the event and the status for users and says when the key runs again.
pub trait Reconciler: Send + Sync + Sized + 'static {
    /// What is known of the cluster.
    type Cache: Cache;
    /// What to do about one key.
    type Decision: Debug + Send;
    /// The result of a decision.
    type Outcome: Send;
    /// What a report writes into an object's status; `()` for a controller that writes none.
    type Status: Send;

    /// What the controller watches, in the order of [`Cache::stale_before`]. The watches start from the last to the first.
    fn watches(&self) -> Vec<WatchSpec<Self::Cache>>;

    /// What to do. A pure function.
    fn decide(&self, facts: &FactsOf<Self>) -> Self::Decision;

    /// Carries out a decision. Nothing else but [`write_status`](Self::write_status) writes to the API server, and nothing
    /// else calls an author's code.
    fn act(
        &self,
        decision: Self::Decision,
        facts: &FactsOf<Self>,
        step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Self::Outcome> + Send;

    /// The event and the status for users, and when the key runs again.
    fn report(
        &self,
        outcome: Self::Outcome,
        facts: &FactsOf<Self>,
        work: &Work<KeyOf<Self>>,
        took: Duration,
    ) -> Report<Self::Status>;

    /// Writes the status of a report.
    ///
    /// # Errors
    /// An outcome to report beside the first one. Its report says when the key runs again, and its status is not written.
    fn write_status(
        &self,
        _status: Self::Status,
        _step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Result<(), Self::Outcome>> + Send {
        std::future::ready(Ok(()))
    }

    /// Starts an author's code, once in each term before the first decision.
    ///
    /// # Errors
    /// Why it did not start. It is tried again.
    fn start(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Runs beside the work of a term, from the adoption of unfinished attempts on. The end of the term drops it.
    fn while_leading(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether an author's backend can work now, for `/readyz`; with a text if only a part of it can.
    ///
    /// # Errors
    /// Why not, for a person.
    fn probe(&self) -> impl Future<Output = Result<String, String>> + Send {
        std::future::ready(Ok(String::new()))
    }

    /// How the entries of its journal become attempts in the cache.
    fn journal(&self) -> JournalSpec<Self::Cache> {
        JournalSpec::none()
    }

    /// Reports to the users of this key why nothing is done at the moment.
    fn report_blocked(&self, _facts: &FactsOf<Self>, _problem: &str, _events: &EventRecorder) {}

    /// Adds the controller's metrics.
    fn register(&self, _registry: &mut Registry) {}
}

/// A reconciler's keys.
pub type KeyOf<R> = <<R as Reconciler>::Cache as Cache>::Key;
/// What is known of one of them.
pub type FactsOf<R> = <<R as Reconciler>::Cache as Cache>::Facts;

/// What one outcome means for users and for the key.
#[derive(Debug)]
pub struct Report<S> {
    /// When the key runs again.
    pub next: Next,
    /// The event for its user.
    pub event: Option<Event>,
    /// The status for its user.
    pub status: Option<S>,
}
