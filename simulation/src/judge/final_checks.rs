//! Checks of the final state.

use std::time::Duration;

use super::cluster_view::{Claim, Volume};
use super::{Invariant, Judge};
use crate::backend::{Asset, AssetStage};
use crate::plan::{Nature, Plan};

impl Judge {
    /// The first condition that does not hold yet after the faults have ended.
    pub(crate) fn unmet(&mut self, at: Duration, plan: &Plan) -> Option<(Invariant, String)> {
        self.process_changes(at);
        self.unbound(plan)
            .map(|seen| (Invariant::Bound, seen))
            .or_else(|| self.too_small().map(|seen| (Invariant::Sized, seen)))
            .or_else(|| self.undeleted_object().map(|seen| (Invariant::Gone, seen)))
            .or_else(|| self.leftover_journal_entry().map(|seen| (Invariant::Forgotten, seen)))
            .or_else(|| self.leftover_asset().map(|seen| (Invariant::Tidy, seen)))
            .filter(|(invariant, _)| !self.ignored.contains(invariant))
    }

    fn unbound(&self, plan: &Plan) -> Option<String> {
        let name = |uid: &str| plan.volume_name(uid);
        // Another claim that shares the name has the volume, or has otherwise reached its final state.
        let waits_for_another = |uid: &String| {
            let others = self.view.claims.iter().filter(|(other, _)| *other != uid && name(other) == name(uid));
            let volume = self.view.volumes.get(&name(uid)).filter(|_| self.view.served.is_some());
            volume.is_some_and(|volume| volume.claim != *uid)
                || others.into_iter().any(|(other, claim)| self.is_unbound(other, claim, plan).is_none())
        };
        let mut claims = self.view.claims.iter();
        claims.find_map(|(uid, claim)| {
            self.is_unbound(uid, claim, plan).filter(|_| claim.deleting || !waits_for_another(uid))
        })
    }

    /// Returns the problem if the claim has not reached its final state.
    fn is_unbound(&self, uid: &String, claim: &Claim, plan: &Plan) -> Option<String> {
        let index = index(&claim.name)?;
        let (name, volume) = (&claim.name, plan.volume_name(uid));
        if claim.deleting {
            return Some(format!("{name} is still being deleted"));
        }
        // A restored claim has its former volume, or none. A restored volume may also be bound to a claim of the same
        // name.
        if self.copied_claims.contains(uid) || self.rebound.contains(&claim.volume) {
            return None;
        }
        // A claim that has its volume keeps it, whatever an administrator has done to the asset. A pending claim does
        // not receive an asset of another owner, but receives a new asset if its asset was only removed.
        let foreign = self.assets.get(&volume).is_some_and(Asset::is_foreign);
        if self.changed_by_admin.contains(&volume) && (foreign || !claim.volume.is_empty()) {
            return None;
        }
        // Users have removed the volume by force, or have interrupted its removal.
        let taken = |volume: &String| self.stripped.contains(volume) && !self.view.volumes.contains_key(volume);
        if taken(&claim.volume) || taken(&volume) {
            return None;
        }
        let planned = plan.claims.get(index)?;
        if matches!(planned.nature, Nature::Invalid | Nature::Ignored) {
            if claim.bound {
                return Some(format!("{name} is bound, although it never can be"));
            }
            return None;
        }
        if claim.volume.is_empty() && self.is_half_removed(&volume) {
            return None;
        }
        // The volume was deleted manually while it was being bound: Kubernetes neither binds such a volume nor removes
        // it until the claim is deleted, regardless of its creator.
        let half_bound = |volume: &Volume| volume.bound && volume.deleting;
        if claim.volume.is_empty() && self.view.volumes.get(&volume).is_some_and(half_bound) {
            return None;
        }
        if !claim.bound || claim.volume != volume {
            return Some(format!("{name} ({uid}) is not bound"));
        }
        if !self.view.volumes.contains_key(&volume) {
            return Some(format!("{name} is bound to {volume}, which does not exist"));
        }
        let stage = self.assets.get(&volume).map(|asset| asset.stage);
        if stage != Some(AssetStage::Exported) {
            return Some(format!("{name} is bound to {volume}, whose asset is {stage:?}"));
        }
        None
    }

    /// Checks requested sizes. The API server accepts only requests for expansion that are allowed.
    fn too_small(&self) -> Option<String> {
        let here = self.view.claims.iter().filter(|(uid, _)| !self.copied_claims.contains(*uid));
        here.map(|(_, claim)| claim).filter(|claim| claim.bound && self.whole_author).find_map(|claim| {
            let volume = self.view.volumes.get(&claim.volume).filter(|volume| volume.ours && !volume.deleting)?;
            // An asset that was removed, or belongs to another owner, does not grow.
            if self.changed_by_admin.contains(&claim.volume) {
                return None;
            }
            let asset = self.assets.get(&claim.volume)?;
            let (request, sizes) = (claim.request, [claim.capacity, volume.capacity, asset.size]);
            let small = sizes.iter().any(|size| *size < request);
            small.then(|| format!("{} asks for {request}; claim, volume and asset have {sizes:?}", claim.name))
        })
    }

    fn undeleted_object(&self) -> Option<String> {
        for (name, volume) in self.view.volumes.iter().filter(|(_, volume)| volume.ours) {
            let claim_lives = self.view.claims.contains_key(&volume.claim);
            // Only a user can decide about a copy.
            if self.restored_volumes.contains(name) {
                continue;
            }
            // A copy that belongs to another cluster is left to that cluster, even if a claim was bound to it again.
            if volume.cluster_id.as_ref().is_some_and(|id| *id != self.cluster_id) {
                continue;
            }
            // The policy became Retain after the deletion had begun, which only a user can resolve.
            if !claim_lives && volume.deleting && volume.protected && volume.retained_since.is_some() {
                continue;
            }
            // A volume in use stays until it is released.
            if volume.deleting && !claim_lives {
                return Some(format!("the volume {name} is still being deleted"));
            }
            if !claim_lives && volume.retained_since.is_none() {
                return Some(format!("the volume {name} is there, and its claim is gone"));
            }
            let stage = self.assets.get(name).map(|asset| asset.stage);
            // Either the policy became Retain after the deletion had begun (the other order would be a violation), or
            // the volume was created by a request that arrived after its attempt was cleaned up, so that no claim was
            // ever bound to it.
            let is_removed = self.removed.contains(name) || self.cleaned.contains(name);
            if !claim_lives && (is_removed || stage == Some(AssetStage::Fading)) {
                continue;
            }
            // An asset that was removed before the restore, even in part, or removed manually, is not recreated.
            let excused = self.rebound.contains(name) || self.changed_by_admin.contains(name);
            if stage != Some(AssetStage::Exported) && !excused {
                return Some(format!("the volume {name} stays, and its asset is {stage:?}"));
            }
        }
        None
    }

    /// Returns true if a user deleted the volume while its asset was being removed: then no volume requests the removal
    /// of the rest.
    fn is_half_removed(&self, name: &str) -> bool {
        let stage = self.assets.get(name).map(|asset| asset.stage);
        stage == Some(AssetStage::Fading) && self.exempted.contains(name)
    }

    fn leftover_journal_entry(&self) -> Option<String> {
        // An attempt waits while another owner's object has its volume's name, and for removals that users have
        // interrupted.
        let blocked = |key: &String| self.view.volumes.get(key).is_some_and(|volume| !volume.ours);
        // Another claim, such as a restored one, has the volume, including the attempt's leftovers.
        let of_another = |key: &String| {
            let claim = self.view.volumes.get(key).map(|volume| &*volume.claim);
            claim.is_some_and(|claim| !claim.is_empty() && *claim != *self.view.claim_uid_of(key))
        };
        // A restored claim asks for the attempt's leftovers.
        let is_asked_for = |key: &String| {
            let mut copied = self.view.claims.iter().filter(|(uid, _)| self.copied_claims.contains(*uid));
            copied.any(|(_, claim)| claim.volume == *key)
        };
        let waits = |key: &String| {
            blocked(key)
                || of_another(key)
                || is_asked_for(key)
                || self.stripped.contains(key)
                || self.is_half_removed(key)
        };
        let noted = self.view.journals.iter();
        let noted = noted.flat_map(|(journal, keys)| keys.iter().map(move |key| (journal, key)));
        let noted = noted.into_iter().find(|(_, key)| !waits(key));
        let held = self.attempts.keys().find(|name| !waits(name) && !self.exempted.contains(*name));
        noted
            .map(|(journal, key)| format!("the journal {journal} has an entry for {key}"))
            .or_else(|| held.map(|name| format!("the attempt for {name} has not ended")))
    }

    /// Returns a claim that is pending although its class does not hang and nothing else is wrong.
    pub(crate) fn blocked_claim(&mut self, at: Duration, plan: &Plan) -> Option<String> {
        self.process_changes(at);
        let waits = |claim: &&Claim| {
            let planned = index(&claim.name).and_then(|index| plan.claims.get(index));
            !claim.bound && planned.is_some_and(|claim| !plan.classes[claim.class].hangs)
        };
        let waiting = self.view.claims.values().find(waits).filter(|_| plan.unhindered);
        waiting.map(|claim| format!("{} is not bound, and only another class hangs", claim.name))
    }

    fn leftover_asset(&self) -> Option<String> {
        if let Some(call) = self.calls.values().next() {
            return Some(format!("{} is still in {} of {}", call.process.name, call.kind.name(), call.name));
        }
        let mut ours = self.assets.iter().filter(|(_, asset)| !asset.claim.is_empty());
        let lying = ours.find(|(name, _)| {
            !self.exempted.contains(*name)
                && !self.stripped.contains(*name)
                && !self.view.volumes.get(*name).is_some_and(|volume| volume.ours)
        });
        lying.map(|(name, asset)| format!("the asset of {name} is {:?} and has no volume", asset.stage))
    }
}

/// The number of a claim in the plan.
pub(crate) fn index(claim: &str) -> Option<usize> {
    claim.strip_prefix("claim-")?.parse().ok()
}
