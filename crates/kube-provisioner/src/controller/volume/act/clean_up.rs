//! Ends attempts that will not result in a volume: by the provisioner's `clean_up`, or by calling `provision` until it
//! answers and deleting the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::controller::{Call, CallPermit, JournalRecord};
use provisioner_runtime::limiter::Purpose;
use provisioner_runtime::{Cache, CallError};

use super::attempt::Attempt;
use super::objects::LiveVolume;
use super::{Actions, CallFailure, Step, answered, typed};
use crate::controller::volume::decision::Decision;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, Facts, Pending, Progress};
use crate::controller::volume::outcome::{Done, Outcome, Stopped};
use crate::controller::volume::safeguards::Safeguard;
use crate::error::{DeleteError, DeleteVerdict};
use crate::protocol;

impl Actions {
    pub(super) async fn clean_up(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let attempt = self.attempt(Decision::CleanUp, None, facts, step)?;
        let can_clean_up = !self.no_clean_up.load(Ordering::Relaxed);
        if let Some(after) = may_be_saved_late(&attempt.pending, facts).filter(|_| can_clean_up) {
            return Ok(Done::CheckAgain { after });
        }
        let has_rival = self.has_rival(&attempt).await?;
        if has_rival || !can_clean_up {
            // The backend may be creating an asset, which must become a volume that is then deleted. A volume of this
            // name on another node is compared with it.
            return self.resume(attempt).await;
        }
        let answer = self.call_backend(attempt, self.limits.delete, |attempt| self.backend.clean_up(attempt)).await?;
        if let Err(failure) = answer.value {
            if matches!(&failure, CallFailure::Returned(error) if error.verdict() == DeleteVerdict::Unsupported) {
                self.no_clean_up.store(true, Ordering::Relaxed);
                return Err(Stopped::Changed);
            }
            return Err(not_cleaned_up(failure, "clean_up", step));
        }
        self.finish(&answer.pending, Purpose::Remove, step).await?;
        Ok(Done::CleanedUp)
    }

    /// Reads the volume and the claim from the API server. Our watch may be behind: the volume may be in use, and the
    /// claim may exist or have had the volume. Returns whether the claim uses a volume of this name on another node.
    async fn has_rival(&self, attempt: &Attempt<'_>) -> Result<bool, Stopped> {
        let volume = attempt.step.key().to_string();
        let is_created_elsewhere = match self.read_volume(&volume).await {
            Err(CallError::NotFound) => false,
            Ok(LiveVolume { seen, object })
                if self.is_of_other_installation(&seen) && !is_of_another(&object, &attempt.pending) =>
            {
                true
            }
            // Once the watch shows it, the attempt waits for its removal: any volume of this name may use the asset.
            Ok(_) => return Err(Stopped::WatchBehind),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        };
        if is_created_elsewhere && self.rules.node_topology.is_none() {
            // Without `clean_up`, the two assets are compared.
            if self.rules.capabilities.node_local || self.no_clean_up.load(Ordering::Relaxed) {
                return Ok(false);
            }
            // That volume may use the asset; the installation that created it deletes both.
            self.finish(&attempt.pending, Purpose::Remove, attempt.step).await?;
            return Err(Stopped::Changed);
        }
        let claim = &attempt.pending.claim.facts;
        let live = match self.read_claim(&claim.namespace, &claim.name).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Ok(false),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the claim", error }),
        };
        if live.metadata().uid.as_deref() != Some(&*claim.uid) {
            // A claim that was restored from a backup may refer to the data. A user who sets its volume name has to
            // keep the claim.
            let restored = match &live.fields {
                Ok(claim) => claim.bound_to() == Some(&*volume),
                Err(_) => self.rules.safeguards.include(Safeguard::Unreadable),
            };
            if !restored {
                return Ok(false);
            }
            return Err(clean_up_postponed(format!(
                "a new claim of this name may need the volume, so nothing is removed until that claim is deleted; to keep \
                 the data, run the provisioner's command `journal drop {volume}`"
            )));
        }
        let goes = live.metadata().deletion_timestamp.is_some();
        if live.fields.as_ref().is_ok_and(|claim| claim.has_had(&volume)) {
            // The volume was saved and then force-deleted. A pod may use the data as long as the claim exists.
            if goes {
                return Err(Stopped::WatchBehind);
            }
            if is_created_elsewhere {
                return Ok(true);
            }
            // The claim's data is kept.
            self.finish(&attempt.pending, Purpose::Remove, attempt.step).await?;
            return Err(Stopped::Changed);
        }
        let has_other = match &live.fields {
            Ok(claim) => claim.bound_to().is_some(),
            Err(_) if self.rules.safeguards.include(Safeguard::Unreadable) => false,
            Err(_) => true,
        };
        // If the cache contains the claim, the class is the reason for the clean-up.
        let known = self.cache().facts(attempt.step.key()).claim;
        let is_it = |known: &ClaimFacts| known.uid == claim.uid && !known.deleting;
        let lives = matches!(known, ClaimState::Waiting(known) if is_it(&known.facts));
        // The cache has no claims of other provisioners. A claim that lost the annotation may receive it again.
        let asked = live.metadata().annotations.asked();
        if goes || has_other || lives || asked.is_some_and(|name| !self.rules.names.include(name)) {
            return Ok(false);
        }
        if asked.is_some() {
            return Err(Stopped::WatchBehind);
        }
        Err(clean_up_postponed(format!(
            "the claim names no provisioner, so nothing is removed; restore its annotation {}, or delete the claim",
            protocol::STORAGE_PROVISIONER
        )))
    }

    /// Calls the provisioner's `delete` for a surplus asset: another process has saved the volume with another asset.
    pub(super) async fn delete_surplus(&self, facts: &Facts, step: &Step<'_>) -> Outcome {
        let Progress::Surplus(unsaved) = &facts.progress else { return Err(Stopped::Changed) };
        let flow = unsaved.pending.flow(Purpose::Remove);
        let Some(_permit) = step.enter(&flow) else { return Err(Stopped::AwaitsPermit(flow)) };
        let object: PersistentVolume = match serde_json::from_slice(&unsaved.body) {
            Ok(object) => object,
            Err(error) => return Err(Stopped::NotSaved(CallError::Other(error.to_string()))),
        };
        let secrets = self.secrets_of(&object).await?;
        let (fencing_token, _guard) = step.token();
        let argument = self.argument(object, secrets, &fencing_token);
        let limit = self.limits.delete;
        let call = Call { permit: CallPermit::Of(&flow), limit, token: &fencing_token, record: JournalRecord::Exists };
        let answer = answered(step.call(call, |_| true, || self.backend.delete(argument)).await);
        answer.map_err(|failure| not_cleaned_up(failure, "delete", step))?;
        self.finish(&unsaved.pending, Purpose::Remove, step).await?;
        Ok(Done::CleanedUp)
    }

    /// Ends an attempt that has left nothing behind, or whose volume is known.
    pub(super) async fn finish(&self, pending: &Pending, purpose: Purpose, step: &Step<'_>) -> Result<(), Stopped> {
        self.end_attempt(pending, purpose, step).await?;
        self.cache().set_progress(step.key(), Progress::None);
        Ok(())
    }

    /// Calls the provisioner at the end of an attempt. The attempt stays recorded until that call succeeds. Hanging
    /// deletions must not delay the end of an attempt that has created a volume, so it has the purpose of its cause.
    pub(super) async fn end_attempt(
        &self,
        pending: &Pending,
        purpose: Purpose,
        step: &Step<'_>,
    ) -> Result<(), Stopped> {
        if !self.rules.capabilities.attempt_end {
            return Ok(());
        }
        let claim = Arc::new(typed(&pending.claim)?.ok_or(Stopped::WatchBehind)?);
        let parameters = self.parameters_of(pending)?.parsed;
        let (fencing_token, _guard) = step.token();
        let request = self.request_of(pending, claim, parameters, step.key(), &fencing_token);
        let (flow, limit) = (pending.flow(purpose), self.limits.delete);
        let call = Call { permit: CallPermit::Of(&flow), limit, token: &fencing_token, record: JournalRecord::Exists };
        let answer = answered(step.call(call, |_| true, || self.backend.end_attempt(request)).await);
        answer.map_err(|failure| not_cleaned_up(failure, "end_attempt", step))
    }
}

/// Returns the time until no request of another process can save the volume any more. If the claim still exists, it
/// would be bound to a volume without storage.
fn may_be_saved_late(attempt: &Pending, facts: &Facts) -> Option<Duration> {
    let after = protocol::MAX_REQUEST_DURATION.saturating_sub(attempt.begun.elapsed());
    let may_bind = matches!(facts.claim, ClaimState::Waiting(_)) && attempt.taken_over;
    (may_bind && !after.is_zero()).then_some(after)
}

/// Returns the outcome of a clean-up that must not begin yet.
fn clean_up_postponed(message: String) -> Stopped {
    Stopped::NotCleanedUp { verdict: DeleteVerdict::InProgress, message, retry_after: None }
}

fn not_cleaned_up(failure: CallFailure<DeleteError>, method: &'static str, step: &Step<'_>) -> Stopped {
    let returned = |error: DeleteError| {
        let (verdict, retry_after) = (error.verdict(), error.retry_after());
        Stopped::NotCleanedUp { verdict, message: error.event_text(step.key()), retry_after }
    };
    failure.stop(returned, |aborted| Stopped::ProvisionAborted { method, aborted })
}

/// Returns true if the volume belongs to another claim than the attempt: that claim may own the asset of this name.
pub(super) fn is_of_another(volume: &PersistentVolume, attempt: &Pending) -> bool {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref());
    claim.is_some_and(|uid| !uid.is_empty() && *uid != *attempt.claim.facts.uid)
}
