//! Claims whose volumes would have the same name.

use std::collections::BTreeSet;

use super::{ClaimEntry, VolumeCache};
use crate::controller::volume::facts::{ClaimState, Facts, Progress};
use crate::controller::volume::key::{ClaimUid, Key};
use crate::controller::volume::names::VolumeNames;

/// The claims by the names of their volumes, the oldest claim of a name first. Empty if the usual naming is used, in
/// which each name belongs to one claim.
#[derive(Default)]
pub(super) struct Namesakes(BTreeSet<(Key, Box<str>, ClaimUid)>);

impl Namesakes {
    pub(super) fn insert(&mut self, key: Key, created: &str, claim: ClaimUid) {
        self.0.insert((key, created.into(), claim));
    }

    pub(super) fn remove(&mut self, key: &Key, claim: &ClaimUid) {
        let known = self.entries(key).find(|(_, _, known)| known == claim).cloned();
        known.map(|known| self.0.remove(&known));
    }

    fn of(&self, key: &Key) -> impl Iterator<Item = &ClaimUid> {
        self.entries(key).map(|(_, _, claim)| claim)
    }

    fn entries(&self, key: &Key) -> impl Iterator<Item = &(Key, Box<str>, ClaimUid)> {
        let first = (key.clone(), Box::default(), ClaimUid::LEAST);
        self.0.range(first..).take_while(move |(name, ..)| name == key)
    }
}

impl VolumeCache {
    /// Returns the claim that holds the name, whether or not it exists: the claim that the volume names, else the
    /// attempt's claim, else a claim that is bound to the volume of this name, else the oldest claim.
    pub(super) fn holder(&self, key: &Key) -> Option<ClaimUid> {
        if matches!(self.rules.volume_names, VolumeNames::Usual) {
            return Some(ClaimUid::of_usual(key));
        }
        let volume = self.volumes.get(key).and_then(|volume| volume.as_ref()?.owner());
        let attempt = || Some(ClaimUid::new(&self.progress.get(key)?.pending()?.claim.facts.uid));
        let here =
            |claim: &&ClaimUid| matches!(self.claims.get(claim), Some(ClaimEntry::Bound { bound_here: true, .. }));
        let elsewhere = |claim: &&ClaimUid| matches!(self.claims.get(claim), Some(ClaimEntry::Bound { .. }));
        let claims = || self.namesakes.of(key);
        let known = || {
            claims()
                .find(here)
                .or_else(|| claims().find(|claim| !elsewhere(claim)))
                .or_else(|| claims().next())
                .cloned()
        };
        volume.filter(|owner| self.rules.volume_names.key(owner) == *key).or_else(attempt).or_else(known)
    }

    /// Returns the facts about claims that cannot have the name, since another claim holds it. Claims with another
    /// volume are left out.
    pub(super) fn namesakes(&self, key: &Key, holder: Option<&ClaimUid>) -> Vec<Facts> {
        let Some(holder) = holder.filter(|_| self.rules.volume_names.can_coincide()) else { return Vec::new() };
        let others = self.namesakes.of(key).filter(|claim| *claim != holder);
        let mut waiting = others.map(|claim| self.claim_state(claim));
        let is_waiting = |claim: &ClaimState| matches!(claim, ClaimState::Waiting(_) | ClaimState::Unreadable(_));
        // The claim of an attempt that is not yet known holds the name.
        let adoption =
            || matches!(self.progress.get(key), Some(Progress::AwaitsAdoption)).then_some(Progress::AwaitsAdoption);
        let facts = |claim: ClaimState| Facts {
            class: self.class_of(&claim),
            claim,
            progress: adoption().unwrap_or_default(),
            rival: Some(self.rival(key, holder)),
            ..Facts::default()
        };
        std::iter::from_fn(|| waiting.by_ref().find(is_waiting)).map(facts).collect()
    }

    /// Describes the claim that holds the name, for messages.
    fn rival(&self, key: &Key, holder: &ClaimUid) -> String {
        let path = |namespace: &str, name: &str| format!("\"{namespace}/{name}\"");
        let by_volume = self.volumes.get(key).and_then(|volume| volume.as_ref()?.facts.claim.as_ref());
        let attempt = || self.progress.get(key).and_then(|progress| Some(&progress.pending()?.claim.facts));
        let facts = match self.claims.get(holder) {
            Some(ClaimEntry::Waiting(claim)) => Some(&claim.facts),
            Some(ClaimEntry::Unreadable(claim)) => Some(&claim.facts),
            Some(ClaimEntry::Bound { .. }) | None => attempt(),
        };
        match (by_volume, facts) {
            (Some(claim), _) if ClaimUid::new(&claim.uid) == *holder => path(&claim.namespace, &claim.name),
            (_, Some(claim)) => path(&claim.namespace, &claim.name),
            _ => format!("with the uid {holder}"),
        }
    }
}
