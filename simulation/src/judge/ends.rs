//! What must hold in the end.

use std::time::Duration;

use super::picture::{Claim, Volume};
use super::{Invariant, Judge};
use crate::backend::AssetStage;
use crate::plan::{Claim as PlannedClaim, Nature, Plan};

impl Judge {
    /// What does not hold yet, once nothing goes wrong any more.
    pub(crate) fn unmet(&mut self, at: Duration, planned: &[PlannedClaim]) -> Option<(Invariant, String)> {
        self.look(at);
        self.unbound(planned)
            .map(|seen| (Invariant::Bound, seen))
            .or_else(|| self.too_small().map(|seen| (Invariant::Sized, seen)))
            .or_else(|| self.lingering().map(|seen| (Invariant::Gone, seen)))
            .or_else(|| self.noted().map(|seen| (Invariant::Forgotten, seen)))
            .or_else(|| self.lying_around().map(|seen| (Invariant::Tidy, seen)))
            .filter(|(invariant, _)| !self.ignored.contains(invariant))
    }

    fn unbound(&self, planned: &[PlannedClaim]) -> Option<String> {
        for (uid, claim) in &self.picture.claims {
            let Some(index) = index(&claim.name) else { continue };
            let (name, volume) = (&claim.name, format!("pvc-{uid}"));
            if claim.deleting {
                return Some(format!("{name} is still being deleted"));
            }
            if matches!(planned[index].nature, Nature::Invalid | Nature::NotMine) {
                if claim.bound {
                    return Some(format!("{name} is bound, although it never can be"));
                }
                continue;
            }
            // Deleted by hand while it was being bound: Kubernetes neither binds it any more nor lets it go, whoever made it,
            // until the claim is deleted.
            let half_bound = |volume: &Volume| volume.bound && volume.deleting;
            if claim.volume.is_empty() && self.picture.volumes.get(&volume).is_some_and(half_bound) {
                continue;
            }
            if !claim.bound || claim.volume != volume {
                return Some(format!("{name} ({uid}) is not bound"));
            }
            if !self.picture.volumes.contains_key(&volume) {
                return Some(format!("{name} is bound to {volume}, which does not exist"));
            }
            let stage = self.assets.get(&volume).map(|asset| asset.stage);
            if stage != Some(AssetStage::Exported) {
                return Some(format!("{name} is bound to {volume}, whose asset is {stage:?}"));
            }
        }
        None
    }

    /// The API server lets only claims ask for more that may.
    fn too_small(&self) -> Option<String> {
        self.picture.claims.values().filter(|claim| claim.bound && self.whole_author).find_map(|claim| {
            let volume = self.picture.volumes.get(&claim.volume).filter(|volume| volume.ours && !volume.deleting)?;
            let asset = self.assets.get(&claim.volume)?;
            let (request, sizes) = (claim.request, [claim.capacity, volume.capacity, asset.size]);
            let small = sizes.iter().any(|size| *size < request);
            small.then(|| format!("{} asks for {request}; claim, volume and asset have {sizes:?}", claim.name))
        })
    }

    fn lingering(&self) -> Option<String> {
        for (name, volume) in self.picture.volumes.iter().filter(|(_, volume)| volume.ours) {
            let claim_lives = self.picture.claims.contains_key(&volume.claim);
            // It became one to be kept after its deletion had begun, which only a person can settle.
            if !claim_lives && volume.deleting && volume.protected && volume.retained_since.is_some() {
                continue;
            }
            // One that is in use stays until it is not.
            if volume.deleting && !claim_lives {
                return Some(format!("the volume {name} is still being deleted"));
            }
            if !claim_lives && volume.retained_since.is_none() {
                return Some(format!("the volume {name} is there, and its claim is gone"));
            }
            // It is to be kept since after its deletion had begun: otherwise that would have been an accusation.
            if !claim_lives && self.removed.contains(name) {
                continue;
            }
            let stage = self.assets.get(name).map(|asset| asset.stage);
            if stage != Some(AssetStage::Exported) {
                return Some(format!("the volume {name} stays, and its asset is {stage:?}"));
            }
        }
        None
    }

    fn noted(&self) -> Option<String> {
        let noted = self.picture.journals.iter().find_map(|(journal, keys)| Some((journal, keys.first()?)));
        let held = self.picture.claims.values().find(|claim| claim.held);
        noted
            .map(|(journal, key)| format!("the journal {journal} has an entry for {key}"))
            .or_else(|| held.map(|claim| format!("{} records an attempt", claim.name)))
    }

    /// Which claim waits although its class does not hang and nothing else is wrong.
    pub(crate) fn hindered(&mut self, at: Duration, plan: &Plan) -> Option<String> {
        self.look(at);
        let waits = |claim: &&Claim| {
            let planned = index(&claim.name).map(|index| plan.claims[index].class);
            !claim.bound && planned.is_some_and(|class| !plan.classes[class].hangs)
        };
        let waiting = self.picture.claims.values().find(waits).filter(|_| plan.unhindered);
        waiting.map(|claim| format!("{} is not bound, and only another class hangs", claim.name))
    }

    fn lying_around(&self) -> Option<String> {
        if let Some(call) = self.calls.values().next() {
            return Some(format!("{} is still in {} of {}", call.process.name, call.kind.name(), call.name));
        }
        let mut ours = self.assets.iter().filter(|(_, asset)| !asset.claim.is_empty());
        let lying = ours.find(|(name, _)| {
            !self.forgiven.contains(*name) && !self.picture.volumes.get(*name).is_some_and(|volume| volume.ours)
        });
        lying.map(|(name, asset)| format!("the asset of {name} is {:?} and has no volume", asset.stage))
    }
}

/// The number of a claim in the plan.
pub(crate) fn index(claim: &str) -> Option<usize> {
    claim.strip_prefix("claim-")?.parse().ok()
}
