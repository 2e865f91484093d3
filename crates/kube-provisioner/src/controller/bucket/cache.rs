//! What is known of the cluster: compact tables of claims, ObjectBuckets, classes, Secrets and ConfigMaps, fed by the
//! watches. A pure data structure. Every change returns the keys that it may affect.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use provisioner_runtime::Cache;
use provisioner_runtime::table::Table;
use provisioner_runtime::watch::Change;

use super::class::ReadClass;
use super::decide::{Decision, Rules, decide};
use super::delivered::{DeliveredFacts, Seen};
use super::delivered_table::DeliveredTable;
use super::facts::{BucketFacts, BucketState, ClaimFacts, ClassState, Delivered, Facts, OurClass};
use super::key::Key;
use super::safeguards::BucketSafeguard;

/// So many stale objects that a list is always quicker than reading them.
const ALWAYS_LIST: usize = 1 << 32;

pub(crate) struct BucketCache {
    rules: Arc<Rules>,
    claims: Table<Key, Arc<ClaimFacts>>,
    buckets: Table<Arc<str>, Arc<BucketFacts>>,
    classes: Table<Box<str>, Option<Arc<OurClass>>>,
    secrets: DeliveredTable,
    config_maps: DeliveredTable,
    /// The claims that there are now, by `namespace/name`.
    by_path: HashMap<Box<str>, Key>,
    /// ObjectBuckets by the `namespace/name` of their claim.
    of_claim: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Claims by the ObjectBucket that they point at.
    pointing: HashMap<Box<str>, Key>,
    by_class: HashMap<Box<str>, BTreeSet<Key>>,
}

/// Claims by whether they have their bucket.
#[derive(Default)]
pub(crate) struct ClaimCounts {
    pub(crate) waiting: usize,
    pub(crate) bound: usize,
    /// When the oldest waiting one was created.
    pub(crate) oldest_waiting: Option<Timestamp>,
}

impl BucketCache {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            claims: Table::new(),
            buckets: Table::new(),
            classes: Table::new(),
            secrets: DeliveredTable::new(),
            config_maps: DeliveredTable::new(),
            by_path: HashMap::new(),
            of_claim: HashMap::new(),
            pointing: HashMap::new(),
            by_class: HashMap::new(),
        }
    }

    pub(crate) fn claim_event(&mut self, event: Change<Option<ClaimFacts>>) -> Vec<Key> {
        match event {
            Change::Begin => self.claims.begin_snapshot(),
            Change::Listed(claim) | Change::Applied(claim) => {
                return claim.and_then(|claim| self.put_claim(claim)).into_iter().collect();
            }
            Change::Deleted(claim) => {
                let Some(key) = claim.map(|claim| key_of(&claim)) else { return Vec::new() };
                if let Some(known) = self.claims.remove(&key) {
                    self.claim_gone(&key, &known);
                }
                return vec![key];
            }
            Change::Ready => {
                let gone = self.claims.end_snapshot();
                gone.iter().for_each(|(key, known)| self.claim_gone(key, known));
                return gone.into_iter().map(|(key, _)| key).collect();
            }
        }
        Vec::new()
    }

    pub(crate) fn bucket_event(&mut self, event: Change<Option<BucketFacts>>) -> Vec<Key> {
        match event {
            Change::Begin => self.buckets.begin_snapshot(),
            Change::Listed(bucket) | Change::Applied(bucket) => {
                return bucket.map(|bucket| self.put_bucket(bucket)).unwrap_or_default();
            }
            Change::Deleted(bucket) => {
                let Some(bucket) = bucket else { return Vec::new() };
                let same = self.buckets.get(&*bucket.name).is_some_and(|known| known.uid == bucket.uid);
                return if same { self.bucket_gone(&bucket.name) } else { Vec::new() };
            }
            Change::Ready => {
                let gone = self.buckets.end_snapshot();
                return gone.into_iter().flat_map(|(_, known)| self.unlink(&known)).collect();
            }
        }
        Vec::new()
    }

    pub(crate) fn class_event(&mut self, event: Change<ReadClass>) -> Vec<Key> {
        let name = match event {
            Change::Begin => {
                self.classes.begin_snapshot();
                return Vec::new();
            }
            Change::Listed(class) | Change::Applied(class) => {
                self.classes.insert(class.name.clone(), class.ours);
                class.name
            }
            Change::Deleted(class) => {
                self.classes.remove(&class.name);
                class.name
            }
            Change::Ready => {
                let gone = self.classes.end_snapshot();
                return gone.iter().flat_map(|(name, _)| self.of_class(name)).collect();
            }
        };
        self.of_class(&name)
    }

    pub(crate) fn secret_event(&mut self, event: Change<Option<Seen>>) -> Vec<Key> {
        self.secrets.event(&self.by_path, event)
    }

    pub(crate) fn config_map_event(&mut self, event: Change<Option<Seen>>) -> Vec<Key> {
        self.config_maps.event(&self.by_path, event)
    }

    /// Applies a claim that the API server has returned.
    pub(crate) fn saw_claim(&mut self, claim: ClaimFacts) {
        if self.claims.get(&key_of(&claim)).is_some() {
            self.put_claim(claim);
        }
    }

    /// A write of the claim's status has had no answer: the next one is made whatever the status seems to be.
    pub(crate) fn status_is_unknown(&mut self, key: &Key) {
        if let Some(mut claim) = self.claims.get(key).map(|claim| ClaimFacts::clone(claim)) {
            claim.status.conditions.clear();
            self.claims.insert(key.clone(), Arc::new(claim));
        }
    }

    /// Applies an ObjectBucket that the API server has returned.
    pub(crate) fn saw_bucket(&mut self, bucket: BucketFacts) {
        self.put_bucket(bucket);
    }

    /// The API server does not have the ObjectBucket with this uid any more, whatever the watch has shown.
    pub(crate) fn bucket_is_gone(&mut self, name: &str, uid: &str) {
        if self.buckets.get(name).is_some_and(|known| *known.uid == *uid) {
            self.bucket_gone(name);
        }
    }

    /// How many lists of Secrets and ConfigMaps are complete: a write is begun at this.
    pub(crate) fn lists(&self) -> u64 {
        self.secrets.lists() + self.config_maps.lists()
    }

    /// Applies a Secret that the API server has returned for a write that was begun at `lists`.
    pub(crate) fn saw_secret(&mut self, seen: Option<Seen>, lists: u64) {
        if lists == self.lists() {
            self.secrets.saw(seen);
        }
    }

    pub(crate) fn saw_config_map(&mut self, seen: Option<Seen>, lists: u64) {
        if lists == self.lists() {
            self.config_maps.saw(seen);
        }
    }

    pub(crate) fn claim(&self, key: &Key) -> Option<Arc<ClaimFacts>> {
        self.claims.get(key).cloned()
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<Arc<BucketFacts>> {
        self.buckets.get(name).cloned()
    }

    /// Whether there is an ObjectBucket of this name.
    pub(crate) fn is_taken(&self, object: &str) -> bool {
        self.buckets.get(object).is_some()
    }

    /// The Secret and the ConfigMap at this path.
    pub(crate) fn delivered(&self, path: &str) -> [Option<&DeliveredFacts>; 2] {
        [self.secrets.get(path), self.config_maps.get(path)]
    }

    /// Claims of ours by whether they have their bucket.
    pub(crate) fn claim_counts(&self) -> ClaimCounts {
        let ours = |claim: &&Arc<ClaimFacts>| matches!(self.class(claim.class.as_deref()), ClassState::Ours(_));
        let mut counts = ClaimCounts::default();
        for claim in self.claims.iter().map(|(_, claim)| claim).filter(ours) {
            if claim.is_bound() {
                counts.bound += 1;
            } else {
                counts.waiting += 1;
                counts.oldest_waiting = counts.oldest_waiting.into_iter().chain(claim.created).min();
            }
        }
        counts
    }

    fn put_claim(&mut self, claim: ClaimFacts) -> Option<Key> {
        let key = key_of(&claim);
        if let Some(known) = self.claims.get(&key).cloned() {
            if claim.resource_version < known.resource_version {
                self.claims.keep(&key);
                return None;
            }
            self.claim_gone(&key, &known);
        }
        self.by_path.insert(key.path().into(), key.clone());
        if let Some(object) = &claim.object_bucket {
            self.pointing.insert(object.clone(), key.clone());
        }
        if let Some(class) = &claim.class {
            self.by_class.entry(class.clone()).or_default().insert(key.clone());
        }
        self.claims.insert(key.clone(), Arc::new(claim));
        Some(key)
    }

    fn claim_gone(&mut self, key: &Key, known: &ClaimFacts) {
        if self.by_path.get(key.path()) == Some(key) {
            self.by_path.remove(key.path());
        }
        if let Some(object) = &known.object_bucket
            && self.pointing.get(object) == Some(key)
        {
            self.pointing.remove(object);
        }
        if let Some(class) = &known.class {
            take(&mut self.by_class, class, key);
        }
    }

    fn put_bucket(&mut self, bucket: BucketFacts) -> Vec<Key> {
        let mut keys = Vec::new();
        if let Some(known) = self.buckets.get(&bucket.name).cloned() {
            // A watch that is behind may still show the one that had this name before.
            if bucket.resource_version < known.resource_version {
                self.buckets.keep(&bucket.name);
                return keys;
            }
            keys = self.unlink(&known);
        }
        if let Some(claim) = &bucket.claim {
            let path = format!("{}/{}", claim.namespace, claim.name);
            self.of_claim.entry(path.into()).or_default().insert(bucket.name.clone());
        }
        keys.extend(self.keys_of(&bucket));
        self.buckets.insert(bucket.name.clone(), Arc::new(bucket));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn bucket_gone(&mut self, name: &str) -> Vec<Key> {
        self.buckets.remove(name).map(|known| self.unlink(&known)).unwrap_or_default()
    }

    /// Takes an ObjectBucket out of the indexes. Returns the keys that it concerned.
    fn unlink(&mut self, bucket: &BucketFacts) -> Vec<Key> {
        if let Some(claim) = &bucket.claim {
            take(&mut self.of_claim, &format!("{}/{}", claim.namespace, claim.name), &bucket.name);
        }
        self.keys_of(bucket)
    }

    /// Its claim's key, that of the claim of the same name now, and that of the claim that points at it.
    fn keys_of(&self, bucket: &BucketFacts) -> Vec<Key> {
        let of = bucket.claim.as_ref().filter(|claim| !claim.uid.is_empty());
        let own = of.map(|claim| Key::of(&claim.namespace, &claim.name, &claim.uid));
        let path = bucket.claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
        let same_name = path.and_then(|path| self.by_path.get(&*path));
        let pointing = self.pointing.get(&*bucket.name);
        own.into_iter().chain(same_name.cloned()).chain(pointing.cloned()).collect()
    }

    fn of_class(&self, class: &str) -> Vec<Key> {
        self.by_class.get(class).into_iter().flatten().cloned().collect()
    }

    fn class(&self, name: Option<&str>) -> ClassState {
        match name.and_then(|name| self.classes.get(name)) {
            None => ClassState::Missing,
            Some(None) => ClassState::Foreign,
            Some(Some(class)) => ClassState::Ours(class.clone()),
        }
    }

    /// The ObjectBuckets of claims of this name, and the one that the claim points at.
    fn candidates<'a>(
        &'a self,
        key: &Key,
        claim: Option<&'a ClaimFacts>,
    ) -> impl Iterator<Item = &'a Arc<BucketFacts>> + use<'a> {
        let named = self.of_claim.get(key.path()).into_iter().flatten();
        let pointed = claim.and_then(|claim| claim.object_bucket.as_deref());
        named.map(|name| &**name).chain(pointed).filter_map(|name| self.buckets.get(name))
    }
}

impl Cache for BucketCache {
    type Key = Key;
    type Facts = Facts;
    type Attempt = ();

    fn facts(&self, key: &Key) -> Facts {
        let claim = self.claims.get(key).cloned();
        let is_own = |bucket: &&Arc<BucketFacts>| match (&claim, &bucket.claim) {
            (Some(claim), _) => bucket.is_of(claim),
            (None, Some(of)) => !of.uid.is_empty() && of.uid == key.uid(),
            (None, None) => false,
        };
        let bucket = self.candidates(key, claim.as_deref()).find(is_own).cloned();
        let class = claim.as_ref().and_then(|claim| claim.class.as_deref());
        let class = self.class(class.or_else(|| bucket.as_ref()?.class.as_deref()));
        let former = self.candidates(key, None).any(|other| {
            let of_another = other.claim.as_ref().is_some_and(|of| !of.uid.is_empty() && of.uid != key.uid());
            of_another && self.rules.own(other, &class)
        });
        let record = bucket.as_ref().and_then(|bucket| Some((bucket, bucket.record()?)));
        let [secret, config_map] = self.delivered(key.path());
        let secret = secret.map_or(Delivered::Absent, |secret| {
            secret.as_secret(key.uid(), record.and_then(|(_, record)| record.access_key_id.as_deref()))
        });
        let config_map = config_map.map_or(Delivered::Absent, |map| {
            let wanted = record.map(|(bucket, record)| record.config_map(&bucket.endpoint)).unwrap_or_default();
            map.as_config_map(key.uid(), &wanted)
        });
        let bucket = bucket.map_or(BucketState::Absent, BucketState::Known);
        Facts { claim, bucket, former, class, secret, config_map }
    }

    fn inputs(&self, key: &Key) -> u64 {
        self.facts(key).inputs()
    }

    fn unsettled(&self, among: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        let mut keys: BTreeSet<Key> = self.claims.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(self.buckets.iter().flat_map(|(_, bucket)| self.keys_of(bucket)));
        let needs_work =
            |key: &Key| among(key) && !matches!(decide(&self.facts(key), &self.rules), Decision::NoAction(_));
        keys.into_iter().filter(needs_work).collect()
    }

    /// The ObjectBucket is the record: nothing else is unfinished.
    fn unfinished(&self, _: &Key) -> bool {
        false
    }

    fn adopt(&mut self, _: &Key, (): ()) -> bool {
        false
    }

    fn await_adoption(&mut self, _: &[Key]) {}

    fn adopted(&mut self, _: &Key) {}

    fn drop_attempt(&mut self, _: &Key) {}

    fn forget(&mut self, _: &dyn Fn(&Key) -> bool) {}

    /// Whoever had our keys before may have changed anything: a watch that is behind lists again.
    fn stale_reads(&self, _: usize) -> usize {
        if self.rules.safeguards.include(BucketSafeguard::Fresh) { ALWAYS_LIST } else { 0 }
    }
}

pub(crate) fn key_of(claim: &ClaimFacts) -> Key {
    Key::of(&claim.namespace, &claim.name, &claim.uid)
}

/// Removes an element of one of the sets, and the set when it is empty.
fn take<T: Ord>(sets: &mut HashMap<Box<str>, BTreeSet<T>>, name: &str, element: &T) {
    if let Some(set) = sets.get_mut(name) {
        set.remove(element);
        if set.is_empty() {
            sets.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use provisioner_runtime::watch::FromJson as _;

    use super::super::narrow::{WatchedBucket, bucket_facts};
    use super::super::safeguards::Safeguards;
    use super::*;
    use crate::bucket::BucketCapabilities;
    use crate::controller::names::ProvisionerNames;
    use crate::options::Options;

    #[test]
    fn who_had_the_name_before_takes_no_place() {
        let rules = Rules {
            names: ProvisionerNames::of(&Options::new("example.com/bucket")),
            capabilities: BucketCapabilities::default(),
            identity: "default".into(),
            allowed_config: None,
            safeguards: Safeguards::default(),
        };
        let mut cache = BucketCache::new(Arc::new(rules));
        let bucket = |uid: &str, resource_version: u64| {
            let version = resource_version.to_string();
            let metadata = json!({"name": "obc-shop-photos", "uid": uid, "resourceVersion": version});
            let text = json!({"metadata": metadata, "spec": {}}).to_string();
            bucket_facts(&WatchedBucket::from_json(&text).unwrap()).unwrap()
        };
        cache.saw_bucket(bucket("new", 9));
        cache.bucket_event(Change::Applied(Some(bucket("old", 5))));
        cache.bucket_event(Change::Deleted(Some(bucket("old", 6))));
        let uid = |cache: &BucketCache| cache.bucket("obc-shop-photos").map(|known| known.uid.clone());
        assert_eq!(uid(&cache).as_deref(), Some("new"));
        // A list that is older than an answer takes nothing away.
        cache.bucket_event(Change::Begin);
        cache.bucket_event(Change::Listed(Some(bucket("new", 8))));
        cache.bucket_event(Change::Ready);
        assert_eq!(uid(&cache).as_deref(), Some("new"));
    }
}
