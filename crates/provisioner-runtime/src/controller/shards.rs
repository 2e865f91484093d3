//! The keys that this process may work on, and the journal behind each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::LoopOptions;
use crate::journal::{Entry, Journal, JournalOptions, JournalStats, PART_LAYOUT, journal_name, part_journal_name};
use crate::lease::{LeaseOptions, Term, lease_name};
use crate::name::stable_hash;

/// The way in which replicas share the work.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// Each shard has a Lease, whose holder works on the keys of the shard.
    Leases(LeaseOptions),
    /// A single process works. A second one ends the first.
    Alone,
    /// Each process has its own part and its own journal. A second process with the same part ends the first.
    Own {
        /// The part, such as a node.
        part: String,
    },
}

/// The shards that this process holds.
pub(super) struct Shards {
    pub(super) options: LoopOptions,
    owned: Mutex<BTreeMap<u32, OwnedShard>>,
    problems: Mutex<BTreeMap<u32, String>>,
    /// The counts of closed journals.
    past: Mutex<JournalStats>,
}

/// Guard for work on one key; the shard is not released while it is held.
pub(super) struct Ownership {
    pub(super) journal: Journal,
    term: Term,
    _working: TaskTrackerToken,
}

struct OwnedShard {
    journal: Journal,
    term: Term,
    working: TaskTracker,
}

impl LoopOptions {
    pub(super) fn journal_of(&self, shard: u32) -> JournalOptions {
        let (name, layout) = match &self.sharing {
            Sharing::Own { part } => (part_journal_name(&self.name, part), PART_LAYOUT.to_owned()),
            _ => (journal_name(&self.name, shard, self.shards()), self.shards().to_string()),
        };
        JournalOptions {
            kind: self.journal,
            namespace: self.namespace.clone(),
            name,
            group: lease_name(&self.name),
            aliases: self.aliases.clone(),
            layout,
            cluster_id: self.cluster_id.clone(),
            sets_restored_apart: self.safeguards.restored,
            holder: self.instance.clone(),
            tenant_of: |_| String::new(),
            environment: self.environment,
        }
    }

    fn shards(&self) -> u32 {
        if let Sharing::Leases(leases) = &self.sharing { leases.shards } else { 1 }
    }

    fn shard_of(&self, key: &str) -> u32 {
        shard_of(&(self.shard_by)(key), self.shards())
    }

    /// Returns true if an entry that no other process finishes belongs to this shard. `part` is the entry's part.
    pub(super) fn is_mine(&self, shard: u32, entry: &Entry, part: Option<&str>) -> bool {
        match &self.sharing {
            Sharing::Own { part: own } => part == Some(own.as_str()),
            _ => self.shard_of(&entry.key) == shard,
        }
    }
}

/// Returns the shard of a key. The formula must never change: old and new replicas share the keys during an update.
pub fn shard_of(key: &str, shards: u32) -> u32 {
    // Use the upper half, whose bits are mixed best.
    ((stable_hash(key) >> 32) % u64::from(shards.max(1))) as u32
}

impl Ownership {
    /// Returns a function that returns true while no other process can have taken the shard. Together with the journal,
    /// which needs no clock, it stops a process that was suspended.
    pub(super) fn validity(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (over, term) = (self.journal.over().clone(), self.term.clone());
        move || !over.is_cancelled() && term.is_valid()
    }
}

impl Shards {
    pub(super) fn new(options: LoopOptions) -> Self {
        Self { options, owned: Mutex::default(), problems: Mutex::default(), past: Mutex::default() }
    }

    /// Returns a guard for work on a key if this process currently owns its shard.
    pub(super) fn ownership(&self, key: &impl fmt::Display) -> Option<Ownership> {
        let owned = self.owned();
        let OwnedShard { journal, term, working } = owned.get(&self.shard_of(key))?;
        let (journal, term) = (journal.clone(), term.clone());
        (!working.is_closed()).then(|| Ownership { journal, term, _working: working.token() })
    }

    pub(super) fn owns(&self, key: &impl fmt::Display) -> bool {
        self.owned().contains_key(&self.shard_of(key))
    }

    /// Begins work on a shard.
    pub(super) fn insert(&self, term: &Term, journal: Journal, working: &TaskTracker) {
        self.owned().insert(term.shard, OwnedShard { journal, term: term.clone(), working: working.clone() });
    }

    /// Ends all work on a shard; returns the tracker of work that is still running.
    pub(super) fn remove(&self, shard: u32) -> Option<TaskTracker> {
        let owned = self.owned().remove(&shard)?;
        owned.working.close();
        owned.journal.close();
        let mut past = crate::sync::lock(&self.past);
        *past = *past
            + JournalStats { entries: 0, bytes: 0, capacity: 0, in_memory: 0, restored: 0, ..owned.journal.stats() };
        drop(past);
        Some(owned.working)
    }

    /// Returns what keeps this process from working, for an administrator.
    pub(super) fn problem(&self) -> Option<String> {
        let journals = self.owned().values().filter_map(|owned| owned.journal.problem()).collect::<Vec<_>>();
        let problems: Vec<String> = crate::sync::lock(&self.problems).values().cloned().chain(journals).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    pub(super) fn set_problem(&self, shard: u32, problem: Option<String>) {
        let mut problems = crate::sync::lock(&self.problems);
        match problem {
            Some(problem) => problems.insert(shard, problem),
            None => problems.remove(&shard),
        };
    }

    /// Records the problem that is about to end the whole process.
    pub(super) fn fail(&self, problem: String) {
        self.set_problem(u32::MAX, Some(problem));
    }

    /// Returns the contents of the open journals, plus the counts of these and earlier ones.
    pub(super) fn journal_stats(&self) -> JournalStats {
        let past = *crate::sync::lock(&self.past);
        self.owned().values().map(|owned| &owned.journal).fold(past, |sum, journal| sum + journal.stats())
    }

    pub(super) fn shard_of(&self, key: &impl fmt::Display) -> u32 {
        match self.options.shards() {
            1 => 0,
            _ => self.options.shard_of(&key.to_string()),
        }
    }

    fn owned(&self) -> MutexGuard<'_, BTreeMap<u32, OwnedShard>> {
        crate::sync::lock(&self.owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sharing: Sharing) -> LoopOptions {
        LoopOptions { sharing, ..LoopOptions::new("example.com/disks", "disks", "host_1") }
    }

    fn sharded(shards: u32) -> LoopOptions {
        plan(Sharing::Leases(LeaseOptions { shards, ..LeaseOptions::new("disks", "example.com-disks", "host_1") }))
    }

    #[test]
    fn keys_with_equal_shard_text_share_a_shard() {
        let by_group =
            LoopOptions { shard_by: |key| key.split('/').next().unwrap_or_default().to_owned(), ..sharded(4) };
        let shards = |plan: &LoopOptions| -> std::collections::BTreeSet<u32> {
            (0..50).map(|number| plan.shard_of(&format!("shop/{number}/0123-4567-89ab-cdef"))).collect()
        };
        assert_eq!((shards(&by_group).len(), shards(&sharded(4)).len()), (1, 4));
    }

    #[test]
    fn journal_name_and_layout_depend_on_sharing() {
        let journal = |plan: &LoopOptions, shard| (plan.journal_of(shard).name, plan.journal_of(shard).layout);
        assert_eq!(journal(&sharded(1), 0), ("example.com-disks-journal".to_owned(), "1".to_owned()));
        assert_eq!(journal(&sharded(4), 2), ("example.com-disks-journal-2-of-4".to_owned(), "4".to_owned()));
        let own = plan(Sharing::Own { part: "node-1".to_owned() });
        assert_eq!(journal(&own, 0), ("example.com-disks-journal-node-node-1".to_owned(), "node".to_owned()));
    }
}
