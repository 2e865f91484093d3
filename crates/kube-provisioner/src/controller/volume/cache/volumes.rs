//! Volumes in the cache.

use std::sync::Arc;

use super::{ClaimEntry, VolumeCache, older, watched_version};
use crate::controller::shared::index::remove_entry;
use crate::controller::volume::facts::{ClaimFacts, OurVolume, Progress, UnreadableVolume};
use crate::controller::volume::key::Key;
use crate::controller::volume::partial::WatchedVolume;

impl VolumeCache {
    /// Applies a volume from the watch or from an answer. Returns its key if the volume is or was ours, or if a claim
    /// of ours will use its name.
    pub(super) fn put_volume(&mut self, watched: &WatchedVolume, listing: u64) -> Option<Key> {
        let key = Key::of_volume(watched.name());
        let known = self.volumes.get(&key);
        if let Some(Some(known)) = known
            && older(watched_version(watched), &known.resource_version, listing)
        {
            self.volumes.keep(&key);
            return None;
        }
        let ours = match &watched.fields {
            Ok(volume) if self.rules.owns(volume) => self.rules.read(volume),
            _ => None,
        };
        self.unreadable.remove(&key);
        let Some(facts) = ours else {
            let before = self.volumes.insert(key.clone(), None);
            let was_ours = matches!(&before, Some(Some(_)));
            self.forget_claim_of(&key, before);
            let meta = watched.metadata();
            if let (Err(unreadable), Some(uid)) = (&watched.fields, meta.uid.as_deref())
                && self.rules.named_in(&meta.annotations)
            {
                let volume = UnreadableVolume { uid: uid.into(), problem: unreadable.problem.clone() };
                self.unreadable.insert(key.clone(), Arc::new(volume));
                return Some(key);
            }
            return (was_ours || self.has_claim_for(&key)).then_some(key);
        };
        let attempt = self.progress.get(&key).and_then(Progress::pending).cloned();
        let of_another = attempt.filter(|pending| facts.is_for_another(&pending.claim.facts.uid));
        let ends = match self.progress.get(&key) {
            Some(Progress::Confirm) => true,
            _ if of_another.is_some() => false,
            // Saving compares the asset with the volume's asset, and reports the volume.
            Some(Progress::Unsaved(_)) => false,
            // With `attempt_end`, the attempt ends only after the call of the author's code.
            Some(Progress::Background(_)) => !self.rules.capabilities.attempt_end,
            _ => false,
        };
        // A volume of another installation does not end our attempt. Neither does a volume that may be older than our
        // term.
        if ends && !self.is_stale(watched) && !self.rules.created_elsewhere(&facts) {
            self.progress.remove(&key);
        }
        // The unsaved asset of this claim may be the asset of the other claim's volume, and be deleted with that
        // volume.
        if let (Some(pending), Some(Progress::Unsaved(_))) = (of_another, self.progress.get(&key)) {
            self.progress.insert(key.clone(), Progress::Background(pending));
        }
        let resource_version = watched_version(watched).into();
        let volume = Arc::new(OurVolume { facts, resource_version });
        let owner = volume.owner().filter(|owner| self.key(owner) != key);
        let before = self.volumes.insert(key.clone(), Some(volume));
        self.forget_claim_of(&key, before);
        if let Some(owner) = owner {
            self.by_claim.entry(owner).or_default().insert(key.clone());
        }
        self.drop_object(&key);
        Some(key)
    }

    /// Records that the API server does not contain the volume, even if the watch still shows it.
    pub(crate) fn remove_volume(&mut self, key: &Key) {
        if let Some(known) = self.volumes.remove(key) {
            self.handle_volume_deletion(key, known);
        }
    }

    pub(super) fn handle_volume_deletion(&mut self, key: &Key, known: Option<Arc<OurVolume>>) {
        self.wake_counts.remove(key);
        let known_here = known.as_ref().is_some_and(|volume| !self.rules.created_elsewhere(&volume.facts));
        self.forget_claim_of(key, Some(known));
        self.unreadable.remove(key);
        match self.progress.get(key) {
            Some(Progress::BackendDeleted { .. }) => drop(self.progress.remove(key)),
            // The volume was saved and deleted before the attempt has ended, so the answer to the save is out of date.
            Some(Progress::Unsaved(unsaved)) if known_here => {
                let attempt = Progress::Background(unsaved.pending.clone());
                self.progress.insert(key.clone(), attempt);
            }
            _ => {}
        }
        self.confirm_first(key);
    }

    pub(super) fn forget_claim_of(&mut self, volume: &Key, known: Option<Option<Arc<OurVolume>>>) {
        let Some(owner) = known.flatten().and_then(|known| known.owner()) else { return };
        remove_entry(&mut self.by_claim, &owner, volume);
    }

    pub(super) fn has_volume(&self, key: &Key, claim: &ClaimFacts) -> bool {
        let volume = self.volumes.get(key).and_then(Option::as_ref);
        volume.and_then(|volume| volume.facts.claim.as_ref()).is_some_and(|other| *other.uid == *claim.uid)
    }

    /// Drops the object of a claim whose volume is saved: the claim only waits to be bound.
    pub(super) fn drop_object(&mut self, key: &Key) {
        let Some(owner) = self.volumes.get(key).and_then(|volume| volume.as_ref()?.owner()) else { return };
        let Some(ClaimEntry::Waiting(claim)) = self.claims.get(&owner).filter(|_| self.key(&owner) == *key) else {
            return;
        };
        if claim.object.is_none() || !self.has_volume(key, &claim.facts) {
            return;
        }
        let slim = claim.with_object(None);
        if let Some(entry) = self.claims.get_mut(&owner) {
            *entry = ClaimEntry::Waiting(Arc::new(slim));
        }
    }
}
