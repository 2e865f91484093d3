//! Carries out one decision: the only place that calls the author's code or writes to the API server.

mod attempt;
mod clean_up;
mod delete;
mod inputs;
mod lock;
mod objects;
mod protect;
mod provision;
mod save;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use provisioner_runtime::limiter::Limiter;
use provisioner_runtime::queue::Work;
use provisioner_runtime::surroundings::Surroundings;
use provisioner_runtime::throttle::ApiLimiter;
use provisioner_runtime::watch::WatchHealth;

pub(crate) use self::lock::Locks;
use super::decide::{Decision, Refusal, Rest, Rules, decide};
use super::duty::Duty;
use super::erased::{Backend, panic_text, unpanicked};
use super::facts::{BadParameters, ClaimState, ClassState, Facts, WaitingClaim};
use super::key::Key;
use super::outcome::{Breakage, Outcome};
use super::tell::Narrator;
use super::world::World;
use crate::error::StartError;
use crate::mandate::Mandate;
use crate::start::Start;

/// Time limits of calls.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// One call of the author's `provision`.
    pub(crate) provision: Duration,
    /// One call of the author's other methods.
    pub(crate) delete: Duration,
    /// One call to the API server.
    pub(crate) api: Duration,
}

pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) environment: Surroundings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: Limits,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) narrator: Arc<Narrator>,
    /// Where every replica works, and locks what it works on.
    pub(crate) locks: Option<Locks>,
    /// Calls of the author's code, by class.
    pub(crate) calls: Limiter,
    /// Requests about claims and volumes. Neither waits for the other.
    pub(crate) api: ApiLimiter,
    /// The author has no `should_delete`, as far as is known.
    pub(crate) no_guard: AtomicBool,
    /// The author has no `clean_up`, as far as is known.
    pub(crate) no_clean_up: AtomicBool,
    /// The watches of the claims and of the volumes.
    pub(crate) claims: WatchHealth,
    pub(crate) volumes: WatchHealth,
}

/// How new everything of one kind is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    pub(crate) claims: u64,
    pub(crate) volumes: u64,
}

impl Actor {
    /// Lets the author restore what is kept in memory.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), StartError> {
        let actor = self.clone();
        let start = Start::listing(self.client.clone(), move || {
            let actor = actor.clone();
            async move { Ok(actor.own_volumes().await?) }.boxed()
        });
        match self.guarded(self.limits.delete, &Mandate::unlimited(), async { self.backend.start(start).await }).await {
            Ok(started) => started,
            Err(Breakage::Panicked(panic)) => Err(StartError::new(format!("its code crashed: {panic}"))),
            Err(_) => Err(StartError::new(format!("no answer within {} s", self.limits.delete.as_secs()))),
        }
    }

    pub(crate) async fn carry_out(&self, decision: Decision, facts: &Facts, work: &Work<Key>, duty: &Duty) -> Outcome {
        let claim = match self.asked_for(&decision, facts) {
            Ok(claim) => claim,
            Err(outcome) => return outcome,
        };
        let key = work.key();
        match decision {
            Decision::Rest(why) => Outcome::Rested(why),
            Decision::Refuse(Refusal::ParametersCrash(_)) => self.read_class_again(facts),
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
            Decision::Provision => self.provision(claim, facts, work, duty).await,
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::CleanUp => Box::pin(self.clean_up(facts, work, duty)).await,
            Decision::DeleteSurplus => Box::pin(self.delete_surplus(facts, work, duty)).await,
            Decision::ReleaseClaim => Box::pin(self.release_claim_of(facts)).await,
            Decision::Delete(deletion) => Box::pin(self.delete(deletion, facts, work, duty)).await,
            Decision::LookForNode { name } => self.look_for_node(name, work.waits()).await,
            Decision::Confirm => self.confirm(facts, key).await,
            Decision::ConfirmVolume => self.confirm_volume(key).await,
            Decision::Save => Box::pin(self.save_again(facts, key)).await,
            Decision::FinishDelete => self.finish_delete(facts, key).await,
            Decision::Protect => self.set_protection(facts, key, true).await,
            Decision::Unprotect => self.set_protection(facts, key, false).await,
        }
    }

    /// The claim that asks for something new, unless the author's `accepts` says no: then nothing is said of it either.
    fn asked_for(&self, decision: &Decision, facts: &Facts) -> Result<Option<Arc<PersistentVolumeClaim>>, Outcome> {
        let is_new = match decision {
            Decision::Provision | Decision::Confirm => true,
            Decision::Refuse(
                Refusal::NodeGone { .. } | Refusal::OtherInstallation { .. } | Refusal::RetainedTooLate,
            ) => false,
            Decision::Refuse(_) => true,
            _ => false,
        };
        let ClaimState::Waiting(claim) = &facts.claim else { return Ok(None) };
        if !is_new || facts.attempt().is_some() || claim.held.is_some() {
            return Ok(None);
        }
        let Some(typed) = typed(claim)? else { return Ok(None) };
        match unpanicked(|| self.backend.accepts(&typed)) {
            Ok(true) => Ok(Some(Arc::new(typed))),
            Ok(false) => Err(Outcome::Rested(Rest::Vetoed)),
            Err(panic) => Err(Outcome::ProvisionBroke { method: "accepts", breakage: Breakage::Panicked(panic) }),
        }
    }

    /// The author's code may not crash the second time.
    fn read_class_again(&self, facts: &Facts) -> Outcome {
        let ClassState::Ours(class) = &facts.class else { return Outcome::Changed };
        let again = class.read_again((&*self.backend, &self.rules.capabilities));
        if let Err(BadParameters::Crashed(panic)) = again.parameters {
            return Outcome::ProvisionBroke { method: "Parameters::deserialize", breakage: Breakage::Panicked(panic) };
        }
        self.world().class_read_again(again);
        Outcome::Changed
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What would be decided now.
    fn decision_now(&self, key: &Key) -> Decision {
        decide(&self.world().facts(key), &self.rules)
    }

    /// An author's call with a time limit, and its panic as a value. It gets no time once this process may have lost the
    /// right to it.
    async fn guarded<T>(
        &self,
        limit: Duration,
        mandate: &Mandate,
        call: impl Future<Output = T>,
    ) -> Result<T, Breakage> {
        let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
        let call = poll_fn(|context| {
            if !mandate.holds() {
                return Poll::Ready(Err(Breakage::CutOff));
            }
            let answer = ready!(call.as_mut().poll(context));
            Poll::Ready(answer.map_err(|panic| Breakage::Panicked(panic_text(&*panic))))
        });
        tokio::time::timeout(limit, call).await.unwrap_or(Err(Breakage::TimedOut(limit)))
    }
}

/// The claim as the author gets it. Nothing where it is not known whole any more.
fn typed(claim: &WaitingClaim) -> Result<Option<PersistentVolumeClaim>, Outcome> {
    let Some(object) = &claim.object else { return Ok(None) };
    serde_json::from_str(object).map(Some).map_err(|error| Outcome::Refused(Refusal::Request(error.to_string())))
}
