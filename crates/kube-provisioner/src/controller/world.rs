//! What is known of the cluster: compact tables of claims, volumes and classes, fed by the watches.
//!
//! A pure data structure: every change answers with the keys that it may matter to. Claims that ask
//! nobody or somebody else are not kept at all, foreign volumes as their name only.

mod doubt;
mod progress;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::table::Table;
use provisioner_runtime::watch::Event;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::decide::{Decision, Rules, decide};
use super::entry;
use super::erased::Backend;
use super::facts::{
    ClaimFacts, ClaimState, ClassState, Facts, OurClass, OurVolume, Progress, VolumeFacts, VolumeState, WaitingClaim,
    fingerprint,
};
use super::key::Key;
use super::safeguards::Safeguard;
use super::watched::{self, WatchedClaim, WatchedClass, WatchedVolume, without_managed_fields};

pub(crate) struct World {
    rules: Arc<Rules>,
    backend: Arc<dyn Backend>,
    claims: Table<Key, ClaimEntry>,
    volumes: Table<Key, Option<Arc<OurVolume>>>,
    classes: Table<Box<str>, Option<Arc<OurClass>>>,
    /// The waiting claims by the class that they name.
    by_class: HashMap<Box<str>, BTreeSet<Key>>,
    progress: HashMap<Key, Progress>,
    /// See `doubt`.
    doubt: u64,
}

enum ClaimEntry {
    Settled { bound_here: bool, deleting: bool, resource_version: u64 },
    Waiting(Arc<WaitingClaim>),
}

impl ClaimEntry {
    fn is_newer_than(&self, resource_version: &str) -> bool {
        match self {
            Self::Settled { resource_version: known, .. } => number(resource_version).is_some_and(|new| new < *known),
            Self::Waiting(claim) => older(resource_version, &claim.resource_version),
        }
    }
}

impl World {
    pub(crate) fn new(rules: Arc<Rules>, backend: Arc<dyn Backend>) -> Self {
        Self {
            rules,
            backend,
            claims: Table::new(),
            volumes: Table::new(),
            classes: Table::new(),
            by_class: HashMap::new(),
            progress: HashMap::new(),
            doubt: 0,
        }
    }

    /// Everything that is known of a key.
    pub(crate) fn facts(&self, key: &Key) -> Facts {
        let progress = self.progress.get(key).cloned().unwrap_or_default();
        let claim = match self.claims.get(key) {
            None => ClaimState::Absent,
            Some(ClaimEntry::Settled { bound_here, deleting, .. }) => {
                ClaimState::Settled { bound_here: *bound_here, deleting: *deleting }
            }
            Some(ClaimEntry::Waiting(claim)) => ClaimState::Waiting(claim.clone()),
        };
        let class = match &claim {
            ClaimState::Waiting(claim) => self.class(claim.facts.class.as_deref()),
            _ => ClassState::Missing,
        };
        let volume = match self.volumes.get(key) {
            None => VolumeState::Absent,
            Some(None) => VolumeState::Foreign,
            Some(Some(volume)) => VolumeState::Ours(volume.clone()),
        };
        Facts { claim, class, volume, progress }
    }

    /// Stands for the inputs that work on this key depends on: while it is the same, a pause is not cut short.
    pub(crate) fn inputs(&self, key: &Key) -> u64 {
        let facts = self.facts(key);
        let claim = match &facts.claim {
            ClaimState::Absent => (0, 0),
            ClaimState::Settled { bound_here, deleting } => (1, u64::from(*bound_here) << 1 | u64::from(*deleting)),
            ClaimState::Waiting(claim) => (2, claim.fingerprint),
        };
        let class = match &facts.class {
            ClassState::Missing => 0,
            ClassState::Foreign => 1,
            ClassState::Ours(class) => class.fingerprint,
        };
        let volume = match &facts.volume {
            VolumeState::Absent => 0,
            VolumeState::Foreign => 1,
            VolumeState::Ours(volume) => fingerprint(&volume.facts),
        };
        fingerprint(&(claim, class, volume))
    }

    /// The keys among these that need work, in their order, so that simulations repeat: for the start and for resyncs.
    pub(crate) fn unsettled(&self, among: impl Fn(&Key) -> bool) -> Vec<Key> {
        let needs_work = |key: &&Key| among(key) && !matches!(decide(&self.facts(key), &self.rules), Decision::Rest(_));
        let waiting = self.claims.iter().filter(|(_, entry)| matches!(entry, ClaimEntry::Waiting(_)));
        let ours = self.volumes.iter().filter(|(_, entry)| entry.is_some());
        let mut keys: BTreeSet<&Key> = waiting.map(|(key, _)| key).chain(ours.map(|(key, _)| key)).collect();
        keys.extend(self.progress.keys());
        keys.into_iter().filter(needs_work).cloned().collect()
    }

    /// How many claims wait for us, and how long the oldest of them has.
    pub(crate) fn waiting_claims(&self) -> (usize, Duration) {
        let waiting = self.claims.iter().filter_map(|(_, entry)| match entry {
            ClaimEntry::Waiting(claim) => Some(claim.since.elapsed()),
            ClaimEntry::Settled { .. } => None,
        });
        waiting.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    pub(crate) fn claim_event(&mut self, event: Event<WatchedClaim>) -> Vec<Key> {
        match event {
            Event::Begin => self.claims.begin_snapshot(),
            Event::Listed(claim) | Event::Applied(claim) => return self.put_claim(&claim).into_iter().collect(),
            Event::Deleted(claim) => {
                let key = claim.fields.ok().and_then(|claim| claim.metadata.uid).map(|uid| Key::of_claim(&uid));
                return key.filter(|key| self.claim_gone(key)).into_iter().collect();
            }
            Event::Ready => {
                let gone = self.claims.end_snapshot();
                for (key, entry) in &gone {
                    self.forget_class_of(key, entry);
                    self.claim_gone(key);
                }
                return gone.into_iter().map(|(key, _)| key).collect();
            }
        }
        Vec::new()
    }

    pub(crate) fn volume_event(&mut self, event: Event<WatchedVolume>) -> Vec<Key> {
        match event {
            Event::Begin => self.volumes.begin_snapshot(),
            Event::Listed(volume) | Event::Applied(volume) => return self.put_volume(&volume).into_iter().collect(),
            Event::Deleted(volume) => {
                let key = Key::of_volume(volume.name());
                if self.volumes.remove(&key).is_some() {
                    self.volume_gone(&key);
                    return vec![key];
                }
            }
            Event::Ready => {
                let gone: Vec<Key> = self.volumes.end_snapshot().into_iter().map(|(key, _)| key).collect();
                gone.iter().for_each(|key| self.volume_gone(key));
                return gone;
            }
        }
        Vec::new()
    }

    pub(crate) fn class_event(&mut self, event: Event<WatchedClass>) -> Vec<Key> {
        match event {
            Event::Begin => self.classes.begin_snapshot(),
            Event::Listed(class) | Event::Applied(class) => return self.put_class(&class),
            Event::Deleted(class) => {
                self.classes.remove(class.name());
                return self.waiting_for(class.name());
            }
            Event::Ready => {
                let gone = self.classes.end_snapshot();
                return gone.iter().flat_map(|(name, _)| self.waiting_for(name)).collect();
            }
        }
        Vec::new()
    }

    /// Takes in the answer to a look at a claim. What is not known may have ended since: only the watch tells what begins.
    pub(crate) fn saw_claim(&mut self, answer: WatchedClaim) {
        let uid = answer.metadata().uid.as_deref();
        if uid.is_some_and(|uid| self.claims.get(&Key::of_claim(uid)).is_some()) {
            self.claim_event(Event::Applied(answer));
        }
    }

    /// Takes in the answer to a look at a volume, as [`World::saw_claim`] does.
    pub(crate) fn saw_volume(&mut self, answer: WatchedVolume) {
        if self.volumes.get(&Key::of_volume(answer.name())).is_some() {
            self.volume_event(Event::Applied(answer));
        }
    }

    /// Takes in a claim from a watch or from an answer. The key is there when the claim is or was ours.
    pub(crate) fn put_claim(&mut self, watched: &WatchedClaim) -> Option<Key> {
        let ours = watched.metadata().annotations.asked().is_some_and(|name| self.rules.names.include(name));
        let claim = match &watched.fields {
            Ok(claim) => claim,
            Err(unreadable) => {
                if ours {
                    let problem = &unreadable.problem;
                    tracing::warn!(pvc = watched.name(), namespace = watched.namespace(), problem, "unreadable claim");
                }
                return None;
            }
        };
        let key = Key::of_claim(claim.metadata.uid.as_deref()?);
        if !ours {
            return self.claim_gone(&key).then_some(key);
        }
        if self.claims.get(&key).is_some_and(|known| known.is_newer_than(claim_version(claim))) {
            return None;
        }
        let entry = match claim.bound_to() {
            Some(volume) => ClaimEntry::Settled {
                bound_here: Key::of_volume(volume) == key,
                deleting: claim.metadata.deletion_timestamp.is_some(),
                resource_version: number(claim_version(claim)).unwrap_or_default(),
            },
            None => ClaimEntry::Waiting(Arc::new(self.waiting(watched, claim)?)),
        };
        self.drop_claim(&key);
        if let ClaimEntry::Waiting(claim) = &entry
            && let Some(class) = &claim.facts.class
        {
            self.by_class.entry(class.clone()).or_default().insert(key.clone());
        }
        // A bound claim needs no second look at the API server.
        if matches!(entry, ClaimEntry::Settled { .. }) {
            self.confirmed(&key);
        }
        self.claims.insert(key.clone(), entry);
        Some(key)
    }

    /// Takes in a volume from a watch or from an answer. The key is there when the volume is or was ours,
    /// or when its name is one that we would use.
    pub(crate) fn put_volume(&mut self, watched: &WatchedVolume) -> Option<Key> {
        let key = Key::of_volume(watched.name());
        let known = self.volumes.get(&key);
        if let Some(Some(known)) = known
            && older(watched_version(watched), &known.resource_version)
        {
            return None;
        }
        let ours = match &watched.fields {
            Ok(volume) if self.is_ours(volume) => VolumeFacts::read(volume),
            _ => None,
        };
        let Some(facts) = ours else {
            let was_ours = matches!(self.volumes.insert(key.clone(), None), Some(Some(_)));
            return (was_ours || self.claims.get(&key).is_some()).then_some(key);
        };
        let unfinished =
            matches!(self.progress.get(&key), Some(Progress::Unsaved(_) | Progress::Background(_) | Progress::Confirm));
        // What another installation saved under this name is not what we have made.
        if unfinished && !self.rules.made_elsewhere(&facts) {
            self.progress.remove(&key);
        }
        let resource_version = watched_version(watched).into();
        let lock = watched.metadata().annotations.lock.clone();
        self.volumes.insert(key.clone(), Some(Arc::new(OurVolume { facts, resource_version, lock })));
        self.let_object_go(&key);
        Some(key)
    }

    fn put_class(&mut self, watched: &WatchedClass) -> Vec<Key> {
        let name = watched.name();
        let class = match &watched.fields {
            Ok(class) if self.rules.names.include(&class.provisioner) => match self.read_class(watched, class) {
                Ok(class) => Some(Arc::new(class)),
                Err(problem) => {
                    tracing::warn!(storage_class = name, %problem, "unreadable StorageClass");
                    None
                }
            },
            _ => None,
        };
        self.classes.insert(name.into(), class);
        self.waiting_for(name)
    }

    fn read_class(&self, watched: &WatchedClass, class: &watched::Class) -> Result<OurClass, serde_json::Error> {
        let object: StorageClass =
            serde_json::from_str(&without_managed_fields(watched.raw.as_deref().unwrap_or(RawValue::NULL))?)?;
        let fingerprint = fingerprint(&(&class.metadata.uid, &class.metadata.resource_version));
        let snapshot = entry::snapshot(&object, fingerprint);
        Ok(OurClass::read(object, fingerprint, &*self.backend, snapshot))
    }

    fn waiting(&self, watched: &WatchedClaim, claim: &watched::Claim) -> Option<WaitingClaim> {
        let object = without_managed_fields(watched.raw.as_deref()?).ok()?;
        let typed = serde_json::from_str::<PersistentVolumeClaim>(&object);
        let accepted = match &typed {
            Ok(typed) => self.backend.accepts(typed),
            Err(problem) => {
                tracing::warn!(pvc = watched.name(), namespace = watched.namespace(), %problem, "unreadable claim");
                return None;
            }
        };
        let facts = ClaimFacts::read(claim, !accepted)?;
        let resource_version = claim_version(claim).into();
        let since = match self.claims.get(&Key::of_claim(&facts.uid)) {
            Some(ClaimEntry::Waiting(known)) => known.since,
            _ => Instant::now(),
        };
        let key = Key::of_claim(&facts.uid);
        let object = (!self.has_volume(&key, &facts)).then_some(object);
        let lock = claim.metadata.annotations.lock.clone();
        Some(WaitingClaim { fingerprint: fingerprint(&facts), facts, resource_version, lock, since, object })
    }

    fn has_volume(&self, key: &Key, claim: &ClaimFacts) -> bool {
        let volume = self.volumes.get(key).and_then(Option::as_ref);
        volume.and_then(|volume| volume.facts.claim.as_ref()).is_some_and(|other| *other.uid == *claim.uid)
    }

    /// A claim whose volume is saved only waits to be bound.
    fn let_object_go(&mut self, key: &Key) {
        let Some(ClaimEntry::Waiting(claim)) = self.claims.get(key) else { return };
        if claim.object.is_none() || !self.has_volume(key, &claim.facts) {
            return;
        }
        let slim = WaitingClaim {
            facts: claim.facts.clone(),
            fingerprint: claim.fingerprint,
            resource_version: claim.resource_version.clone(),
            lock: claim.lock.clone(),
            since: claim.since,
            object: None,
        };
        if let Some(entry) = self.claims.get_mut(key) {
            *entry = ClaimEntry::Waiting(Arc::new(slim));
        }
    }

    /// By the annotation where there is one; else by the CSI driver, or by what the volume was migrated to.
    fn is_ours(&self, volume: &watched::Volume) -> bool {
        if !self.rules.safeguards.include(Safeguard::Ownership) {
            return true;
        }
        let names = &self.rules.names;
        let annotations = &volume.metadata.annotations;
        let migrated = annotations.migrated_to.as_deref().is_some_and(|name| names.include(name));
        if let Some(by) = &annotations.provisioned_by {
            return names.include(by) || migrated;
        }
        match volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
            Some(csi) => names.include(&csi.driver),
            None => migrated,
        }
    }

    fn class(&self, name: Option<&str>) -> ClassState {
        match name.and_then(|name| self.classes.get(name)) {
            None => ClassState::Missing,
            Some(None) => ClassState::Foreign,
            Some(Some(class)) => ClassState::Ours(class.clone()),
        }
    }

    fn waiting_for(&self, class: &str) -> Vec<Key> {
        self.by_class.get(class).into_iter().flatten().cloned().collect()
    }

    fn claim_gone(&mut self, key: &Key) -> bool {
        self.confirmed(key);
        self.drop_claim(key)
    }

    fn drop_claim(&mut self, key: &Key) -> bool {
        let Some(entry) = self.claims.remove(key) else { return false };
        self.forget_class_of(key, &entry);
        true
    }

    fn forget_class_of(&mut self, key: &Key, entry: &ClaimEntry) {
        let ClaimEntry::Waiting(claim) = entry else { return };
        let Some(class) = &claim.facts.class else { return };
        if let Some(keys) = self.by_class.get_mut(class) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_class.remove(class);
            }
        }
    }

    fn volume_gone(&mut self, key: &Key) {
        if matches!(self.progress.get(key), Some(Progress::BackendDeleted { .. })) {
            self.progress.remove(key);
        }
        self.confirm_first(key);
    }
}

fn watched_version(watched: &WatchedVolume) -> &str {
    watched.fields.as_ref().ok().and_then(|volume| volume.metadata.resource_version.as_deref()).unwrap_or_default()
}

fn claim_version(claim: &watched::Claim) -> &str {
    claim.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Resource versions of one kind are ordered numbers; what is no number is never older.
/// See <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
fn older(new: &str, known: &str) -> bool {
    number(new).zip(number(known)).is_some_and(|(new, known)| new < known)
}

fn number(resource_version: &str) -> Option<u64> {
    resource_version.parse().ok()
}
