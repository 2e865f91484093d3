//! Checks at the beginning of a call, and at each step of the backend.

use std::time::Duration;

use super::cluster_view::Volume;
use super::{Invariant, Judge};

impl Judge {
    pub(super) fn check_deletion(&mut self, at: Duration, who: &str, name: &str) {
        self.check_lost(at, name);
        if let Some(claim) = self.view.user_of(name, self.assets.get(name)) {
            let seen = format!("{who} deletes the asset of {name}, and its claim {claim} lives");
            return self.report_violation(at, Invariant::Untouched, seen);
        }
        if let Some(claim) = self.view.waiting_claim_of(name)
            && !self.by_hand.contains(name)
            && !self.view.is_of_another(name)
        {
            let seen = format!("{who} deletes the asset of {name}, and its claim {claim} waits for it");
            return self.report_violation(at, Invariant::Untouched, seen);
        }
        // Only the author can detect manual changes by an administrator.
        let foreign = self.assets.get(name).is_some_and(|asset| asset.claim.is_empty());
        if foreign && !self.changed_by_admin.contains(name) {
            let seen = format!("{who} deletes the asset of {name}, which belongs to another owner");
            return self.report_violation(at, Invariant::Untouched, seen);
        }
        // The volume with this name may differ from the one that was read.
        if !self.view.volumes.get(name).is_some_and(|volume| volume.ours) {
            return;
        }
        // Users may change the policy after it was read.
        let read = self.read(who, name);
        if self.whole_author && !self.permitted.contains(&(who.to_owned(), name.to_owned())) {
            let seen = format!("{who} deletes the asset of {name}, and the author was not asked whether it may");
            return self.report_violation(at, Invariant::Asked, seen);
        }
        let volume = &self.view.volumes[name];
        if let Some(since) = volume.retained_since
            && read.is_none_or(|read| read >= since)
        {
            let seen = format!("{who} deletes the asset of {name}, which is to be kept since version {since}");
            self.report_violation(at, Invariant::Untouched, seen);
        }
    }

    /// Checks that an asset that a user took out of the cluster is removed only at a user's request, or with a claim
    /// that owns it again.
    fn check_lost(&mut self, at: Duration, name: &str) {
        if self.lost.contains(name) {
            let seen = format!("the asset of {name} is being removed, and no claim that had it was seen being deleted");
            self.report_violation(at, Invariant::Untouched, seen);
        }
    }

    pub(super) fn check_clean_up(&mut self, at: Duration, who: &str, name: &str) {
        self.check_lost(at, name);
        if let Some(claim) = self.view.living_claim_of(name) {
            let seen = format!("{who} cleans {name} up, and its claim {claim} lives");
            return self.report_violation(at, Invariant::Untouched, seen);
        }
        if let Some(claim) = self.view.waiting_claim_of(name)
            && self.view.class_of(name).is_some_and(|class| self.lasting.contains(class))
        {
            let seen = format!("{who} cleans {name} up, and its claim {claim} waits for it");
            return self.report_violation(at, Invariant::Untouched, seen);
        }
        let read = self.read(who, name);
        // The process cannot prevent that the volume is saved after it has read it. No claim is bound to the volume.
        let late = |volume: &Volume| {
            read.is_some_and(|read| read < volume.since) && !self.view.claims.contains_key(self.view.claim_uid_of(name))
        };
        if self.view.volumes.get(name).is_some_and(|volume| volume.ours && !volume.deleting && !late(volume)) {
            self.report_violation(at, Invariant::Untouched, format!("{who} cleans {name} up, and its volume is saved"));
        }
    }

    /// Checks that the asset of a saved volume is not removed while its claim exists.
    pub(super) fn check_undoing(&mut self, at: Duration, name: &str) {
        self.check_removal(at, name);
        let waits = self.view.claims.contains_key(self.view.claim_uid_of(name));
        if waits && self.view.volumes.get(name).is_some_and(|volume| volume.ours && !volume.deleting) {
            let seen =
                format!("the asset of {name} is being cleaned up, and its volume is saved for a claim that is there");
            self.report_violation(at, Invariant::Untouched, seen);
        }
    }

    pub(super) fn check_removal(&mut self, at: Duration, name: &str) {
        self.check_lost(at, name);
        if let Some(claim) = self.view.user_of(name, self.assets.get(name)) {
            let seen = format!("the asset of {name} is being removed, and its claim {claim} lives");
            self.report_violation(at, Invariant::Untouched, seen);
        }
        if self.assets.get(name).is_some_and(|asset| asset.claim.is_empty()) {
            self.report_violation(
                at,
                Invariant::Untouched,
                format!("{name} is being removed, which belongs to another owner"),
            );
        }
    }

    pub(super) fn check_sizes(&mut self, at: Duration) {
        let too_large = self.view.volumes.iter().find_map(|(name, volume)| {
            let asset = self.assets.get(name).filter(|_| volume.ours && !self.was_changed_by_users(name))?;
            (volume.capacity > asset.size)
                .then(|| format!("{name} says {}, and its asset has {}", volume.capacity, asset.size))
        });
        let too_early = self.view.claims.values().find_map(|claim| {
            let volume = self.view.volumes.get(&claim.volume)?;
            let larger = claim.bound && claim.capacity > volume.capacity;
            larger.then(|| format!("{} says {}, and its volume {}", claim.name, claim.capacity, volume.capacity))
        });
        if let Some(seen) = too_large.or(too_early) {
            self.report_violation(at, Invariant::Sized, seen);
        }
    }

    /// Returns true if users have changed the volume or its asset.
    pub(super) fn was_changed_by_users(&self, name: &str) -> bool {
        self.exempted.contains(name) || self.changed_by_admin.contains(name)
    }

    pub(super) fn check_covered(&mut self, at: Duration, version: u64) {
        let uncovered = self.assets.iter().find(|(name, asset)| {
            let excused = self.exempted.contains(*name) || self.stripped.contains(*name);
            !asset.claim.is_empty() && !excused && !self.view.is_referenced(name)
        });
        if let Some((name, asset)) = uncovered {
            let since = if version == 0 { String::new() } else { format!(" since version {version}") };
            let seen = format!("{name} is {:?}, and no volume and no journal knows it{since}", asset.stage);
            self.report_violation(at, Invariant::Covered, seen);
        }
    }

    /// The version of the cluster when this process last read this volume.
    fn read(&self, who: &str, name: &str) -> Option<u64> {
        self.reads.get(&(who.to_owned(), name.to_owned())).copied()
    }
}
