//! Calls the author's `provision` and saves the volume.

use std::pin::pin;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::NoAnswer;
use tokio::time::{Instant, sleep};

use super::attempt::{Answer, Attempt};
use super::lock::Lock;
use super::{Actions, Step};
use crate::controller::secret_names::SecretName;
use crate::controller::volume::decide::{Decision, NoAction};
use crate::controller::volume::events::{SLOW, slow};
use crate::controller::volume::facts::{ClaimFacts, ClaimState, Facts, Pending, Progress, UnsavedVolume};
use crate::controller::volume::key::Key;
use crate::controller::volume::object::{self, VolumeInputs};
use crate::controller::volume::outcome::Outcome;
use crate::controller::volume::safeguards::Safeguard;
use crate::error::{ProvisionError, Verdict};
use crate::volume::Volume;

impl Actions {
    pub(super) async fn provision(
        &self,
        claim: Option<Arc<PersistentVolumeClaim>>,
        facts: &Facts,
        step: &Step<'_>,
    ) -> Outcome {
        if claim.is_none() && matches!(&facts.claim, ClaimState::Waiting(claim) if claim.object.is_none()) {
            return self.confirm(facts, step.key()).await;
        }
        match self.attempt(Decision::Provision, claim, facts, step) {
            Ok(attempt) => self.carry_on(attempt, facts).await,
            Err(outcome) => outcome,
        }
    }

    /// Calls `provision` for an attempt and goes on with its answer.
    pub(super) async fn carry_on(&self, attempt: Attempt<'_>, facts: &Facts) -> Outcome {
        let (pending, step, key) = (attempt.pending.clone(), attempt.step, attempt.step.key());
        let (claim, secrets) = (attempt.claim.clone(), attempt.parameters.secrets.clone());
        let lock = match self.lock_claim(facts, &pending, key).await {
            Ok(lock) => lock,
            Err(outcome) => return outcome,
        };
        let (held, deadline) = (lock.as_ref().map(Lock::held_state), lock.as_ref().map(Lock::deadline));
        let answer = self.ask(attempt, lock, self.limits.provision, |request| self.backend.provision(request)).await;
        let deadline = deadline.map(|deadline| deadline());
        let outcome = match answer {
            // The next holder of the lock may have ended the attempt.
            Ok(Answer { value: Ok(Ok(_)), .. }) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                Outcome::ProvisionBroke { method: "provision", no_answer: NoAnswer::CutOff }
            }
            Ok(Answer { value: Ok(Ok(volume)), permit: _permit }) => {
                match self.unsaved(key, pending.clone(), &claim, &secrets, volume) {
                    Ok(unsaved) => self.save(key, unsaved, deadline).await,
                    Err(outcome) => outcome,
                }
            }
            Ok(Answer { value: Ok(Err(error)), .. }) => self.not_provisioned(&error, &pending, step).await,
            Ok(Answer { value: Err(no_answer), .. }) => Outcome::ProvisionBroke { method: "provision", no_answer },
            Err(outcome) => outcome,
        };
        if let Some(held) = held {
            self.release_if_over(key, &pending.claim.facts, held()).await;
        }
        outcome
    }

    fn unsaved(
        &self,
        key: &Key,
        pending: Arc<Pending>,
        claim: &PersistentVolumeClaim,
        secrets: &[SecretName],
        mut volume: Volume,
    ) -> Result<UnsavedVolume, Outcome> {
        let name = key.to_string();
        let class = &pending.class.object;
        let finalizer = self.rules.finalizer && class.reclaim_policy.as_deref() != Some("Retain");
        let bytes = pending.claim.facts.request.clone().unwrap_or_default();
        volume.annotations.extend(self.secret_annotations(secrets, &pending.claim.facts, key)?);
        let inputs =
            VolumeInputs { name: &name, bytes, claim, class, finalizer, identity: Some(&*self.rules.identity) };
        let warning = volume.warning.take();
        let object = object::build(&inputs, volume).map_err(Outcome::BadTemplate)?;
        let body =
            serde_json::to_vec(&object).map_err(|error| Outcome::NotSaved(CallError::Other(error.to_string())))?;
        Ok(UnsavedVolume { name, pending, body, warning })
    }

    /// Runs a call and sends an event if it is slow.
    pub(super) async fn watched<T>(&self, claim: &ClaimFacts, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = sleep(SLOW) => self.context.events().record(slow(&self.rules.names.own, claim)),
        }
        call.await
    }

    /// A final answer ends the attempt. After any other answer the attempt stays recorded.
    async fn not_provisioned(&self, error: &ProvisionError, pending: &Pending, step: &Step<'_>) -> Outcome {
        let verdict = error.verdict();
        let may_be_left = match verdict {
            Verdict::InProgress => true,
            Verdict::Retry => self.rules.safeguards.include(Safeguard::FailedAttempts),
            _ => false,
        };
        if !may_be_left {
            self.cache().set_progress(step.key(), Progress::None);
        }
        let mut rescheduled = false;
        if let (Verdict::Reschedule, Some(node)) = (verdict, &pending.claim.facts.selected_node) {
            rescheduled = true;
            if let Err(outcome) = self.reschedule(&pending.claim.facts, node, step).await {
                return outcome;
            }
        }
        let message = error.to_string();
        Outcome::NotProvisioned { verdict, message, retry_after: error.retry_after(), rescheduled }
    }

    /// Lets the scheduler choose another node. That node's replica may begin at once, so this attempt's entry is
    /// removed first.
    async fn reschedule(&self, claim: &ClaimFacts, node: &str, step: &Step<'_>) -> Result<(), Outcome> {
        step.remove_entry();
        step.fence().await.map_err(Outcome::NotJournaled)?;
        let answer = self.unselect_node(claim, node).await;
        let mut cache = self.cache();
        let answer = match answer {
            Ok(Some(claim)) => {
                cache.saw_claim(claim);
                return Ok(());
            }
            answer => answer,
        };
        // Our copy of the claim is out of date, and the watch may be behind.
        cache.confirm_first(step.key());
        match answer {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(Outcome::CallFailed { doing: "asking the scheduler for another node", error }),
        }
    }

    /// Reads the claim from the API server: the watch may not show yet that it has a volume.
    pub(super) async fn confirm(&self, facts: &Facts, key: &Key) -> Outcome {
        let ClaimState::Waiting(claim) = &facts.claim else { return Outcome::Changed };
        let live = match self.read_claim(&claim.facts.namespace, &claim.facts.name).await {
            Ok(live) if live.metadata().uid.as_deref() == Some(&*claim.facts.uid) => live,
            // The watch will show it, and any other claim of that name.
            Ok(_) | Err(CallError::NotFound) => return Outcome::NoAction(NoAction::ClaimGoes),
            Err(error) => return Outcome::CallFailed { doing: "reading the claim again", error },
        };
        let mut cache = self.cache();
        cache.confirmed(key);
        cache.saw_claim(live);
        Outcome::Changed
    }
}
