//! What users and administrators have asked for, claim by claim: what may end, and what may stay without a claim.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    claims: BTreeMap<String, Entry>,
    /// Claims that took a bucket over, with the claim that it was made for.
    adopted: BTreeMap<String, String>,
    /// Buckets that an administrator has made or taken.
    pub(crate) by_hand: BTreeSet<String>,
}

/// A claim that there is or was, by its uid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The cluster that it is in.
    pub(crate) cluster: usize,
    /// Somebody has deleted it.
    deleted: bool,
    /// Somebody has deleted or abandoned its ObjectBucket.
    given_up: bool,
    /// It went without the controller's consent: what it had may stay, and an event tells.
    pub(crate) lost: bool,
    /// Its ObjectBucket went so, too: nobody can know what it had.
    pub(crate) forgotten: bool,
    /// Nobody knows any more which keys and grants its user had, not even who takes the bucket over.
    pub(crate) has_unknown_keys: bool,
}

impl Ledger {
    pub(crate) fn made(&mut self, cluster: usize, uid: &str) {
        let entry =
            Entry { cluster, deleted: false, given_up: false, lost: false, forgotten: false, has_unknown_keys: false };
        self.claims.insert(uid.to_owned(), entry);
    }

    pub(crate) fn deleted(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.deleted = true);
    }

    pub(crate) fn given_up(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.given_up = true);
    }

    pub(crate) fn lost(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.lost = true);
    }

    pub(crate) fn forgotten(&mut self, uid: &str) {
        self.mark(uid, |entry| (entry.forgotten, entry.has_unknown_keys) = (true, true));
    }

    /// A claim takes over the bucket of another one, as somebody has asked.
    pub(crate) fn adopted(&mut self, by: &str, of: &str) {
        self.adopted.insert(by.to_owned(), of.to_owned());
        if let Some(entry) = self.claims.get_mut(of) {
            (entry.deleted, entry.given_up, entry.lost, entry.forgotten) = (false, false, false, false);
        }
    }

    pub(crate) fn entry(&self, uid: &str) -> Option<Entry> {
        self.claims.get(uid).copied()
    }

    /// The claim that a claim's bucket was made for.
    pub(crate) fn origin<'a>(&'a self, uid: &'a str) -> &'a str {
        self.adopted.get(uid).map_or(uid, String::as_str)
    }

    /// Whether somebody has asked for the end of what was made for this claim.
    pub(crate) fn may_end(&self, uid: &str) -> bool {
        self.entry(uid).is_some_and(|entry| entry.deleted || entry.given_up)
    }

    /// The cluster in which this claim is or was.
    pub(crate) fn cluster_of(&self, uid: &str) -> Option<usize> {
        self.entry(uid).map(|entry| entry.cluster)
    }

    fn mark(&mut self, uid: &str, mark: impl Fn(&mut Entry)) {
        let origin = self.origin(uid).to_owned();
        [uid, &origin].into_iter().for_each(|uid| {
            if let Some(entry) = self.claims.get_mut(uid) {
                mark(entry);
            }
        });
    }
}
