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
/// For one key, [`Cache::facts`] gathers the known state, [`decide`](Self::decide) chooses what to do,
/// [`act`](Self::act) does it, and [`report`](Self::report) returns the event and the status for users and when the key
/// runs again.
pub trait Reconciler: Send + Sync + Sized + 'static {
    /// The view of the cluster.
    type Cache: Cache;
    /// A decision about one key.
    type Decision: Debug + Send;
    /// The result of a decision.
    type Outcome: Send;
    /// The content that a report writes to an object's status; `()` for a controller that writes none.
    type Status: Send;

    /// Returns the controller's watches, in the order of [`Cache::stale_before`]. They start from the last to the
    /// first.
    fn watches(&self) -> Vec<WatchSpec<Self::Cache>>;

    /// Decides what to do. A pure function.
    fn decide(&self, facts: &FactsOf<Self>) -> Self::Decision;

    /// Carries out a decision. Apart from [`write_status`](Self::write_status), only this method writes to the API
    /// server, and only this method calls an author's code.
    fn act(
        &self,
        decision: Self::Decision,
        facts: &FactsOf<Self>,
        step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Self::Outcome> + Send;

    /// Returns the event and the status for users, and when the key runs again.
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
    /// Returns an outcome to report in addition to the first one. Its report determines when the key runs again, and
    /// its status is not written.
    fn write_status(
        &self,
        _status: Self::Status,
        _step: &Step<'_, Self::Cache>,
    ) -> impl Future<Output = Result<(), Self::Outcome>> + Send {
        std::future::ready(Ok(()))
    }

    /// Starts an author's code, once per term, before the first decision.
    ///
    /// # Errors
    /// Returns why it did not start. The loop tries again.
    fn start(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Runs alongside the work of a term, starting with the adoption of unfinished attempts. It is dropped at the end
    /// of the term.
    fn while_leading(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Checks whether an author's backend works, for `/readyz`; returns a text if only part of it works.
    ///
    /// # Errors
    /// Returns the reason, for an administrator.
    fn probe(&self) -> impl Future<Output = Result<String, String>> + Send {
        std::future::ready(Ok(String::new()))
    }

    /// Describes how the entries of the journal become attempts in the cache.
    fn journal(&self) -> JournalSpec<Self::Cache> {
        JournalSpec::none()
    }

    /// Reports to the users of this key why no work is done at the moment.
    fn report_blocked(&self, _facts: &FactsOf<Self>, _problem: &str, _events: &EventRecorder) {}

    /// Adds the controller's metrics.
    fn register(&self, _registry: &mut Registry) {}
}

/// The key type of a reconciler.
pub type KeyOf<R> = <<R as Reconciler>::Cache as Cache>::Key;
/// The facts type of a reconciler.
pub type FactsOf<R> = <<R as Reconciler>::Cache as Cache>::Facts;

/// The consequences of one outcome for users and for the key.
#[derive(Debug)]
pub struct Report<S> {
    /// The time when the key runs again.
    pub next: Next,
    /// The event for its user.
    pub event: Option<Event>,
    /// The status for its user.
    pub status: Option<S>,
}
