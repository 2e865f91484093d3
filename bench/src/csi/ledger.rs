//! The calls of a driver, and their results.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use driver_rpc::csi::TopologyRequirement;

use super::peer::Peer;

#[derive(Default)]
pub(super) struct Ledger {
    /// Number of processes started so far.
    life: usize,
    pub(super) create_calls: usize,
    pub(super) delete_calls: usize,
    /// Time of the first CreateVolume call, by volume name.
    first_call: HashMap<String, Instant>,
    /// The callers of CreateVolume, by volume name.
    callers: HashMap<String, HashSet<Peer>>,
    /// All calls of CreateVolume.
    calls: Vec<Instant>,
    /// The volume ids of each name.
    ids: HashMap<String, HashSet<String>>,
    /// The callers of successful DeleteVolume calls, with the process number, by volume id.
    deleted: HashMap<String, Vec<(Peer, usize)>>,
    /// Calls of CreateVolume after the name's volume was deleted.
    pub(super) create_after_delete: usize,
    /// The topology requirement in the first call of CreateVolume for each name.
    required: HashMap<String, Option<TopologyRequirement>>,
    /// Later calls of CreateVolume with another requirement.
    pub(super) other_requirements: usize,
}

impl Ledger {
    /// Records the start of a sidecar process.
    pub(super) fn process_starts(&mut self) {
        self.life += 1;
    }

    pub(super) fn create_begins(&mut self, name: &str, caller: Peer, now: Instant) {
        self.create_calls += 1;
        self.calls.push(now);
        self.callers.entry(name.to_owned()).or_default().insert(caller);
        self.first_call.entry(name.to_owned()).or_insert(now);
        let ids = self.ids.get(name);
        if ids.is_some_and(|ids| ids.iter().any(|id| self.deleted.contains_key(id))) {
            self.create_after_delete += 1;
        }
    }

    /// Records a CreateVolume call with this requirement.
    pub(super) fn require(&mut self, name: &str, required: Option<&TopologyRequirement>) {
        let first = self.required.entry(name.to_owned()).or_insert_with(|| required.cloned());
        self.other_requirements += usize::from(first.as_ref() != required);
    }

    pub(super) fn create_ends(&mut self, name: &str, id: Option<&str>) {
        if let Some(id) = id {
            self.ids.entry(name.to_owned()).or_default().insert(id.to_owned());
        }
    }

    /// The number of the process that calls.
    pub(super) fn delete_begins(&mut self) -> usize {
        self.delete_calls += 1;
        self.life
    }

    pub(super) fn delete_ends(&mut self, id: &str, caller: Peer, life: usize, succeeded: bool) {
        if succeeded {
            self.deleted.entry(id.to_owned()).or_default().push((caller, life));
        }
    }

    /// Time of the first CreateVolume call for this name.
    pub(super) fn first_call(&self, name: &str) -> Option<Instant> {
        self.first_call.get(name).copied()
    }

    /// Time of the first CreateVolume call after a moment.
    pub(super) fn next_call(&self, after: Instant) -> Option<Instant> {
        self.calls.iter().copied().find(|at| *at > after)
    }

    /// Number of volumes that have existed.
    pub(super) fn volumes(&self) -> usize {
        self.ids.values().map(HashSet::len).sum()
    }

    /// The names that have had more than one volume.
    pub(super) fn names_with_two(&self) -> Vec<&str> {
        self.ids.iter().filter(|(_, ids)| ids.len() > 1).map(|(name, _)| name.as_str()).collect()
    }

    /// Number of DeleteVolume calls that succeeded after an earlier one had succeeded.
    pub(super) fn repeated_deletes(&self) -> usize {
        self.deleted.values().map(|calls| calls.len() - 1).sum()
    }

    /// Number of repeated deletions by the process that had received the earlier answer.
    pub(super) fn needless_deletes(&self, caller: Peer) -> usize {
        let is_same = |pair: &&[(Peer, usize)]| pair[0] == pair[1] && pair[0].0 == caller;
        self.deleted.values().map(|calls| calls.windows(2).filter(is_same).count()).sum()
    }

    /// Number of these volumes that this caller requested, alone or together with the other caller.
    pub(super) fn asked_for_by(&self, caller: Peer, volumes: &[String]) -> usize {
        let of_caller =
            self.ids.iter().filter(|(name, _)| self.callers.get(*name).is_some_and(|all| all.contains(&caller)));
        let ids: HashSet<_> = of_caller.flat_map(|(_, ids)| ids).collect();
        volumes.iter().filter(|id| ids.contains(id)).count()
    }

    /// Changes with every call.
    pub(super) fn progress(&self) -> (usize, usize) {
        (self.create_calls, self.delete_calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_deletion_is_needless_unless_the_process_restarted() {
        let mut ledger = Ledger::default();
        for (id, lives) in [("killed", [1, 2]), ("twice", [2, 2])] {
            lives.iter().for_each(|life| ledger.delete_ends(id, Peer::Go, *life, true));
        }
        ledger.delete_ends("killed", Peer::Go, 2, false);
        ledger.delete_ends("twice", Peer::Ours, 2, true);
        assert_eq!((ledger.repeated_deletes(), ledger.needless_deletes(Peer::Go)), (3, 1));
        assert_eq!(ledger.needless_deletes(Peer::Ours), 0);
    }

    #[test]
    fn counts_names_created_again_after_deletion() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.create_begins("pvc-1", Peer::Ours, now);
        ledger.create_ends("pvc-1", Some("volume-1"));
        ledger.create_begins("pvc-1", Peer::Ours, now);
        assert_eq!((ledger.create_after_delete, ledger.names_with_two().len()), (0, 0));
        ledger.delete_ends("volume-1", Peer::Ours, 1, true);
        ledger.create_begins("pvc-1", Peer::Go, now);
        ledger.create_ends("pvc-1", Some("volume-2"));
        assert_eq!((ledger.create_after_delete, ledger.names_with_two().len(), ledger.volumes()), (1, 1, 2));
        let left = ["volume-2".to_owned()];
        assert_eq!((ledger.asked_for_by(Peer::Ours, &left), ledger.asked_for_by(Peer::Go, &left)), (1, 1));
    }
}
