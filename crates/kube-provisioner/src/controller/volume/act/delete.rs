//! Calls the provisioner's `delete` once for a released volume, and deletes its object.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::controller::{Call, CallPermit, FencingToken, JournalRecord};
use provisioner_runtime::limiter::{LimiterPermit, Purpose};
use provisioner_runtime::{Cache, CallError};
use tokio::time::Instant;

use super::{Actions, CallFailure, Step, answered};
use crate::controller::volume::decision::{Decision, Deletion, NoAction};
use crate::controller::volume::facts::{ClaimState, Facts, OurVolume, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};
use crate::error::{DeleteError, DeleteVerdict};
use crate::secrets::Secrets;

/// The common parts of the calls to the provisioner for one volume.
struct DeleteCalls<'a> {
    step: &'a Step<'a>,
    permit: &'a LimiterPermit,
    token: &'a FencingToken,
}

impl<'a> DeleteCalls<'a> {
    fn call(&self, limit: Duration, record: JournalRecord) -> Call<'a> {
        Call { permit: CallPermit::Held(self.permit), limit, token: self.token, record }
    }
}

impl Actions {
    pub(super) async fn delete(&self, deletion: Deletion, facts: &Facts, step: &Step<'_>) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        let flow = volume.facts.flow(Purpose::Remove);
        let Some(_permit) = step.enter(&flow) else { return Err(Stopped::AwaitsPermit(flow)) };
        let (key, started) = (step.key(), Instant::now());
        let permit = step.call_permit(&flow).await;
        let (token, _guard) = step.token();
        let calls = DeleteCalls { step, permit: &permit, token: &token };
        let deleting = async {
            let live = self.ready_to_delete(deletion, facts, &calls).await?;
            let secrets = self.secrets_of(&live).await?;
            let argument = self.argument(live.clone(), secrets, &token);
            let call = calls.call(self.limits.delete, JournalRecord::Exists);
            let answer = answered(step.call(call, |_| true, || self.backend.delete(argument)).await);
            answer.map_err(|failure| not_deleted(failure, "delete"))?;
            Ok(live)
        };
        let live: Result<_, Stopped> = deleting.await;
        // The call's permit ends here. Deleting the object belongs to the attempt, not to the call.
        drop(permit);
        let live = live?;
        self.cache().backend_deleted(key, &volume.facts.uid, false);
        self.remove_object(&live, volume, key, started).await
    }

    /// Reads the volume and verifies that its asset may be deleted.
    async fn ready_to_delete(
        &self,
        deletion: Deletion,
        facts: &Facts,
        calls: &DeleteCalls<'_>,
    ) -> Result<Arc<PersistentVolume>, Stopped> {
        let key = calls.step.key();
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        self.owner_is_gone(volume, key).await?;
        let guarded = self.call_guard(deletion, volume, calls).await?;
        let version = guarded.unwrap_or_else(|| volume.resource_version.to_string());
        let live = self.live_volume(deletion, volume, &version, key).await?;
        if deletion == Deletion::NeverBound {
            self.check_still_unbound(facts).await?;
        }
        // A process must not recreate the asset because of an old entry. The fence before the call stores the removal.
        if !self.cache().unfinished(key) {
            calls.step.remove_entry();
        }
        Ok(live)
    }

    /// Calls the provisioner's `should_delete` before anything is deleted. Returns the version of the volume that it
    /// received.
    async fn call_guard(
        &self,
        deletion: Deletion,
        volume: &OurVolume,
        calls: &DeleteCalls<'_>,
    ) -> Result<Option<String>, Stopped> {
        if self.no_guard.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let live = self.confirm_decision(Decision::Delete(deletion), volume, calls.step.key()).await?;
        let version = live.metadata.resource_version.clone();
        let argument = self.argument(live, Secrets::default(), calls.token);
        let call = calls.call(self.limits.delete, JournalRecord::None);
        match answered(calls.step.call(call, |_| true, || self.backend.should_delete(argument)).await) {
            Ok(()) => Ok(version),
            Err(CallFailure::Returned(error)) if error.verdict() == DeleteVerdict::Unsupported => {
                self.no_guard.store(true, Ordering::Relaxed);
                Ok(version)
            }
            Err(failure) => Err(not_deleted(failure, "should_delete")),
        }
    }

    /// Verifies that the owner does not exist. The cache may lack the claim of a volume that is not named after it or
    /// was migrated, since such a claim may not name us.
    async fn owner_is_gone(&self, volume: &OurVolume, key: &Key) -> Result<(), Stopped> {
        let names = &self.rules.volume_names;
        let may_be_unknown = volume.facts.migrated || volume.owner().is_some_and(|owner| names.key(&owner) != *key);
        let Some(claim) = volume.facts.claim.as_ref().filter(|_| may_be_unknown) else { return Ok(()) };
        match self.read_claim(&claim.namespace, &claim.name).await {
            Ok(live) if live.metadata().uid.as_deref() == Some(&*claim.uid) => {
                let bound_to = live.fields.as_ref().ok().and_then(|claim| claim.bound_to());
                let lives = bound_to.is_none_or(|volume| Key::of_volume(volume) == *key);
                if lives { Err(Stopped::ClaimExists) } else { Ok(()) }
            }
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(Stopped::CallFailed { doing: "reading the volume's claim", error }),
        }
    }

    /// Deletes the object after an earlier attempt has deleted the asset.
    pub(super) async fn finish_delete(&self, facts: &Facts, key: &Key) -> Outcome {
        let (VolumeState::Ours(volume), started) = (&facts.volume, Instant::now()) else {
            return Err(Stopped::Changed);
        };
        let live = match self.read_volume(&key.to_string()).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Ok(Done::Deleted { took: started.elapsed() }),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        };
        if live.object.metadata.uid.as_deref() != Some(&*volume.facts.uid) {
            self.cache().observe_volume(live.seen);
            return Err(Stopped::Changed);
        }
        self.remove_object(&live.object, volume, key, started).await
    }

    /// Returns the current volume, or the reason why it must not be deleted.
    async fn live_volume(
        &self,
        deletion: Deletion,
        volume: &OurVolume,
        version: &str,
        key: &Key,
    ) -> Result<Arc<PersistentVolume>, Stopped> {
        let (name, uid) = (key.to_string(), &volume.facts.uid);
        if deletion != Deletion::Protected || volume.facts.deleting {
            return self.confirm_decision(Decision::Delete(deletion), volume, key).await;
        }
        // The preconditions select the object that the decision was about, and the API server returns it. Our finalizer
        // keeps the object.
        match self.delete_volume(&name, uid, Some(version)).await {
            Ok(Some(live)) => Ok(Arc::new(live)),
            Ok(None) | Err(CallError::NotFound) => Err(Stopped::NoAction(NoAction::VolumeTerminating)),
            Err(CallError::Conflict) => {
                self.confirm_decision(Decision::Delete(deletion), volume, key).await?;
                Err(Stopped::Changed)
            }
            Err(error) => Err(Stopped::CallFailed { doing: "deleting the volume", error }),
        }
    }

    /// Reads the claim from the API server: the watch may not show yet that it is bound.
    async fn check_still_unbound(&self, facts: &Facts) -> Result<(), Stopped> {
        let ClaimState::Waiting(claim) = &facts.claim else { return Err(Stopped::Changed) };
        let live = match self.read_claim(&claim.facts.namespace, &claim.facts.name).await {
            Ok(live) => live,
            // The controller-manager releases the volume.
            Err(CallError::NotFound) => return Err(Stopped::NoAction(NoAction::VolumeTerminating)),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the claim", error }),
        };
        let same = live.metadata().uid.as_deref() == Some(&*claim.facts.uid);
        if same && live.fields.as_ref().is_ok_and(|fields| fields.bound_to().is_none()) {
            return Ok(());
        }
        self.cache().observe_claim(live);
        Err(Stopped::NoAction(NoAction::VolumeTerminating))
    }

    async fn remove_object(&self, live: &PersistentVolume, volume: &OurVolume, key: &Key, started: Instant) -> Outcome {
        if live.metadata.deletion_timestamp.is_none() {
            match self.delete_volume(&key.to_string(), &volume.facts.uid, None).await {
                Ok(_) | Err(CallError::NotFound) => {}
                Err(error) => return Err(Stopped::CallFailed { doing: "deleting the volume", error }),
            }
        }
        match self.remove_finalizer(live).await {
            Ok(()) | Err(CallError::NotFound) => {}
            Err(error) => return Err(Stopped::by_write("removing the volume's finalizer", error)),
        }
        self.cache().backend_deleted(key, &volume.facts.uid, true);
        Ok(Done::Deleted { took: started.elapsed() })
    }

    /// Adds our finalizer to a volume, or removes it from a volume that will not be deleted.
    pub(super) async fn set_protection(&self, facts: &Facts, key: &Key, wanted: bool) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        let seen = if wanted { Decision::Protect } else { Decision::Unprotect };
        let live = self.confirm_decision(seen, volume, key).await?;
        match self.set_finalizer(&live, wanted).await {
            Ok(()) => Ok(Done::ProtectionSet),
            // The account may not patch volumes, or the finalizer is of an installation that had the permission.
            Err(CallError::Forbidden(_)) if !self.rules.finalizer => Err(Stopped::NoAction(NoAction::Bound)),
            Err(error) => Err(Stopped::by_write("setting the volume's finalizer", error)),
        }
    }
}

fn not_deleted(failure: CallFailure<DeleteError>, method: &'static str) -> Stopped {
    let returned = |error: DeleteError| Stopped::NotDeleted {
        verdict: error.verdict(),
        message: error.to_string(),
        retry_after: error.retry_after(),
    };
    failure.stop(returned, |aborted| Stopped::DeleteAborted { method, aborted })
}
