//! The state of every claim, and the violations that were observed.

use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Ledger {
    /// By uid.
    pub(super) claims: HashMap<String, Claim>,
    /// Violations, at whatever time they were observed.
    pub(super) lost: Vec<String>,
    pub(super) double: Vec<String>,
}

pub(super) struct Claim {
    pub(super) name: String,
    pub(super) retain: bool,
    pub(super) stage: Stage,
    /// Its data is in its directory.
    pub(super) marked: bool,
    /// Its volume was deleted manually.
    pub(super) volume_deleted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not bound yet.
    Waiting,
    Bound,
    /// Its deletion was requested.
    Deleting,
}

impl Ledger {
    pub(super) fn add(&mut self, uid: &str, name: &str, retain: bool) {
        let claim =
            Claim { name: name.to_owned(), retain, stage: Stage::Waiting, marked: false, volume_deleted: false };
        self.claims.insert(uid.to_owned(), claim);
    }

    /// Records that the claim and its data may now disappear. Returns its name, unless this was recorded before.
    pub(super) fn record_deletion(&mut self, uid: &str) -> Option<String> {
        let claim = self.claims.get_mut(uid).filter(|claim| claim.stage != Stage::Deleting)?;
        claim.stage = Stage::Deleting;
        Some(claim.name.clone())
    }

    pub(super) fn is_deleting(&self, uid: &str) -> bool {
        self.claims.get(uid).is_none_or(|claim| claim.stage == Stage::Deleting)
    }

    pub(super) fn broken(&self) -> usize {
        self.lost.len() + self.double.len()
    }

    pub(super) fn is_alive(&self, uid: &str) -> bool {
        self.claims.get(uid).is_some_and(|claim| claim.stage != Stage::Deleting)
    }
}

/// The volume of a claim.
pub(super) fn volume_of(uid: &str) -> String {
    format!("pvc-{uid}")
}
