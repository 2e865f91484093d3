//! How: carries out one decision. The only place that calls the author's code or writes to the API server.

mod attempt;
mod calls;
mod deliver;
mod make;
mod objects;
mod release;
mod rotate;
mod share;
mod status;
mod verify;

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use provisioner_runtime::controller::Context;
use provisioner_runtime::watch::WatchHealth;
use tokio::sync::Mutex;

use super::backend::BucketBackend;
use super::cache::BucketCache;
use super::decide::Rules;
use super::decision::{Decision, NoAction};
use super::facts::Facts;
use super::outcome::{NotServed, Outcome};
use crate::bucket::BucketStart;
use crate::controller::shared::calls::start_backend;
use crate::controller::shared::limits::{CallLimits, Thresholds};

/// One step of the work on one key.
pub(crate) type Step<'a> = provisioner_runtime::controller::Step<'a, BucketCache>;

pub(crate) struct Actions {
    pub(crate) context: Context<BucketCache>,
    pub(crate) backend: Arc<dyn BucketBackend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: CallLimits,
    /// How often the keys of claims are looked at.
    pub(crate) resync: Duration,
    pub(crate) thresholds: Thresholds,
    /// Serializes the ends of claims with a shared account of an earlier version, so that the last claim revokes it.
    pub(crate) shared_accounts: Mutex<()>,
    /// The watches of the claims and of the ObjectBuckets.
    pub(crate) claims: WatchHealth,
    pub(crate) buckets: WatchHealth,
}

/// How long a claim may wait for its class, or for another provisioner, without an event.
const UNSERVED: Duration = Duration::from_secs(60);

/// Waits some time for a claim to be worked on.
fn not_served(why: NotServed, facts: &Facts, step: &Step<'_>) -> Outcome {
    match facts.claim.as_ref().filter(|claim| claim.is_untouched()) {
        Some(_) if step.work().waits() == 0 => Outcome::Rests { after: UNSERVED },
        Some(_) => Outcome::NotServed(why),
        None => Outcome::NoAction,
    }
}

impl Actions {
    /// Calls the author's `start`.
    pub(crate) async fn start(&self) -> Result<(), String> {
        let (client, cluster_id) = (self.context.client().clone(), self.rules.cluster_id.to_string());
        let start = BucketStart { client, cluster_id };
        start_backend(self.limits.delete, async { self.backend.start(start).await }).await
    }

    pub(crate) async fn execute(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        match decision {
            Decision::NoAction(NoAction::Bound) => Box::pin(self.verify(facts, step, None)).await,
            Decision::NoAction(NoAction::ClassMissing) => not_served(NotServed::NoClass, facts, step),
            Decision::NoAction(NoAction::ClassOfAnother) => not_served(NotServed::ClassOfAnother, facts, step),
            Decision::NoAction(_) => Outcome::NoAction,
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::Attempt(reason) => Box::pin(self.attempt(reason, facts, step)).await,
            Decision::Adopt => Box::pin(self.adopt(facts)).await,
            Decision::Restore => Box::pin(self.restore(facts)).await,
            Decision::Rotate => Box::pin(self.rotate(facts, step)).await,
            Decision::Retire => Box::pin(self.retire(facts, step)).await,
            Decision::Release(ending) => Box::pin(self.release(ending, facts, step)).await,
            Decision::ReleaseClaim => Box::pin(self.release_claim(facts, step)).await,
        }
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, BucketCache> {
        self.context.cache()
    }
}
