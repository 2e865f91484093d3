//! How: carries out one decision. The only place that calls the author's code or writes to the API server.

mod attempt;
mod calls;
mod deliver;
mod objects;
mod release;
mod rotate;
mod status;

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use provisioner_runtime::controller::{Context, FencingToken, NoAnswer, guarded};
use provisioner_runtime::watch::WatchHealth;

use super::backend::BucketBackend;
use super::cache::BucketCache;
use super::decide::{Decision, Rules};
use super::facts::Facts;
use super::messages::{Told, told};
use super::outcome::Outcome;
use super::report::{Thresholds, gives_up};

/// One step of the work on one key.
pub(crate) type Step<'a> = provisioner_runtime::controller::Step<'a, BucketCache>;

/// Time limits of calls of the author's code.
#[derive(Clone, Debug)]
pub(crate) struct CallLimits {
    /// One call of `provision` or `grant`.
    pub(crate) provision: Duration,
    /// One call of another method.
    pub(crate) delete: Duration,
}

pub(crate) struct Actions {
    pub(crate) context: Context<BucketCache>,
    pub(crate) backend: Arc<dyn BucketBackend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: CallLimits,
    pub(crate) thresholds: Thresholds,
    /// The watches of the claims and of the ObjectBuckets.
    pub(crate) claims: WatchHealth,
    pub(crate) buckets: WatchHealth,
}

impl Actions {
    /// Calls the author's `start`.
    pub(crate) async fn start(&self) -> Result<(), String> {
        let limit = self.limits.delete;
        match guarded(limit, &FencingToken::unlimited(), async { self.backend.start().await }).await {
            Ok(started) => started.map_err(|error| error.to_string()),
            Err(NoAnswer::Panicked(panic)) => Err(format!("its code crashed: {panic}")),
            Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
        }
    }

    /// What an outcome of this attempt means for the claim's user.
    pub(crate) fn told(&self, outcome: &Outcome, facts: &Facts, attempt: u32) -> Option<Told> {
        let gave_up = gives_up(outcome, attempt, self.thresholds).then_some(attempt);
        told(outcome, facts, &self.rules.names.own, gave_up)
    }

    /// What comes of it is told in the claim's status, too.
    pub(crate) async fn carry_out(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        let outcome = match decision {
            Decision::NoAction(_) => return Outcome::NoAction,
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::Attempt(reason) => Box::pin(self.attempt(reason, facts, step)).await,
            Decision::Adopt => Box::pin(self.adopt(facts)).await,
            Decision::Restore => Box::pin(self.restore(facts)).await,
            // The bucket can be used whatever comes of these, so the status stays as it is.
            Decision::Rotate => return Box::pin(self.rotate(facts, step)).await,
            Decision::Retire => return Box::pin(self.retire(facts, step)).await,
            Decision::Release(ending) => Box::pin(self.release(ending, facts, step)).await,
            Decision::ReleaseClaim => Box::pin(self.release_claim(facts)).await,
        };
        match self.tell(&outcome, step).await {
            Ok(()) => outcome,
            Err(error) => Outcome::CallFailed { doing: "writing the claim's status", error },
        }
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, BucketCache> {
        self.context.cache()
    }
}
