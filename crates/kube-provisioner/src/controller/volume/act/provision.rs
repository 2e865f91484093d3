//! Calls the author's `provision` and saves the volume.

use std::sync::Arc;

use futures::future::join;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::limiter::Purpose;

use super::attempt::{Answer, Attempt};
use super::{Actions, CallFailure, Step};
use crate::controller::shared::secret_names::SecretName;
use crate::controller::volume::decision::{Decision, NoAction};
use crate::controller::volume::facts::{ClaimFacts, ClaimState, Facts, Pending, UnsavedVolume};
use crate::controller::volume::key::Key;
use crate::controller::volume::object::{self, VolumeInputs};
use crate::controller::volume::outcome::{Outcome, Stopped};
use crate::controller::volume::safeguards::Safeguard;
use crate::error::{ProvisionError, ProvisionVerdict};
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
        let attempt = self.attempt(Decision::Provision, claim, facts, step)?;
        self.resume(attempt).await
    }

    /// Calls `provision` for an attempt and processes its answer.
    pub(super) async fn resume(&self, attempt: Attempt<'_>) -> Outcome {
        let (step, resumed) = (attempt.step, attempt.resumed);
        let (claim, secrets) = (attempt.claim.clone(), attempt.parameters.secrets.clone());
        let limit = self.limits.provision;
        let Answer { value, pending, permit: _permit } =
            self.call_backend(attempt, limit, |request| self.backend.provision(request)).await?;
        match value {
            Ok(volume) => {
                let unsaved = self.build_volume(step.key(), pending, &claim, &secrets, volume)?;
                self.save(unsaved, step).await
            }
            Err(CallFailure::Returned(error)) => Err(self.not_provisioned(&error, &pending, resumed, step).await),
            Err(CallFailure::Aborted(aborted)) => Err(Stopped::ProvisionAborted { method: "provision", aborted }),
            Err(CallFailure::Stopped(stopped)) => Err(stopped),
        }
    }

    fn build_volume(
        &self,
        key: &Key,
        pending: Arc<Pending>,
        claim: &PersistentVolumeClaim,
        secrets: &[SecretName],
        mut volume: Volume,
    ) -> Result<UnsavedVolume, Stopped> {
        let name = key.to_string();
        let class = &pending.class.object;
        let finalizer = self.rules.finalizer && class.reclaim_policy.as_deref() != Some("Retain");
        let bytes = pending.claim.facts.request.clone().unwrap_or_default();
        volume.annotations.extend(Self::secret_annotations(secrets, &pending.claim.facts, key)?);
        let (identity, cluster_id) = (self.rules.identity_to_record(), &*self.rules.cluster_id);
        let inputs = VolumeInputs { name: &name, bytes, claim, class, finalizer, identity, cluster_id };
        let warning = volume.warning.take();
        let object = object::build(&inputs, volume).map_err(Stopped::BadTemplate)?;
        let body =
            serde_json::to_vec(&object).map_err(|error| Stopped::NotSaved(CallError::Other(error.to_string())))?;
        Ok(UnsavedVolume { name, pending, body, warning, after: None })
    }

    /// Processes an error of `provision`. A final answer ends the attempt; after any other answer, it stays recorded.
    async fn not_provisioned(
        &self,
        error: &ProvisionError,
        pending: &Pending,
        resumed: bool,
        step: &Step<'_>,
    ) -> Stopped {
        let may_be_left = match error.verdict() {
            ProvisionVerdict::InProgress => true,
            ProvisionVerdict::Retry => self.rules.safeguards.include(Safeguard::FailedAttempts),
            ProvisionVerdict::NoChange | ProvisionVerdict::AlreadyExists => resumed,
            _ => false,
        };
        if !may_be_left && let Err(stopped) = self.finish(pending, Purpose::Create, step).await {
            return stopped;
        }
        self.refused(error, pending, step).await
    }

    /// Returns the outcome of an error from the author's code, depending on whether the attempt continues.
    pub(super) async fn refused(&self, error: &ProvisionError, pending: &Pending, step: &Step<'_>) -> Stopped {
        let verdict = error.verdict();
        let mut rescheduled = false;
        if let (ProvisionVerdict::Reschedule, Some(node)) = (verdict, &pending.claim.facts.selected_node) {
            match self.reschedule(&pending.claim.facts, node, step).await {
                Ok(is_asked) => rescheduled = is_asked,
                Err(stopped) => return stopped,
            }
        }
        let message = error.event_text(step.key());
        Stopped::NotProvisioned { verdict, message, retry_after: error.retry_after(), rescheduled }
    }

    /// Asks the scheduler to choose another node. That node's replica may begin immediately, so this attempt's entry is
    /// removed first. Returns whether the claim still named the node.
    pub(super) async fn reschedule(&self, claim: &ClaimFacts, node: &str, step: &Step<'_>) -> Result<bool, Stopped> {
        step.remove_entry();
        step.fence().await.map_err(Stopped::NotJournaled)?;
        let answer = self.unselect_node(claim, node).await;
        let mut cache = self.cache();
        let answer = match answer {
            Ok(Some(claim)) => {
                cache.observe_claim(claim);
                return Ok(true);
            }
            answer => answer,
        };
        // Our copy of the claim is out of date, and the watch may be behind.
        cache.confirm_first(step.key());
        match answer {
            Ok(_) | Err(CallError::NotFound) => Ok(false),
            Err(error) => Err(Stopped::by_write("asking the scheduler for another node", error)),
        }
    }

    /// Reads the claim and its volume from the API server, since the watches may not show yet that it has one.
    pub(super) async fn confirm(&self, facts: &Facts, key: &Key) -> Outcome {
        let ClaimState::Waiting(claim) = &facts.claim else { return Err(Stopped::Changed) };
        let volume = key.to_string();
        let (live, volume) =
            join(self.read_claim(&claim.facts.namespace, &claim.facts.name), self.read_volume(&volume)).await;
        let volume = match volume {
            Ok(volume) => Some(volume.seen),
            Err(CallError::NotFound) => None,
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        };
        let live = match live {
            Ok(live) if live.metadata().uid.as_deref() == Some(&*claim.facts.uid) => live,
            // The watch will deliver the change, and any other claim of that name.
            Ok(_) | Err(CallError::NotFound) => return Err(Stopped::NoAction(NoAction::ClaimTerminating)),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the claim again", error }),
        };
        let mut cache = self.cache();
        cache.confirmed(key);
        cache.observe_claim(live);
        if let Some(volume) = volume {
            cache.observe_volume(volume);
        }
        Err(Stopped::Changed)
    }
}
