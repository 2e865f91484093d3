//! Carries out one decision: the only place that calls the author's code or writes to the API server.

mod attempt;
mod clean_up;
mod delete;
mod expand;
mod inputs;
mod nodes;
mod objects;
mod protect;
mod provision;
mod save;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};

use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use provisioner_runtime::Cache;
use provisioner_runtime::controller::{CallAborted, Context, Refused, catch_panic};
use provisioner_runtime::watch::WatchHealth;

use super::backend::Backend;
use super::cache::VolumeCache;
use super::decide::{Decision, NoAction, Refusal, Rules, decide};
use super::facts::{ClaimState, ClassState, Facts, WaitingClaim};
use super::key::Key;
use super::outcome::Outcome;
use crate::controller::shared::calls::start_backend;
use crate::controller::shared::class_parameters::BadParameters;
use crate::controller::shared::limits::CallLimits;
use crate::start::Start;

/// One step of the work on one key.
pub(crate) type Step<'a> = provisioner_runtime::controller::Step<'a, VolumeCache>;

pub(crate) struct Actions {
    pub(crate) context: Context<VolumeCache>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: CallLimits,
    /// The provisioner's own namespace.
    pub(crate) namespace: String,
    /// Whether a call has shown that the author has no `should_delete`.
    pub(crate) no_guard: AtomicBool,
    /// Whether a call has shown that the author has no `clean_up`.
    pub(crate) no_clean_up: AtomicBool,
    /// The watches of the claims and of the volumes.
    pub(crate) claims: WatchHealth,
    pub(crate) volumes: WatchHealth,
}

impl Actions {
    /// Calls the author's `start`, which restores what the author keeps in memory.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), String> {
        let actions = self.clone();
        let start = Start::listing(self.client().clone(), &self.rules.cluster_id, move || {
            let actions = actions.clone();
            async move { Ok(actions.own_volumes().await?) }.boxed()
        });
        start_backend(self.limits.delete, async { self.backend.start(start).await }).await
    }

    pub(crate) async fn execute(&self, decision: Decision, facts: &Facts, step: &Step<'_>) -> Outcome {
        let claim = match self.asked_for(&decision, facts, step) {
            Ok(claim) => claim,
            Err(outcome) => return outcome,
        };
        let key = step.key();
        match decision {
            Decision::NoAction(why) => Outcome::NoAction(why),
            Decision::Refuse(Refusal::ParametersCrash(_)) => self.read_class_again(facts),
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
            Decision::Provision => self.provision(claim, facts, step).await,
            // Boxed, because a task is as large as the largest of these, and there are many tasks of one kind.
            Decision::CleanUp => Box::pin(self.clean_up(facts, step)).await,
            Decision::DeleteSurplus => Box::pin(self.delete_surplus(facts, step)).await,
            Decision::Delete(deletion) => Box::pin(self.delete(deletion, facts, step)).await,
            Decision::Expand { bytes } => Box::pin(self.expand(bytes, facts, step)).await,
            Decision::LookForNode { name } => Box::pin(self.look_for_node(name, facts, step)).await,
            Decision::Confirm => self.confirm(facts, key).await,
            Decision::ConfirmVolume => self.confirm_volume(key).await,
            Decision::Save => Box::pin(self.save_again(facts, key)).await,
            Decision::FinishDelete => self.finish_delete(facts, key).await,
            Decision::Protect => self.set_protection(facts, key, true).await,
            Decision::Unprotect => self.set_protection(facts, key, false).await,
        }
    }

    /// The claim of a new attempt. Where the author's `accepts` refuses the claim, it gets no event.
    fn asked_for(
        &self,
        decision: &Decision,
        facts: &Facts,
        step: &Step<'_>,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Outcome> {
        let is_new = match decision {
            Decision::Provision | Decision::Confirm => true,
            Decision::Refuse(
                Refusal::Copy { .. }
                | Refusal::Nobodys
                | Refusal::NodeGone { .. }
                | Refusal::OtherCluster { .. }
                | Refusal::OtherInstallation { .. }
                | Refusal::RetainedTooLate
                | Refusal::UnreadableVolume { .. },
            ) => false,
            Decision::Refuse(_) => true,
            // The first look at another node's claim only begins to wait.
            Decision::LookForNode { .. } => step.work().waits() > 0,
            _ => false,
        };
        let ClaimState::Waiting(claim) = &facts.claim else { return Ok(None) };
        if !is_new || facts.attempt().is_some() {
            return Ok(None);
        }
        let Some(typed) = typed(claim)? else { return Ok(None) };
        match catch_panic(|| self.backend.accepts(&typed)) {
            Ok(true) => Ok(Some(Arc::new(typed))),
            Ok(false) => Err(Outcome::NoAction(NoAction::Vetoed)),
            Err(panic) => Err(Outcome::ProvisionAborted { method: "accepts", aborted: CallAborted::Panicked(panic) }),
        }
    }

    /// Reads the parameters once more, since the author's code may not crash the second time.
    fn read_class_again(&self, facts: &Facts) -> Outcome {
        let ClassState::Ours(class) = &facts.class else { return Outcome::Changed };
        let again = class.read_again((&*self.backend, &self.rules.capabilities));
        if let Err(BadParameters::Crashed(panic)) = again.parameters {
            return Outcome::ProvisionAborted {
                method: "Parameters::deserialize",
                aborted: CallAborted::Panicked(panic),
            };
        }
        self.cache().class_read_again(again);
        Outcome::Changed
    }

    pub(crate) fn cache(&self) -> MutexGuard<'_, VolumeCache> {
        self.context.cache()
    }

    fn client(&self) -> &Client {
        self.context.client()
    }

    /// What would be decided now.
    fn decision_now(&self, key: &Key) -> Decision {
        decide(&self.cache().facts(key), &self.rules)
    }
}

/// The answer of the author's code, or why it gave none. Where it was not called, the outcome.
fn answered<T>(call: Result<T, Refused>) -> Result<Result<T, CallAborted>, Outcome> {
    match call {
        Ok(answer) => Ok(Ok(answer)),
        Err(Refused::Aborted(aborted)) => Ok(Err(aborted)),
        Err(Refused::Unwanted) => Err(Outcome::Changed),
        Err(Refused::Journal(error)) => Err(Outcome::NotJournaled(error)),
    }
}

/// The claim as the author gets it. `None` where the cache no longer has the whole object.
fn typed(claim: &WaitingClaim) -> Result<Option<PersistentVolumeClaim>, Outcome> {
    let Some(object) = &claim.object else { return Ok(None) };
    serde_json::from_str(object).map(Some).map_err(|error| Outcome::Refused(Refusal::Request(error.to_string())))
}
