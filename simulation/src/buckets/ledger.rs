//! Record of the requests of users and administrators, by claim. It shows which backend state may be removed, and which
//! may remain without a claim.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    claims: BTreeMap<String, Entry>,
    /// Claims that took over a bucket, with the claim that it was created for.
    adopted: BTreeMap<String, String>,
    /// Buckets that an administrator has created or taken.
    pub(crate) by_hand: BTreeSet<String>,
}

/// An existing or former claim, by its uid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The cluster of the claim.
    pub(crate) cluster: usize,
    /// A user has deleted the claim.
    deleted: bool,
    /// A user has deleted or abandoned its ObjectBucket.
    given_up: bool,
    /// It was deleted without the controller's consent: its backend state may stay, and an event reports it.
    pub(crate) lost: bool,
    /// Its ObjectBucket was also deleted this way, so the backend state of the claim is unknown.
    pub(crate) forgotten: bool,
    /// The keys and grants of its user are unknown, even to the claim that takes over the bucket.
    pub(crate) has_unknown_keys: bool,
}

impl Ledger {
    pub(crate) fn record_created(&mut self, cluster: usize, uid: &str) {
        let entry =
            Entry { cluster, deleted: false, given_up: false, lost: false, forgotten: false, has_unknown_keys: false };
        self.claims.insert(uid.to_owned(), entry);
    }

    pub(crate) fn record_deleted(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.deleted = true);
    }

    pub(crate) fn record_given_up(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.given_up = true);
    }

    pub(crate) fn record_lost(&mut self, uid: &str) {
        self.mark(uid, |entry| entry.lost = true);
    }

    pub(crate) fn record_forgotten(&mut self, uid: &str) {
        self.mark(uid, |entry| (entry.forgotten, entry.has_unknown_keys) = (true, true));
    }

    /// Records that a claim takes over the bucket of another one at a user's request.
    pub(crate) fn record_adopted(&mut self, by: &str, of: &str) {
        self.adopted.insert(by.to_owned(), of.to_owned());
        if let Some(entry) = self.claims.get_mut(of) {
            (entry.deleted, entry.given_up, entry.lost, entry.forgotten) = (false, false, false, false);
        }
    }

    pub(crate) fn entry(&self, uid: &str) -> Option<Entry> {
        self.claims.get(uid).copied()
    }

    /// The claim that a claim's bucket was created for.
    pub(crate) fn origin<'a>(&'a self, uid: &'a str) -> &'a str {
        self.adopted.get(uid).map_or(uid, String::as_str)
    }

    /// Returns true if a user has requested the removal of the backend state of this claim.
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
