//! Claims in the cache.

use std::sync::Arc;

use provisioner_runtime::fingerprint;
use tokio::time::Instant;

use super::{ClaimEntry, VolumeCache, claim_version, number, older};
use crate::controller::shared::index::remove_entry;
use crate::controller::volume::author_view;
use crate::controller::volume::facts::{ClaimFacts, GrowingClaim, UnreadableClaim, WaitingClaim};
use crate::controller::volume::key::{ClaimUid, Key};
use crate::controller::volume::names::VolumeNames;
use crate::controller::volume::partial::{ClaimFields, Meta, WatchedClaim};
use crate::controller::volume::safeguards::Safeguard;

impl VolumeCache {
    /// Applies a claim from the watch or from an answer. Returns its key if the claim is or was ours.
    pub(super) fn put_claim(&mut self, watched: &WatchedClaim, listing: u64) -> Option<Key> {
        let ours = watched.metadata().annotations.asked().is_some_and(|name| self.rules.names.include(name));
        let claim = match &watched.fields {
            Ok(claim) => claim,
            Err(unreadable) if ours && self.rules.safeguards.include(Safeguard::Unreadable) => {
                return self.put_unreadable(watched.metadata(), &unreadable.problem, listing);
            }
            Err(_) => return None,
        };
        let uid = ClaimUid::new(claim.metadata.uid.as_deref()?);
        let key = self.key(&uid);
        if !ours {
            return self.handle_claim_deletion(&uid).then_some(key);
        }
        if self.claims.get(&uid).is_some_and(|known| known.is_newer_than(claim_version(claim), listing)) {
            self.claims.keep(&uid);
            return None;
        }
        let entry = match claim.bound_to() {
            Some(volume) => {
                let bound_here = Key::of_volume(volume) == key;
                ClaimEntry::Bound {
                    bound_here,
                    deleting: claim.metadata.deletion_timestamp.is_some(),
                    growing: GrowingClaim::read(claim).filter(|_| bound_here).map(Arc::new),
                    resource_version: number(claim_version(claim)).unwrap_or_default(),
                }
            }
            None => match self.waiting(watched, claim)? {
                Ok(waiting) => ClaimEntry::Waiting(Arc::new(waiting)),
                Err(problem) => return self.put_unreadable(watched.metadata(), &problem.to_string(), listing),
            },
        };
        // A bound claim need not be read from the API server again.
        if matches!(entry, ClaimEntry::Bound { .. }) {
            self.confirmed(&key);
        }
        self.insert_claim(uid, &key, watched.metadata(), entry);
        Some(key)
    }

    /// Records an unreadable claim as present. Work that was begun for it is unaffected.
    fn put_unreadable(&mut self, meta: &Meta, problem: &str, listing: u64) -> Option<Key> {
        let claim = UnreadableClaim::read(meta, problem)?;
        let uid = ClaimUid::new(&claim.facts.uid);
        if self.claims.get(&uid).is_some_and(|known| known.is_newer_than(&claim.resource_version, listing)) {
            self.claims.keep(&uid);
            return None;
        }
        let key = self.key(&uid);
        self.insert_claim(uid, &key, meta, ClaimEntry::Unreadable(Arc::new(claim)));
        Some(key)
    }

    fn insert_claim(&mut self, uid: ClaimUid, key: &Key, meta: &Meta, entry: ClaimEntry) {
        self.drop_claim(&uid);
        if let ClaimEntry::Waiting(claim) = &entry
            && let Some(class) = &claim.facts.class
        {
            self.by_class.entry(class.clone()).or_default().insert(uid.clone());
        }
        if !matches!(self.rules.volume_names, VolumeNames::Usual) {
            let created = meta.creation_timestamp.as_deref().unwrap_or_default();
            self.namesakes.insert(key.clone(), created, uid.clone());
        }
        self.claims.insert(uid, entry);
    }

    fn waiting(&self, watched: &WatchedClaim, claim: &ClaimFields) -> Option<serde_json::Result<WaitingClaim>> {
        let facts = ClaimFacts::read(claim)?;
        let uid = ClaimUid::new(&facts.uid);
        let object = match (self.has_volume(&self.key(&uid), &facts), watched.raw.as_deref()) {
            (true, _) => None,
            (false, Some(raw)) => match author_view::claim(raw, &self.rules.capabilities) {
                Ok(text) => Some(text),
                Err(problem) => return Some(Err(problem)),
            },
            (false, None) => return None,
        };
        let seen = Instant::now();
        let since = match self.claims.get(&uid) {
            Some(ClaimEntry::Waiting(known)) => known.since,
            _ => seen,
        };
        let (fingerprint, resource_version) = (fingerprint(&facts), claim_version(claim).into());
        Some(Ok(WaitingClaim { fingerprint, facts, resource_version, since, seen, object }))
    }

    pub(super) fn handle_claim_deletion(&mut self, claim: &ClaimUid) -> bool {
        let key = self.key(claim);
        self.confirmed(&key);
        self.namesakes.remove(&key, claim);
        // For a claim without a volume, no later event would remove this entry.
        self.wake_counts.remove(&key);
        self.drop_claim(claim)
    }

    pub(super) fn drop_claim(&mut self, claim: &ClaimUid) -> bool {
        let Some(entry) = self.claims.remove(claim) else { return false };
        self.forget_class_of(claim, &entry);
        true
    }

    pub(super) fn forget_class_of(&mut self, uid: &ClaimUid, entry: &ClaimEntry) {
        let ClaimEntry::Waiting(claim) = entry else { return };
        if let Some(class) = &claim.facts.class {
            remove_entry(&mut self.by_class, class, uid);
        }
    }

    /// Returns the volume that this claim is known to grow.
    pub(super) fn volume_of_growing_claim(&self, watched: &WatchedClaim) -> Option<Key> {
        let volume = Key::of_volume(watched.fields.as_ref().ok()?.bound_to()?);
        let known = self.growing_claims.get(&volume)?;
        (watched.metadata().uid.as_deref() == Some(&*known.claim.uid)).then_some(volume)
    }

    /// Returns the volume's key if the claim requests more than the volume has, or did so before.
    pub(super) fn put_growing_claim(&mut self, watched: &WatchedClaim, listing: u64) -> Option<Key> {
        let known = self.volume_of_growing_claim(watched);
        let claim = watched.fields.as_ref().ok()?;
        let volume = Key::of_volume(claim.bound_to()?);
        let is_older = |known: &Arc<GrowingClaim>| older(claim_version(claim), &known.resource_version, listing);
        if let Some(volume) = &known
            && self.growing_claims.get(volume).is_some_and(is_older)
        {
            self.growing_claims.keep(volume);
            return None;
        }
        let named_after = self.key(&ClaimUid::new(claim.metadata.uid.as_deref()?)) == volume;
        let ours = claim.metadata.annotations.asked().is_some_and(|name| self.rules.names.include(name));
        match GrowingClaim::read(claim).filter(|_| !(ours && named_after)) {
            Some(growing) => {
                self.growing_claims.insert(volume.clone(), Arc::new(growing));
                Some(volume)
            }
            None => known.filter(|volume| self.growing_claims.remove(volume).is_some()),
        }
    }
}
