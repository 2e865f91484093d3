//! The control loop's view of the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use provisioner_runtime::controller::{Cache, StaleReads};
use provisioner_runtime::fingerprint;

use super::{ClaimEntry, VolumeCache};
use crate::controller::volume::author_view;
use crate::controller::volume::decide::decide;
use crate::controller::volume::decision::{Decision, NoAction};
use crate::controller::volume::facts::{
    ClaimState, ClassState, Facts, Pending, Progress, VolumeFacts, VolumeState, WaitingClaim,
};
use crate::controller::volume::key::Key;
use crate::controller::volume::safeguards::Safeguard;

impl Cache for VolumeCache {
    type Key = Key;
    type Facts = Facts;

    fn facts(&self, key: &Key) -> Facts {
        let holder = self.holder(key);
        let claim = holder.as_ref().map_or(ClaimState::Absent, |claim| self.claim_state(claim));
        let class = self.class_of(&claim);
        let volume = match self.volumes.get(key) {
            None => VolumeState::Absent,
            Some(None) => match self.unreadable.get(key) {
                Some(volume) => VolumeState::Unreadable(volume.clone()),
                None => VolumeState::Unmanaged,
            },
            Some(Some(volume)) => VolumeState::Ours(volume.clone()),
        };
        let progress = self.progress.get(key).filter(|progress| !is_kept_waiting(progress, &volume));
        let progress = progress.cloned().unwrap_or_default();
        let owner_exists = matches!(&volume, VolumeState::Ours(volume) if self.owner_exists(key, volume));
        let growing_claim = self.growing_claims.get(key).cloned();
        let namesakes = self.namesakes(key, holder.as_ref());
        Facts { claim, class, volume, progress, owner_exists, growing_claim, rival: None, namesakes }
    }

    fn inputs(&self, key: &Key) -> u64 {
        let facts = self.facts(key);
        let volume = match &facts.volume {
            VolumeState::Absent => 0,
            VolumeState::Unmanaged => 1,
            VolumeState::Unreadable(volume) => fingerprint(&volume.problem),
            VolumeState::Ours(volume) => volume.facts.fingerprint(),
        };
        let growing = facts.growing().map(|growing| growing.inputs());
        let namesakes: Vec<_> = facts.namesakes.iter().map(of_claim).collect();
        let woken = self.wake_counts.get(key);
        fingerprint(&(of_claim(&facts), volume, growing, facts.owner_exists, namesakes, woken))
    }

    fn unsettled(&self, among: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        // A claim whose class names another provisioner receives an event.
        let rests = |facts: &Facts| match decide(facts, &self.rules) {
            Decision::NoAction(why) => why != NoAction::ForeignClass,
            _ => false,
        };
        let needs_work = |key: &Key| {
            let facts = among(key).then(|| self.facts(key));
            facts.is_some_and(|facts| !rests(&facts) || !facts.namesakes.iter().all(rests))
        };
        let waiting =
            self.claims.iter().filter(|(_, entry)| matches!(entry, ClaimEntry::Waiting(_) | ClaimEntry::Unreadable(_)));
        let ours = self.volumes.iter().filter(|(_, entry)| entry.is_some());
        let mut keys: BTreeSet<Key> = waiting.map(|(uid, _)| self.key(uid)).collect();
        keys.extend(ours.map(|(key, _)| key).chain(self.progress.keys()).chain(self.unreadable.keys()).cloned());
        keys.into_iter().filter(needs_work).collect()
    }

    fn stale_before(&mut self, versions: &[u64]) {
        if let [claims, volumes, ..] = versions {
            self.claims_stale_before(*claims);
            self.volumes_stale_before(*volumes);
        }
    }

    fn revalidate(&mut self, positions: &[u64], among: &dyn Fn(&Key) -> bool) {
        if let [claims, volumes, ..] = positions {
            self.revalidate_claims(*claims, *volumes, among);
        }
    }

    fn stale_reads(&self, watch: usize) -> StaleReads {
        // Each waiting claim is read with its volume.
        StaleReads::Each(if watch <= 1 { self.waiting_claims().0 } else { 0 })
    }

    fn await_adoption(&mut self, keys: &[Key]) {
        for key in keys {
            if !self.unfinished(key) {
                self.progress.insert(key.clone(), Progress::AwaitsAdoption);
            }
        }
    }

    fn adopted(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::AwaitsAdoption)) {
            self.progress.remove(key);
        }
    }

    fn unfinished(&self, key: &Key) -> bool {
        match self.progress.get(key) {
            Some(Progress::Background(_) | Progress::Unsaved(_) | Progress::Surplus(_) | Progress::AwaitsAdoption) => {
                true
            }
            Some(Progress::Confirm | Progress::BackendDeleted { .. } | Progress::None) | None => false,
        }
    }

    fn forget(&mut self, of: &dyn Fn(&Key) -> bool) {
        self.progress.retain(|key, progress| matches!(progress, Progress::Confirm) || !of(key));
        let woken: Vec<Key> = self.wake_counts.keys().filter(|key| of(key)).cloned().collect();
        woken.iter().for_each(|key| self.forget_wakes(key));
    }
}

impl VolumeCache {
    /// Adopts an attempt that another process has begun. Returns `false` if there is nothing to finish.
    pub(crate) fn adopt(&mut self, key: &Key, pending: Pending) -> bool {
        let of_another = |volume: &VolumeFacts| volume.is_for_another(&pending.claim.facts.uid);
        let saved = matches!(
            self.volumes.get(key),
            Some(Some(volume)) if !self.rules.created_elsewhere(&volume.facts) && !of_another(&volume.facts)
        );
        // The known volume may be older than our term, so the attempt reads it first.
        if saved && !self.rules.safeguards.include(Safeguard::FreshVolumes) {
            self.adopted(key);
            return false;
        }
        if !matches!(
            self.progress.get(key),
            Some(Progress::Background(_) | Progress::Unsaved(_) | Progress::Surplus(_))
        ) {
            self.progress.insert(key.clone(), Progress::Background(Arc::new(pending)));
        }
        true
    }
}

/// Returns true if the attempt of one claim waits while the volume of another claim has the name: an asset created by
/// that name may be the asset of that volume.
fn is_kept_waiting(progress: &Progress, volume: &VolumeState) -> bool {
    match (progress.pending(), volume) {
        (Some(pending), VolumeState::Ours(volume)) => volume.facts.is_for_another(&pending.claim.facts.uid),
        _ => false,
    }
}

/// Returns the inputs of decisions about the claim and its class.
fn of_claim(facts: &Facts) -> (u64, u64, u64) {
    let (state, claim) = match &facts.claim {
        ClaimState::Absent => (0, 0),
        ClaimState::Bound { bound_here, deleting, .. } => (1, u64::from(*bound_here) << 1 | u64::from(*deleting)),
        ClaimState::Waiting(claim) => (2, fingerprint(&(claim.fingerprint, annotations(claim, &facts.class)))),
        ClaimState::Unreadable(claim) => (3, fingerprint(&claim.facts)),
    };
    let class = match &facts.class {
        ClassState::Missing => 0,
        ClassState::Unmanaged => 1,
        ClassState::Ours(class) => class.fingerprint,
    };
    (state, claim, class)
}

/// Returns the claim's annotations that its class names, for example in the name of a Secret.
fn annotations(claim: &WaitingClaim, class: &ClassState) -> BTreeMap<String, String> {
    let (Some(text), ClassState::Ours(class)) = (&claim.object, class) else { return BTreeMap::new() };
    class.object.parameters.as_ref().map(|all| author_view::named_annotations(text, all)).unwrap_or_default()
}
