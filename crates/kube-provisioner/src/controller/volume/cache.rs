//! The cached state of the cluster: compact tables of claims, volumes and classes, fed by the watches.
//!
//! A pure data structure. Every change returns the keys that it may affect. The tables contain only claims that name
//! this provisioner, and only the names of foreign volumes.

mod claims;
mod namesakes;
mod stale;
mod view;
mod volumes;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::{Change, Table};

use self::namesakes::Namesakes;
use super::class::ReadClass;
use super::decide::Rules;
use super::facts::{
    ClaimFacts, ClaimState, ClassState, GrowingClaim, OurClass, OurVolume, Phase, Progress, UnreadableClaim,
    UnreadableVolume, WaitingClaim,
};
use super::key::{ClaimUid, Key};
use super::partial::{self, WatchedClaim, WatchedVolume};
use crate::object_watch::Trigger;

pub(crate) struct VolumeCache {
    rules: Arc<Rules>,
    claims: Table<ClaimUid, ClaimEntry>,
    namesakes: Namesakes,
    volumes: Table<Key, Option<Arc<OurVolume>>>,
    /// Our volumes that cannot be read. They have no facts in `volumes`.
    unreadable: HashMap<Key, Arc<UnreadableVolume>>,
    classes: Table<Box<str>, Option<Arc<OurClass>>>,
    /// The waiting claims by the class that they name.
    by_class: HashMap<Box<str>, BTreeSet<ClaimUid>>,
    /// Our volumes that are not named after their claim, by claim.
    by_claim: HashMap<ClaimUid, BTreeSet<Key>>,
    /// Claims that have a volume and request more, by that volume: claims whose key is not the volume's name, and
    /// claims that do not name a provisioner.
    growing_claims: Table<Key, Arc<GrowingClaim>>,
    progress: HashMap<Key, Progress>,
    /// The number of wakes by the author's watches, by key.
    wake_counts: HashMap<Key, u64>,
    /// See `stale`.
    stale_claims: u64,
    stale_volumes: u64,
}

enum ClaimEntry {
    Bound { bound_here: bool, deleting: bool, growing: Option<Arc<GrowingClaim>>, resource_version: u64 },
    Waiting(Arc<WaitingClaim>),
    Unreadable(Arc<UnreadableClaim>),
}

impl ClaimEntry {
    fn is_newer_than(&self, resource_version: &str, listing: u64) -> bool {
        match self {
            Self::Bound { resource_version: known, .. } => {
                *known > listing && number(resource_version).is_some_and(|new| new < *known)
            }
            Self::Waiting(claim) => older(resource_version, &claim.resource_version, listing),
            Self::Unreadable(claim) => older(resource_version, &claim.resource_version, listing),
        }
    }
}

impl VolumeCache {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            claims: Table::new(),
            namesakes: Namesakes::default(),
            volumes: Table::new(),
            unreadable: HashMap::new(),
            classes: Table::new(),
            by_class: HashMap::new(),
            by_claim: HashMap::new(),
            growing_claims: Table::new(),
            progress: HashMap::new(),
            wake_counts: HashMap::new(),
            stale_claims: 0,
            stale_volumes: 0,
        }
    }

    /// Returns whether the volume's claim exists and is not bound to another volume. Only finds claims that name us.
    fn owner_exists(&self, key: &Key, volume: &OurVolume) -> bool {
        let Some(owner) = volume.owner() else { return false };
        match self.claims.get(&owner) {
            None => false,
            Some(ClaimEntry::Waiting(_) | ClaimEntry::Unreadable(_)) => true,
            Some(ClaimEntry::Bound { bound_here, .. }) => *bound_here == (self.key(&owner) == *key),
        }
    }

    /// Returns the position of our node among the nodes that have volumes of ours, and the number of these nodes.
    /// Positions are counted from `node` in the circular order of the names.
    pub(crate) fn node_position_after(&self, node: &str) -> (usize, usize) {
        let here = self.rules.identity.as_deref().unwrap_or_default();
        let volumes = self.volumes.iter().filter_map(|(_, volume)| volume.as_ref()?.facts.identity.as_deref());
        let nodes: BTreeSet<&str> = volumes.chain([here]).filter(|name| *name != node).collect();
        let is_before = |name: &&&str| (**name < node, **name) < (here < node, here);
        let place = nodes.iter().filter(is_before).count();
        (place, nodes.len())
    }

    /// Returns the number of claims that wait for us, and the age of the oldest wait.
    pub(crate) fn waiting_claims(&self) -> (usize, Duration) {
        let waiting = self.claims.iter().filter_map(|(_, entry)| match entry {
            ClaimEntry::Waiting(claim) => Some(claim.since.elapsed()),
            ClaimEntry::Bound { .. } | ClaimEntry::Unreadable(_) => None,
        });
        waiting.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    /// Returns the number of attempts in journals that no process writes to now.
    pub(crate) fn awaiting_adoption(&self) -> usize {
        self.progress.values().filter(|progress| matches!(progress, Progress::AwaitsAdoption)).count()
    }

    /// Applies a change of a claim. States of versions up to `listing` are older than the list that delivers the claim,
    /// so a claim that has a lower version there was restored with the server's data.
    pub(crate) fn claim_event(&mut self, event: Change<WatchedClaim>, listing: u64) -> Vec<Key> {
        match event {
            Change::Begin => {
                self.claims.begin_snapshot();
                self.growing_claims.begin_snapshot();
                Vec::new()
            }
            Change::Listed(claim) | Change::Applied(claim) => {
                let volume = self.put_growing_claim(&claim, listing);
                let changed = self.put_claim(&claim, listing).and(claim.metadata().uid.as_deref()).map(ClaimUid::new);
                changed.iter().flat_map(|uid| self.keys_of_claim(uid)).chain(volume).collect()
            }
            Change::Deleted(claim) => {
                let volume =
                    self.volume_of_growing_claim(&claim).filter(|volume| self.growing_claims.remove(volume).is_some());
                let uid = claim.metadata().uid.as_deref().map(ClaimUid::new);
                let uid = uid.filter(|uid| self.handle_claim_deletion(uid));
                uid.iter().flat_map(|uid| self.keys_of_claim(uid)).chain(volume).collect()
            }
            Change::Ready => {
                let volumes = self.growing_claims.end_snapshot();
                let gone = self.claims.end_snapshot();
                for (uid, entry) in &gone {
                    self.forget_class_of(uid, entry);
                    self.handle_claim_deletion(uid);
                }
                let keys = gone.iter().flat_map(|(uid, _)| self.keys_of_claim(uid));
                keys.chain(volumes.into_iter().map(|(key, _)| key)).collect()
            }
        }
    }

    /// Applies a change of a volume, like [`VolumeCache::claim_event`].
    pub(crate) fn volume_event(&mut self, event: Change<WatchedVolume>, listing: u64) -> Vec<Key> {
        match event {
            Change::Begin => self.volumes.begin_snapshot(),
            Change::Listed(volume) | Change::Applied(volume) => {
                return self.put_volume(&volume, listing).into_iter().collect();
            }
            Change::Deleted(volume) => {
                let key = Key::of_volume(volume.name());
                if let Some(known) = self.volumes.remove(&key) {
                    self.handle_volume_deletion(&key, known);
                    return vec![key];
                }
            }
            Change::Ready => {
                let is_newer =
                    |known: &OurVolume| number(&known.resource_version).is_some_and(|version| version > listing);
                let missing = self.volumes.end_snapshot().into_iter();
                // The list was read before these volumes were saved. The watch follows.
                let (newer, gone): (Vec<_>, Vec<_>) =
                    missing.partition(|(_, known)| known.as_deref().is_some_and(is_newer));
                newer.into_iter().for_each(|(key, known)| drop(self.volumes.insert(key, known)));
                let keys = gone.iter().map(|(key, _)| key.clone()).collect();
                gone.into_iter().for_each(|(key, known)| self.handle_volume_deletion(&key, known));
                return keys;
            }
        }
        Vec::new()
    }

    /// Applies a wake from an author's watch. Returns the keys that may wait for it.
    pub(crate) fn wake(&mut self, wake: &Trigger) -> Vec<Key> {
        let keys: Vec<Key> = match wake {
            Trigger::Volume(name) => {
                let key = Key::of_volume(name);
                let waits = |volume: &Arc<OurVolume>| volume.facts.phase != Phase::Bound || volume.facts.deleting;
                let is_known = matches!(self.volumes.get(&key), Some(Some(volume)) if waits(volume));
                is_known.then_some(key).into_iter().collect()
            }
            Trigger::DataSource { namespace, name } => {
                self.claims_with_source(|_, source| source == (namespace.as_str(), name.as_str()))
            }
            Trigger::SourceNamespace(namespace) => self
                .claims_with_source(|claim, (of_source, _)| of_source == namespace && of_source != &*claim.namespace),
            Trigger::SelectedNode(name) => self.matching_claims(|claim| claim.selected_node.as_deref() == Some(name)),
            Trigger::Claims => self.matching_claims(|_| true),
        };
        for key in &keys {
            *self.wake_counts.entry(key.clone()).or_default() += 1;
        }
        keys
    }

    /// Returns the keys of `matching_claims` whose data source matches. The arguments are the claim, and the namespace
    /// and name of its source.
    fn claims_with_source(&self, is_match: impl Fn(&ClaimFacts, (&str, &str)) -> bool) -> Vec<Key> {
        self.matching_claims(|claim| claim.source().is_some_and(|source| is_match(claim, source)))
    }

    /// Returns the keys of matching waiting claims, and of attempts for matching claims that no longer exist.
    fn matching_claims(&self, is_match: impl Fn(&ClaimFacts) -> bool) -> Vec<Key> {
        let waits = |entry: &ClaimEntry| match entry {
            ClaimEntry::Waiting(claim) => is_match(&claim.facts),
            ClaimEntry::Bound { .. } | ClaimEntry::Unreadable(_) => false,
        };
        let claims = self.claims.iter().filter(|(_, entry)| waits(entry)).map(|(uid, _)| self.key(uid));
        let attempts = self.progress.iter().filter_map(|(key, progress)| Some((key, progress.pending()?)));
        let attempts = attempts.filter(|(_, pending)| is_match(&pending.claim.facts)).map(|(key, _)| key.clone());
        claims.chain(attempts).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Applies a class event that [`read_class`](super::class::read_class) has read.
    pub(crate) fn class_event(&mut self, event: Change<ReadClass>) -> Vec<Key> {
        let changed = self.classes.apply(event.map(|class| (class.name, Some(class.ours))));
        changed.iter().flat_map(|name| self.waiting_for(name)).collect()
    }

    /// Applies a claim that the API server returned. Ignores an unknown claim, since it may have been deleted: only the
    /// watch adds claims.
    pub(crate) fn observe_claim(&mut self, answer: WatchedClaim) {
        let Some(uid) = answer.metadata().uid.as_deref().map(ClaimUid::new) else { return };
        if let Some(volume) = self.volume_of_growing_claim(&answer) {
            let awaits_listing = self.growing_claims.awaits_listing(&volume);
            self.put_growing_claim(&answer, 0);
            if awaits_listing {
                self.growing_claims.await_listing(volume);
            }
        }
        if self.claims.get(&uid).is_some() {
            let awaits_listing = self.claims.awaits_listing(&uid);
            self.claim_event(Change::Applied(answer), 0);
            // A list that is being read may be newer than the answer, and may lack the claim.
            if awaits_listing {
                self.claims.await_listing(uid);
            }
        }
    }

    /// Applies a volume that the API server returned, like [`VolumeCache::observe_claim`].
    pub(crate) fn observe_volume(&mut self, answer: WatchedVolume) {
        if self.volumes.get(&Key::of_volume(answer.name())).is_some() {
            self.volume_answer(answer);
        }
    }

    /// Applies the answer to our own save, unless the watch was faster: it may already have shown the volume's
    /// deletion.
    pub(crate) fn apply_saved(&mut self, key: &Key, answer: WatchedVolume) {
        if matches!(self.progress.get(key), Some(Progress::Unsaved(_))) {
            self.progress.remove(key);
            self.volume_answer(answer);
        }
    }

    fn volume_answer(&mut self, answer: WatchedVolume) {
        let key = Key::of_volume(answer.name());
        let awaits_listing = self.volumes.awaits_listing(&key);
        self.volume_event(Change::Applied(answer), 0);
        // A list that is being read may be newer than the answer, and may lack the volume.
        if awaits_listing {
            self.volumes.await_listing(key);
        }
    }

    pub(crate) fn set_progress(&mut self, key: &Key, progress: Progress) {
        match progress {
            Progress::None => self.progress.remove(key),
            progress => self.progress.insert(key.clone(), progress),
        };
        self.forget_wakes(key);
    }

    /// Forgets the wakes of a key without claim, volume and attempt: no watch shows the end of an attempt whose claim
    /// no longer exists.
    pub(super) fn forget_wakes(&mut self, key: &Key) {
        if !self.progress.contains_key(key) && self.volumes.get(key).is_none() && !self.has_claim_for(key) {
            self.wake_counts.remove(key);
        }
    }

    /// Records that the asset of the volume with this uid was deleted, until its object is deleted.
    pub(crate) fn backend_deleted(&mut self, key: &Key, uid: &str, finished: bool) {
        // An attempt waits until the object is deleted.
        if self.progress.get(key).and_then(Progress::pending).is_some() {
            return;
        }
        match self.volumes.get(key) {
            Some(Some(volume)) if *volume.facts.uid == *uid => {
                self.progress.insert(key.clone(), Progress::BackendDeleted { uid: uid.into(), finished });
            }
            _ => drop(self.progress.remove(key)),
        }
    }

    /// Applies a class whose parameters were read once more.
    pub(crate) fn class_read_again(&mut self, class: OurClass) {
        if let Some(known @ Some(_)) = self.classes.get_mut(class.name())
            && known.as_ref().is_some_and(|known| known.fingerprint == class.fingerprint)
        {
            *known = Some(Arc::new(class));
        }
    }

    /// Returns the keys of a claim and of its volumes with other names.
    fn keys_of_claim(&self, claim: &ClaimUid) -> Vec<Key> {
        let volumes = self.by_claim.get(claim).into_iter().flatten().cloned();
        volumes.chain([self.key(claim)]).collect()
    }

    fn key(&self, claim: &ClaimUid) -> Key {
        self.rules.volume_names.key(claim)
    }

    /// Returns whether a claim that names us has this key.
    fn has_claim_for(&self, key: &Key) -> bool {
        self.holder(key).is_some_and(|claim| self.claims.get(&claim).is_some())
    }

    fn claim_state(&self, claim: &ClaimUid) -> ClaimState {
        match self.claims.get(claim) {
            None => ClaimState::Absent,
            Some(ClaimEntry::Bound { bound_here, deleting, growing, .. }) => {
                ClaimState::Bound { bound_here: *bound_here, deleting: *deleting, growing: growing.clone() }
            }
            Some(ClaimEntry::Waiting(claim)) => ClaimState::Waiting(claim.clone()),
            Some(ClaimEntry::Unreadable(claim)) => ClaimState::Unreadable(claim.clone()),
        }
    }

    fn class_of(&self, claim: &ClaimState) -> ClassState {
        match claim {
            ClaimState::Waiting(claim) => self.class(claim.facts.class.as_deref()),
            _ => ClassState::Missing,
        }
    }

    fn class(&self, name: Option<&str>) -> ClassState {
        match name.and_then(|name| self.classes.get(name)) {
            None => ClassState::Missing,
            Some(None) => ClassState::Unmanaged,
            Some(Some(class)) => ClassState::Ours(class.clone()),
        }
    }

    fn waiting_for(&self, class: &str) -> Vec<Key> {
        self.by_class.get(class).into_iter().flatten().map(|claim| self.key(claim)).collect()
    }
}

fn watched_version(watched: &WatchedVolume) -> &str {
    watched.version().unwrap_or_default()
}

fn claim_version(claim: &partial::ClaimFields) -> &str {
    claim.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Returns whether a resource version is older than the known one. Versions of one kind are ordered numbers; a version
/// that is not a number is never older. See
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>. A list counts more than states of
/// versions up to `listing`.
fn older(new: &str, known: &str, listing: u64) -> bool {
    number(new).zip(number(known)).is_some_and(|(new, known)| new < known && known > listing)
}

fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}
