//! What is known of the cluster: compact tables of claims, volumes and classes, fed by the watches.
//!
//! A pure data structure. Every change returns the keys that it may affect. The tables do not hold claims that ask no
//! provisioner or another one, and only the names of foreign volumes.

mod namesakes;
mod progress;
mod stale;
mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::table::Table;
use provisioner_runtime::watch::Change;
use tokio::time::Instant;

use self::namesakes::Namesakes;
use super::author_view;
use super::class::ReadClass;
use super::decide::Rules;
use super::facts::{
    ClaimFacts, ClaimState, ClassState, GrowingClaim, OurClass, OurVolume, Phase, Progress, UnreadableClaim,
    UnreadableVolume, VolumeFacts, WaitingClaim, fingerprint,
};
use super::key::{ClaimUid, Key};
use super::names::VolumeNames;
use super::partial::{self, Meta, WatchedClaim, WatchedVolume};
use super::safeguards::Safeguard;
use crate::controller::shared::index::take;
use crate::object_watch::Wake;

pub(crate) struct VolumeCache {
    rules: Arc<Rules>,
    claims: Table<ClaimUid, ClaimEntry>,
    namesakes: Namesakes,
    volumes: Table<Key, Option<Arc<OurVolume>>>,
    /// Those of the volumes without facts that are ours and cannot be read.
    unreadable: HashMap<Key, Arc<UnreadableVolume>>,
    classes: Table<Box<str>, Option<Arc<OurClass>>>,
    /// The waiting claims by the class that they name.
    by_class: HashMap<Box<str>, BTreeSet<ClaimUid>>,
    /// Our volumes that are not named after their claim, by that claim.
    by_claim: HashMap<ClaimUid, BTreeSet<Key>>,
    /// Claims of anybody that have a volume and ask for more, by that volume: those whose key is not the volume's name, and
    /// those that ask no provisioner.
    guests: Table<Key, Arc<GrowingClaim>>,
    progress: HashMap<Key, Progress>,
    /// How often the author's watches have shown what the work on a key waits for.
    woken: HashMap<Key, u64>,
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
    fn is_newer_than(&self, resource_version: &str) -> bool {
        match self {
            Self::Bound { resource_version: known, .. } => number(resource_version).is_some_and(|new| new < *known),
            Self::Waiting(claim) => older(resource_version, &claim.resource_version),
            Self::Unreadable(claim) => older(resource_version, &claim.resource_version),
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
            guests: Table::new(),
            progress: HashMap::new(),
            woken: HashMap::new(),
            stale_claims: 0,
            stale_volumes: 0,
        }
    }

    /// Whether the volume's claim exists and has not taken another volume. The table has only the claims that ask us.
    fn owner_lives(&self, key: &Key, volume: &OurVolume) -> bool {
        let Some(owner) = volume.owner() else { return false };
        match self.claims.get(&owner) {
            None => false,
            Some(ClaimEntry::Waiting(_) | ClaimEntry::Unreadable(_)) => true,
            Some(ClaimEntry::Bound { bound_here, .. }) => *bound_here == (self.key(&owner) == *key),
        }
    }

    /// Our node's place among those with volumes of ours, counted from `node` in the circle of all names, and their number.
    pub(crate) fn place_after(&self, node: &str) -> (usize, usize) {
        let here = self.rules.node.as_deref().unwrap_or_default();
        let volumes = self.volumes.iter().filter_map(|(_, volume)| volume.as_ref()?.facts.identity.as_deref());
        let nodes: BTreeSet<&str> = volumes.chain([here]).filter(|name| *name != node).collect();
        let is_before = |name: &&&str| (**name < node, **name) < (here < node, here);
        let place = nodes.iter().filter(is_before).count();
        (place, nodes.len())
    }

    /// The number of claims that wait for us, and how long the oldest has waited.
    pub(crate) fn waiting_claims(&self) -> (usize, Duration) {
        let waiting = self.claims.iter().filter_map(|(_, entry)| match entry {
            ClaimEntry::Waiting(claim) => Some(claim.since.elapsed()),
            ClaimEntry::Bound { .. } | ClaimEntry::Unreadable(_) => None,
        });
        waiting.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    pub(crate) fn claim_event(&mut self, event: Change<WatchedClaim>) -> Vec<Key> {
        match event {
            Change::Begin => {
                self.claims.begin_snapshot();
                self.guests.begin_snapshot();
                Vec::new()
            }
            Change::Listed(claim) | Change::Applied(claim) => {
                let volume = self.put_guest(&claim);
                self.put_claim(&claim).into_iter().chain(volume).collect()
            }
            Change::Deleted(claim) => {
                let volume = self.guest_of(&claim).filter(|volume| self.guests.remove(volume).is_some());
                let uid = claim.metadata().uid.as_deref().map(ClaimUid::new);
                let uid = uid.filter(|uid| self.claim_gone(uid));
                uid.iter().flat_map(|uid| self.of_claim(uid)).chain(volume).collect()
            }
            Change::Ready => {
                let volumes = self.guests.end_snapshot();
                let gone = self.claims.end_snapshot();
                for (uid, entry) in &gone {
                    self.forget_class_of(uid, entry);
                    self.claim_gone(uid);
                }
                let keys = gone.iter().flat_map(|(uid, _)| self.of_claim(uid));
                keys.chain(volumes.into_iter().map(|(key, _)| key)).collect()
            }
        }
    }

    pub(crate) fn volume_event(&mut self, event: Change<WatchedVolume>) -> Vec<Key> {
        match event {
            Change::Begin => self.volumes.begin_snapshot(),
            Change::Listed(volume) | Change::Applied(volume) => return self.put_volume(&volume).into_iter().collect(),
            Change::Deleted(volume) => {
                let key = Key::of_volume(volume.name());
                if let Some(known) = self.volumes.remove(&key) {
                    self.volume_gone(&key, known);
                    return vec![key];
                }
            }
            Change::Ready => {
                let gone = self.volumes.end_snapshot();
                let keys = gone.iter().map(|(key, _)| key.clone()).collect();
                gone.into_iter().for_each(|(key, known)| self.volume_gone(&key, known));
                return keys;
            }
        }
        Vec::new()
    }

    /// An author's watch shows what this work may wait for.
    pub(crate) fn wake(&mut self, wake: &Wake) -> Vec<Key> {
        let keys: Vec<Key> = match wake {
            Wake::Volume(name) => {
                let key = Key::of_volume(name);
                let waits = |volume: &Arc<OurVolume>| volume.facts.phase != Phase::Bound || volume.facts.deleting;
                let is_known = matches!(self.volumes.get(&key), Some(Some(volume)) if waits(volume));
                is_known.then_some(key).into_iter().collect()
            }
            Wake::DataSource { namespace, name } => {
                self.with_source(|_, source| source == (namespace.as_str(), name.as_str()))
            }
            Wake::SourceNamespace(namespace) => {
                self.with_source(|claim, (of_source, _)| of_source == namespace && of_source != &*claim.namespace)
            }
        };
        for key in &keys {
            *self.woken.entry(key.clone()).or_default() += 1;
        }
        keys
    }

    /// The waiting claims whose data source, by namespace and name, is meant.
    fn with_source(&self, is_meant: impl Fn(&ClaimFacts, (&str, &str)) -> bool) -> Vec<Key> {
        let is_meant = |entry: &ClaimEntry| match entry {
            ClaimEntry::Waiting(claim) => claim.facts.source().is_some_and(|source| is_meant(&claim.facts, source)),
            ClaimEntry::Bound { .. } | ClaimEntry::Unreadable(_) => false,
        };
        self.claims.iter().filter(|(_, entry)| is_meant(entry)).map(|(uid, _)| self.key(uid)).collect()
    }

    /// Applies a class event that [`read_class`](super::class::read_class) has read.
    pub(crate) fn class_event(&mut self, event: Change<ReadClass>) -> Vec<Key> {
        match event {
            Change::Begin => self.classes.begin_snapshot(),
            Change::Listed(class) | Change::Applied(class) => {
                self.classes.insert(class.name.clone(), class.ours);
                return self.waiting_for(&class.name);
            }
            Change::Deleted(class) => {
                self.classes.remove(&class.name);
                return self.waiting_for(&class.name);
            }
            Change::Ready => {
                let gone = self.classes.end_snapshot();
                return gone.iter().flat_map(|(name, _)| self.waiting_for(name)).collect();
            }
        }
        Vec::new()
    }

    /// Applies a claim that the API server returned. An unknown claim is ignored, since it may be gone: only the watch
    /// adds claims.
    pub(crate) fn observe_claim(&mut self, answer: WatchedClaim) {
        let Some(uid) = answer.metadata().uid.as_deref().map(ClaimUid::new) else { return };
        if let Some(volume) = self.guest_of(&answer) {
            let awaits_listing = self.guests.awaits_listing(&volume);
            self.put_guest(&answer);
            if awaits_listing {
                self.guests.await_listing(volume);
            }
        }
        if self.claims.get(&uid).is_some() {
            let awaits_listing = self.claims.awaits_listing(&uid);
            self.claim_event(Change::Applied(answer));
            // A list that is being read may be newer than the answer, and the claim missing in it.
            if awaits_listing {
                self.claims.await_listing(uid);
            }
        }
    }

    /// Applies a volume that the API server returned, as [`VolumeCache::observe_claim`] does.
    pub(crate) fn observe_volume(&mut self, answer: WatchedVolume) {
        let key = Key::of_volume(answer.name());
        if self.volumes.get(&key).is_some() {
            let awaits_listing = self.volumes.awaits_listing(&key);
            self.volume_event(Change::Applied(answer));
            if awaits_listing {
                self.volumes.await_listing(key);
            }
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

    /// Applies a claim from the watch or from an answer. Returns its key if the claim is or was ours.
    pub(crate) fn put_claim(&mut self, watched: &WatchedClaim) -> Option<Key> {
        let ours = watched.metadata().annotations.asked().is_some_and(|name| self.rules.names.include(name));
        let claim = match &watched.fields {
            Ok(claim) => claim,
            Err(unreadable) if ours && self.rules.safeguards.include(Safeguard::Unreadable) => {
                return self.put_unreadable(watched.metadata(), &unreadable.problem);
            }
            Err(_) => return None,
        };
        let uid = ClaimUid::new(claim.metadata.uid.as_deref()?);
        let key = self.key(&uid);
        if !ours {
            return self.claim_gone(&uid).then_some(key);
        }
        if self.claims.get(&uid).is_some_and(|known| known.is_newer_than(claim_version(claim))) {
            self.claims.keep(&uid);
            return None;
        }
        let entry = match claim.bound_to() {
            Some(volume) => {
                let bound_here = Key::of_volume(volume) == key;
                ClaimEntry::Bound {
                    bound_here,
                    deleting: claim.metadata.deletion_timestamp.is_some(),
                    growing: GrowingClaim::read(claim).filter(|_| bound_here).map(Arc::new),
                    resource_version: number(claim_version(claim)).unwrap_or_default(),
                }
            }
            None => ClaimEntry::Waiting(Arc::new(self.waiting(watched, claim)?)),
        };
        // A bound claim need not be read from the API server again.
        if matches!(entry, ClaimEntry::Bound { .. }) {
            self.confirmed(&key);
        }
        self.insert_claim((uid, &key), watched.metadata(), entry);
        Some(key)
    }

    fn insert_claim(&mut self, (uid, key): (ClaimUid, &Key), meta: &Meta, entry: ClaimEntry) {
        self.drop_claim(&uid);
        if let ClaimEntry::Waiting(claim) = &entry
            && let Some(class) = &claim.facts.class
        {
            self.by_class.entry(class.clone()).or_default().insert(uid.clone());
        }
        if !matches!(self.rules.volume_names, VolumeNames::Usual) {
            let created = meta.creation_timestamp.as_deref().unwrap_or_default();
            self.namesakes.insert(key.clone(), created, uid.clone());
        }
        self.claims.insert(uid, entry);
    }

    /// The volume for which this claim is known as a guest.
    fn guest_of(&self, watched: &WatchedClaim) -> Option<Key> {
        let volume = Key::of_volume(watched.fields.as_ref().ok()?.bound_to()?);
        let known = self.guests.get(&volume)?;
        (watched.metadata().uid.as_deref() == Some(&*known.claim.uid)).then_some(volume)
    }

    /// Returns the volume's key if the claim asks for more than the volume, or has done so until now.
    fn put_guest(&mut self, watched: &WatchedClaim) -> Option<Key> {
        let known = self.guest_of(watched);
        let claim = watched.fields.as_ref().ok()?;
        let volume = Key::of_volume(claim.bound_to()?);
        if let Some(volume) = &known
            && self.guests.get(volume).is_some_and(|known| older(claim_version(claim), &known.resource_version))
        {
            self.guests.keep(volume);
            return None;
        }
        let named_after = self.key(&ClaimUid::new(claim.metadata.uid.as_deref()?)) == volume;
        let ours = claim.metadata.annotations.asked().is_some_and(|name| self.rules.names.include(name));
        match GrowingClaim::read(claim).filter(|_| !(ours && named_after)) {
            Some(growing) => {
                self.guests.insert(volume.clone(), Arc::new(growing));
                Some(volume)
            }
            None => known.filter(|volume| self.guests.remove(volume).is_some()),
        }
    }

    /// What cannot be read is present. What was begun for it stays as it is.
    fn put_unreadable(&mut self, meta: &Meta, problem: &str) -> Option<Key> {
        let claim = UnreadableClaim::read(meta, problem)?;
        let uid = ClaimUid::new(&claim.facts.uid);
        if self.claims.get(&uid).is_some_and(|known| known.is_newer_than(&claim.resource_version)) {
            self.claims.keep(&uid);
            return None;
        }
        let key = self.key(&uid);
        self.insert_claim((uid, &key), meta, ClaimEntry::Unreadable(Arc::new(claim)));
        Some(key)
    }

    /// Applies a volume from the watch or from an answer. Returns its key if the volume is or was ours, or if a claim
    /// of ours will use its name.
    pub(crate) fn put_volume(&mut self, watched: &WatchedVolume) -> Option<Key> {
        let key = Key::of_volume(watched.name());
        let known = self.volumes.get(&key);
        if let Some(Some(known)) = known
            && older(watched_version(watched), &known.resource_version)
        {
            self.volumes.keep(&key);
            return None;
        }
        let ours = match &watched.fields {
            Ok(volume) if self.rules.own(volume) => VolumeFacts::read(volume),
            _ => None,
        };
        self.unreadable.remove(&key);
        let Some(facts) = ours else {
            let before = self.volumes.insert(key.clone(), None);
            let was_ours = matches!(&before, Some(Some(_)));
            self.forget_claim_of(&key, before);
            let meta = watched.metadata();
            if let (Err(unreadable), Some(uid)) = (&watched.fields, meta.uid.as_deref())
                && self.rules.named_in(&meta.annotations)
            {
                let volume = UnreadableVolume { uid: uid.into(), problem: unreadable.problem.clone() };
                self.unreadable.insert(key.clone(), Arc::new(volume));
                return Some(key);
            }
            return (was_ours || self.is_asked_for(&key)).then_some(key);
        };
        let attempt = self.progress.get(&key).and_then(Progress::pending).cloned();
        let of_another = attempt.filter(|pending| facts.is_for_another(&pending.claim.facts.uid));
        let ends = match self.progress.get(&key) {
            Some(Progress::Confirm) => true,
            _ if of_another.is_some() => false,
            // The author has a part in the end.
            Some(Progress::Unsaved(_) | Progress::Background(_)) => !self.rules.capabilities.attempt_end,
            _ => false,
        };
        // A volume of another installation does not end our attempt. Neither does a volume that may be older than our
        // term.
        if ends && !self.is_stale(watched) && !self.rules.made_elsewhere(&facts) {
            self.progress.remove(&key);
        }
        // What was made for one claim and not saved may be what the other's volume has, and be deleted with it.
        if let (Some(pending), Some(Progress::Unsaved(_))) = (of_another, self.progress.get(&key)) {
            self.progress.insert(key.clone(), Progress::Background(pending));
        }
        let resource_version = watched_version(watched).into();
        let volume = Arc::new(OurVolume { facts, resource_version });
        let owner = volume.owner().filter(|owner| self.key(owner) != key);
        let before = self.volumes.insert(key.clone(), Some(volume));
        self.forget_claim_of(&key, before);
        if let Some(owner) = owner {
            self.by_claim.entry(owner).or_default().insert(key.clone());
        }
        self.let_object_go(&key);
        Some(key)
    }

    /// The API server does not have the volume, whatever the watch has shown.
    pub(crate) fn volume_is_gone(&mut self, key: &Key) {
        if let Some(known) = self.volumes.remove(key) {
            self.volume_gone(key, known);
        }
    }

    /// The keys of a claim and of its volumes with other names.
    fn of_claim(&self, claim: &ClaimUid) -> Vec<Key> {
        let volumes = self.by_claim.get(claim).into_iter().flatten().cloned();
        volumes.chain([self.key(claim)]).collect()
    }

    fn key(&self, claim: &ClaimUid) -> Key {
        self.rules.volume_names.key(claim)
    }

    /// Whether a claim of ours has this key.
    fn is_asked_for(&self, key: &Key) -> bool {
        self.holder(key).is_some_and(|claim| self.claims.get(&claim).is_some())
    }

    fn forget_claim_of(&mut self, volume: &Key, known: Option<Option<Arc<OurVolume>>>) {
        let Some(owner) = known.flatten().and_then(|known| known.owner()) else { return };
        take(&mut self.by_claim, &owner, volume);
    }

    fn waiting(&self, watched: &WatchedClaim, claim: &partial::ClaimFields) -> Option<WaitingClaim> {
        let facts = ClaimFacts::read(claim)?;
        let uid = ClaimUid::new(&facts.uid);
        let object = match (self.has_volume(&self.key(&uid), &facts), watched.raw.as_deref()) {
            (true, _) => None,
            (false, Some(raw)) => Some(author_view::claim(raw, &self.rules.capabilities).ok()?),
            (false, None) => return None,
        };
        let since = match self.claims.get(&uid) {
            Some(ClaimEntry::Waiting(known)) => known.since,
            _ => Instant::now(),
        };
        Some(WaitingClaim {
            fingerprint: fingerprint(&facts),
            facts,
            resource_version: claim_version(claim).into(),
            since,
            object,
        })
    }

    fn has_volume(&self, key: &Key, claim: &ClaimFacts) -> bool {
        let volume = self.volumes.get(key).and_then(Option::as_ref);
        volume.and_then(|volume| volume.facts.claim.as_ref()).is_some_and(|other| *other.uid == *claim.uid)
    }

    /// Drops the object of a claim whose volume is saved: the claim only waits to be bound.
    fn let_object_go(&mut self, key: &Key) {
        let Some(owner) = self.volumes.get(key).and_then(|volume| volume.as_ref()?.owner()) else { return };
        let Some(ClaimEntry::Waiting(claim)) = self.claims.get(&owner).filter(|_| self.key(&owner) == *key) else {
            return;
        };
        if claim.object.is_none() || !self.has_volume(key, &claim.facts) {
            return;
        }
        let slim = WaitingClaim {
            facts: claim.facts.clone(),
            fingerprint: claim.fingerprint,
            resource_version: claim.resource_version.clone(),
            since: claim.since,
            object: None,
        };
        if let Some(entry) = self.claims.get_mut(&owner) {
            *entry = ClaimEntry::Waiting(Arc::new(slim));
        }
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

    fn claim_gone(&mut self, claim: &ClaimUid) -> bool {
        let key = self.key(claim);
        self.confirmed(&key);
        self.namesakes.remove(&key, claim);
        self.drop_claim(claim)
    }

    fn drop_claim(&mut self, claim: &ClaimUid) -> bool {
        let Some(entry) = self.claims.remove(claim) else { return false };
        self.forget_class_of(claim, &entry);
        true
    }

    fn forget_class_of(&mut self, uid: &ClaimUid, entry: &ClaimEntry) {
        let ClaimEntry::Waiting(claim) = entry else { return };
        if let Some(class) = &claim.facts.class {
            take(&mut self.by_class, class, uid);
        }
    }

    fn volume_gone(&mut self, key: &Key, known: Option<Arc<OurVolume>>) {
        self.woken.remove(key);
        let known_here = known.as_ref().is_some_and(|volume| !self.rules.made_elsewhere(&volume.facts));
        self.forget_claim_of(key, Some(known));
        self.unreadable.remove(key);
        match self.progress.get(key) {
            Some(Progress::BackendDeleted { .. }) => drop(self.progress.remove(key)),
            // The volume was saved and is gone again before the attempt has ended. The answer to its saving is old.
            Some(Progress::Unsaved(unsaved)) if known_here => {
                let attempt = Progress::Background(unsaved.pending.clone());
                self.progress.insert(key.clone(), attempt);
            }
            _ => {}
        }
        self.confirm_first(key);
    }
}

fn watched_version(watched: &WatchedVolume) -> &str {
    watched.version().unwrap_or_default()
}

fn claim_version(claim: &partial::ClaimFields) -> &str {
    claim.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Resource versions of one kind are ordered numbers. A version that is no number is never older. See
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
fn older(new: &str, known: &str) -> bool {
    number(new).zip(number(known)).is_some_and(|(new, known)| new < known)
}

fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}
