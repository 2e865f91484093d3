//! Calls the author's `delete` for a released volume, once, and deletes its object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Work;
use tokio::time::Instant;

use super::lock::{Carrier, Past};
use super::{Actor, Breakage, Outcome};
use crate::controller::decide::{Decision, Deletion, Rest};
use crate::controller::duty::Duty;
use crate::controller::facts::{ClaimState, Facts, OurVolume, VolumeState};
use crate::controller::key::Key;
use crate::provisioner::ProvisionedVolume;

impl Actor {
    pub(super) async fn delete(&self, deletion: Deletion, facts: &Facts, work: &Work<Key>, duty: &Duty) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Outcome::Changed };
        let lanes = match self.enter(work, volume.facts.class.as_deref()) {
            Ok(places) => places,
            Err(lane) => return Outcome::LaneFull(lane),
        };
        let (key, started) = (work.key(), Instant::now());
        // Whoever made the volume may still have an entry for it.
        if let Err(outcome) = self.alone_with(key, Past::Some, duty).await {
            return outcome;
        }
        let place = self.places.call(volume.facts.class.as_deref()).await;
        let name = key.to_string();
        let carrier = Carrier::Volume { name: &name, uid: &volume.facts.uid };
        let lock = match self.lock(key, carrier, &volume.resource_version, volume.lock.as_deref()).await {
            Ok(lock) => lock,
            Err(outcome) => return outcome,
        };
        let version = lock.as_ref().map_or(&*volume.resource_version, |lock| &lock.version);
        let live = match self.live_volume(deletion, volume, version, key).await {
            Ok(live) => live,
            Err(outcome) => return outcome,
        };
        if deletion == Deletion::NeverBound
            && let Err(outcome) = self.still_unbound(facts).await
        {
            return outcome;
        }
        // Another replica may have taken over since it was decided. And nobody may make an asset anew that was once begun:
        // a fence stores what was removed before it.
        if !self.world().unfinished(key) {
            duty.journal.remove(&name);
        }
        if let Err(error) = self.fence(duty).await {
            return Outcome::NotJournaled(error);
        }
        let (mandate, _call) = self.mandate(duty, lock.as_ref());
        let argument = ProvisionedVolume::new(live.clone()).with_mandate(mandate.clone());
        let call = self.guarded(self.limits.delete, &mandate, self.backend.delete(argument));
        let answer = self.while_locked(lock, call).await;
        drop(lanes);
        let _place = place.for_work();
        match answer {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => {
                let (verdict, retry_after) = (error.verdict(), error.retry_after());
                return Outcome::NotDeleted { verdict, message: error.to_string(), retry_after };
            }
            Some(Err(breakage)) => return Outcome::DeleteBroke(breakage),
            None => return Outcome::DeleteBroke(Breakage::CutOff),
        }
        self.world().backend_deleted(key, &volume.facts.uid, false);
        self.remove_object(&live, volume, key, started).await
    }

    /// The asset went in an earlier attempt; what is left is the object.
    pub(super) async fn finish_delete(&self, facts: &Facts, key: &Key) -> Outcome {
        let (VolumeState::Ours(volume), started) = (&facts.volume, Instant::now()) else { return Outcome::Changed };
        let live = match self.read_volume(&key.to_string()).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Outcome::Deleted { took: started.elapsed() },
            Err(error) => return Outcome::CallFailed { doing: "reading the volume", error },
        };
        if live.object.metadata.uid.as_deref() != Some(&*volume.facts.uid) {
            self.world().saw_volume(live.seen);
            return Outcome::Changed;
        }
        self.remove_object(&live.object, volume, key, started).await
    }

    /// The volume as it is now, or why it is not to be deleted after all.
    async fn live_volume(
        &self,
        deletion: Deletion,
        volume: &OurVolume,
        version: &str,
        key: &Key,
    ) -> Result<Arc<PersistentVolume>, Outcome> {
        let (name, uid) = (key.to_string(), &volume.facts.uid);
        if deletion == Deletion::Protected && !volume.facts.deleting {
            // Our finalizer holds the object, and the preconditions make sure that it is the one that was decided on.
            match self.delete_volume(&name, uid, Some(version)).await {
                Ok(Some(live)) => return Ok(Arc::new(live)),
                Ok(None) | Err(CallError::NotFound) => return Err(Outcome::Rested(Rest::VolumeGoes)),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(Outcome::CallFailed { doing: "deleting the volume", error }),
            }
        }
        let seen = Decision::Delete(deletion);
        let live = match self.read_volume(&name).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Err(Outcome::Rested(Rest::VolumeGoes)),
            Err(error) => return Err(Outcome::CallFailed { doing: "reading the volume", error }),
        };
        self.world().saw_volume(live.seen);
        let same = live.object.metadata.uid.as_deref() == Some(uid) && self.decision_now(key) == seen;
        // A protected volume that is not yet being deleted comes here after a conflict: begin again.
        if same && (volume.facts.deleting || deletion == Deletion::Checked) {
            Ok(Arc::new(live.object))
        } else {
            Err(Outcome::Changed)
        }
    }

    /// Looks at the claim itself: the watch may not have told yet that it is bound.
    async fn still_unbound(&self, facts: &Facts) -> Result<(), Outcome> {
        let ClaimState::Waiting(claim) = &facts.claim else { return Err(Outcome::Changed) };
        let live = match self.read_claim(&claim.facts.namespace, &claim.facts.name).await {
            Ok(live) => live,
            // The controller-manager releases the volume.
            Err(CallError::NotFound) => return Err(Outcome::Rested(Rest::VolumeGoes)),
            Err(error) => return Err(Outcome::CallFailed { doing: "reading the claim", error }),
        };
        let same = live.metadata().uid.as_deref() == Some(&*claim.facts.uid);
        if same && live.fields.as_ref().is_ok_and(|fields| fields.bound_to().is_none()) {
            return Ok(());
        }
        self.world().saw_claim(live);
        Err(Outcome::Rested(Rest::VolumeGoes))
    }

    async fn remove_object(&self, live: &PersistentVolume, volume: &OurVolume, key: &Key, started: Instant) -> Outcome {
        if live.metadata.deletion_timestamp.is_none() {
            match self.delete_volume(&key.to_string(), &volume.facts.uid, None).await {
                Ok(_) | Err(CallError::NotFound) => {}
                Err(error) => return Outcome::CallFailed { doing: "deleting the volume", error },
            }
        }
        match self.patch_finalizer(live, false).await {
            Ok(true) | Err(CallError::NotFound) => {}
            Ok(false) => return Outcome::Changed,
            Err(error) => return Outcome::CallFailed { doing: "removing the volume's finalizer", error },
        }
        self.world().backend_deleted(key, &volume.facts.uid, true);
        Outcome::Deleted { took: started.elapsed() }
    }

    pub(super) async fn set_protection(&self, facts: &Facts, key: &Key, wanted: bool) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Outcome::Changed };
        let seen = if wanted { Decision::Protect } else { Decision::Unprotect };
        let live = match self.read_volume(&key.to_string()).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Outcome::Rested(Rest::VolumeGoes),
            Err(error) => return Outcome::CallFailed { doing: "reading the volume", error },
        };
        self.world().saw_volume(live.seen);
        if live.object.metadata.uid.as_deref() != Some(&*volume.facts.uid) || self.decision_now(key) != seen {
            return Outcome::Changed;
        }
        match self.patch_finalizer(&live.object, wanted).await {
            Ok(true) => Outcome::ProtectionSet,
            Ok(false) => Outcome::Changed,
            Err(error) => Outcome::CallFailed { doing: "setting the volume's finalizer", error },
        }
    }
}
