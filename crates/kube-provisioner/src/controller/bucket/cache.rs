//! The known state of the cluster: compact tables of claims, ObjectBuckets, classes, Secrets and ConfigMaps, fed by the
//! watches. A pure data structure. Every change returns the keys that it may affect.

mod view;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use provisioner_runtime::{Change, Table};

use super::class::ReadClass;
use super::decide::Rules;
use super::delivered::{Deliverable, DeliveredFacts, WatchedDelivered};
use super::delivered_index::DeliveredIndex;
use super::delivered_names::DeliveredNames;
use super::delivered_table::DeliveredTable;
use super::facts::{BucketFacts, ClaimFacts, OurClass};
use super::key::Key;
use super::recent_deletions::RecentDeletions;
use crate::bucket::ClaimName;
use crate::controller::shared::index::remove_entry;

pub(crate) struct BucketCache {
    rules: Arc<Rules>,
    claims: Table<Key, Arc<ClaimFacts>>,
    buckets: Table<Arc<str>, Arc<BucketFacts>>,
    classes: Table<Box<str>, Option<Arc<OurClass>>>,
    /// The Secrets and the ConfigMaps.
    delivered: [DeliveredTable; 2],
    /// The existing claims by `namespace/name`.
    by_path: HashMap<Box<str>, Key>,
    /// ObjectBuckets by the `namespace/name` of their claim.
    buckets_by_claim: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Claims by the ObjectBucket that they point at.
    claims_by_bucket: HashMap<Box<str>, BTreeSet<Key>>,
    by_class: HashMap<Box<str>, BTreeSet<Key>>,
    /// Claims by their Secrets and ConfigMaps of other names.
    by_delivered: DeliveredIndex,
    /// Claims by the `namespace/name` of the claim whose bucket they request.
    claims_by_owner: HashMap<Box<str>, BTreeSet<Key>>,
    /// ObjectBuckets of claims that use the bucket of another claim, by the uid of the claim that it was created for.
    buckets_by_owner: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    recent_deletions: RecentDeletions,
    /// See [`BucketCache::in_list`].
    listing: u64,
}

/// The numbers of claims with and without their bucket.
#[derive(Default)]
pub(crate) struct ClaimCounts {
    pub(crate) waiting: usize,
    pub(crate) bound: usize,
    /// The creation time of the oldest waiting claim.
    pub(crate) oldest_waiting: Option<Timestamp>,
}

impl BucketCache {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            claims: Table::new(),
            buckets: Table::new(),
            classes: Table::new(),
            delivered: Default::default(),
            by_path: HashMap::new(),
            buckets_by_claim: HashMap::new(),
            claims_by_bucket: HashMap::new(),
            by_class: HashMap::new(),
            by_delivered: DeliveredIndex::default(),
            claims_by_owner: HashMap::new(),
            buckets_by_owner: HashMap::new(),
            recent_deletions: RecentDeletions::default(),
            listing: 0,
        }
    }

    /// Applies an object of a list. States of versions up to `listing` are older than the list, so an object that has a
    /// lower version there was restored with the server's data.
    pub(crate) fn in_list<T>(&mut self, listing: u64, apply: impl FnOnce(&mut Self) -> T) -> T {
        self.set_listing(listing);
        let applied = apply(self);
        self.set_listing(0);
        applied
    }

    fn set_listing(&mut self, listing: u64) {
        self.listing = listing;
        self.delivered.iter_mut().for_each(|table| table.listing = listing);
    }

    /// Returns true if the object was deleted. A list of an earlier state of the server may contain it again.
    fn is_deleted(&mut self, uid: &str) -> bool {
        if self.listing == u64::MAX {
            self.recent_deletions.forget(uid);
        }
        self.recent_deletions.has(uid)
    }

    pub(crate) fn claim_event(&mut self, event: Change<Option<ClaimFacts>>) -> Vec<Key> {
        match event {
            Change::Begin => self.claims.begin_snapshot(),
            Change::Listed(claim) | Change::Applied(claim) => {
                return claim
                    .and_then(|claim| self.put_claim(claim))
                    .map(|key| self.with_requesting_claims(key))
                    .unwrap_or_default();
            }
            Change::Deleted(claim) => {
                let Some(key) = claim.map(|claim| key_of(&claim)) else { return Vec::new() };
                self.recent_deletions.add(key.uid());
                if let Some(known) = self.claims.remove(&key) {
                    self.unindex_claim(&key, &known);
                }
                return self.with_requesting_claims(key);
            }
            Change::Ready => {
                let gone = self.claims.end_snapshot();
                gone.iter().for_each(|(key, known)| self.unindex_claim(key, known));
                return gone.into_iter().flat_map(|(key, _)| self.with_requesting_claims(key)).collect();
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
                self.recent_deletions.add(&bucket.uid);
                let same = self.buckets.get(&*bucket.name).is_some_and(|known| known.uid == bucket.uid);
                return if same { self.evict_bucket(&bucket.name) } else { self.affected_keys(&bucket) };
            }
            Change::Ready => {
                let gone = self.buckets.end_snapshot();
                return gone.into_iter().flat_map(|(_, known)| self.unlink(&known)).collect();
            }
        }
        Vec::new()
    }

    pub(crate) fn own_classes(&self) -> Vec<Arc<OurClass>> {
        self.classes.iter().filter_map(|(_, class)| class.clone()).collect()
    }

    pub(crate) fn class_event(&mut self, event: Change<ReadClass>) -> Vec<Key> {
        let changed = self.classes.apply(event.map(|class| (class.name, Some(class.ours))));
        let of_claims = changed.iter().filter_map(|name| self.by_class.get(name)).flatten().cloned();
        // Without a record, the class of the ObjectBucket decides. Users can edit the class of a bound claim.
        let is_of = |bucket: &BucketFacts| {
            bucket.record().is_none() && bucket.class.as_ref().is_some_and(|name| changed.contains(name))
        };
        let buckets = self.buckets.iter().map(|(_, bucket)| bucket).filter(|bucket| is_of(bucket));
        of_claims.chain(buckets.flat_map(|bucket| self.keys_of(bucket))).collect()
    }

    pub(crate) fn delivered_event<K: Deliverable>(&mut self, event: Change<Option<WatchedDelivered>>) -> Vec<Key> {
        let (by_path, by_delivered) = (&self.by_path, &self.by_delivered);
        let keys_at = |path: &str| by_path.get(path).into_iter().chain(by_delivered.at(path)).cloned().collect();
        self.delivered[K::INDEX].event(keys_at, event)
    }

    /// Applies a claim that the API server has returned.
    pub(crate) fn observe_claim(&mut self, claim: ClaimFacts) {
        let key = key_of(&claim);
        if self.claims.get(&key).is_some() {
            let awaits_listing = self.claims.awaits_listing(&key);
            self.put_claim(claim);
            if awaits_listing {
                self.claims.await_listing(key);
            }
        }
    }

    /// Removes a claim that no longer exists according to the API server, even if the watch still shows it.
    pub(crate) fn remove_claim(&mut self, key: &Key) {
        if let Some(known) = self.claims.remove(key) {
            self.unindex_claim(key, &known);
            self.recent_deletions.add(key.uid());
        }
    }

    /// Records that a write of the claim's status has had no answer: the status is written again, even if it seems
    /// unchanged.
    pub(crate) fn mark_status_unknown(&mut self, key: &Key) {
        if let Some(claim) = self.claims.get_mut(key) {
            Arc::make_mut(claim).status.conditions.clear();
        }
    }

    /// Applies an ObjectBucket that the API server has returned.
    pub(crate) fn observe_bucket(&mut self, bucket: BucketFacts) {
        let name = bucket.name.clone();
        let awaits_listing = self.buckets.awaits_listing(&name);
        self.put_bucket(bucket);
        if awaits_listing {
            self.buckets.await_listing(name);
        }
    }

    /// Removes the ObjectBucket with this uid, which no longer exists according to the API server, even if the watch
    /// still shows it.
    pub(crate) fn remove_bucket(&mut self, name: &str, uid: &str) {
        if self.buckets.get(name).is_some_and(|known| *known.uid == *uid) {
            self.evict_bucket(name);
            self.recent_deletions.add(uid);
        }
    }

    /// Returns how many lists of Secrets and ConfigMaps are complete, to be read before a write.
    pub(crate) fn lists(&self) -> u64 {
        self.delivered.iter().map(|table| table.lists).sum()
    }

    /// Applies a Secret or a ConfigMap that the API server has returned for a write that began at `lists`.
    pub(crate) fn observe_delivered(&mut self, index: usize, seen: Option<WatchedDelivered>, lists: u64) {
        if lists == self.lists() {
            self.delivered[index].observe(seen);
        }
    }

    pub(crate) fn claim(&self, key: &Key) -> Option<Arc<ClaimFacts>> {
        self.claims.get(key).cloned()
    }

    pub(crate) fn bucket(&self, name: &str) -> Option<Arc<BucketFacts>> {
        self.buckets.get(name).cloned()
    }

    /// Returns the Secret and the ConfigMap of these names.
    pub(crate) fn delivered(&self, namespace: &str, names: &DeliveredNames) -> [Option<&DeliveredFacts>; 2] {
        let [secrets, config_maps] = &self.delivered;
        let [secret, config_map] = names.paths(namespace);
        [secrets.get(&secret), config_maps.get(&config_map)]
    }

    pub(crate) fn claim_counts(&self) -> ClaimCounts {
        let ours = |claim: &&Arc<ClaimFacts>| self.class(claim.class.as_deref()).ours().is_some();
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
        if !self.rules.is_present(&claim) {
            return None;
        }
        let key = key_of(&claim);
        if self.is_deleted(key.uid()) {
            return None;
        }
        if let Some(known) = self.claims.get(&key).cloned() {
            if claim.resource_version < known.resource_version && known.resource_version > self.listing {
                self.claims.keep(&key);
                return None;
            }
            self.unindex_claim(&key, &known);
        }
        self.by_path.insert(key.path().into(), key.clone());
        if let Some(object) = &claim.object_bucket {
            self.claims_by_bucket.entry(object.clone()).or_default().insert(key.clone());
        }
        if let Some(class) = &claim.class {
            self.by_class.entry(class.clone()).or_default().insert(key.clone());
        }
        if let Some(owner) = requested_claim_path(&claim) {
            self.claims_by_owner.entry(owner).or_default().insert(key.clone());
        }
        self.by_delivered.put_claim(&key, &claim);
        self.claims.insert(key.clone(), Arc::new(claim));
        Some(key)
    }

    fn unindex_claim(&mut self, key: &Key, known: &ClaimFacts) {
        if self.by_path.get(key.path()) == Some(key) {
            self.by_path.remove(key.path());
        }
        if let Some(object) = &known.object_bucket {
            remove_entry(&mut self.claims_by_bucket, object, key);
        }
        if let Some(class) = &known.class {
            remove_entry(&mut self.by_class, class, key);
        }
        if let Some(owner) = requested_claim_path(known) {
            remove_entry(&mut self.claims_by_owner, &owner, key);
        }
        self.by_delivered.unindex_claim(key, known);
    }

    fn put_bucket(&mut self, bucket: BucketFacts) -> Vec<Key> {
        let mut keys = Vec::new();
        if self.is_deleted(&bucket.uid) {
            return keys;
        }
        if let Some(known) = self.buckets.get(&bucket.name).cloned() {
            // A watch that is behind may still show the previous object of this name.
            if bucket.resource_version < known.resource_version && known.resource_version > self.listing {
                self.buckets.keep(&bucket.name);
                return keys;
            }
            keys = self.unlink(&known);
        }
        for path in paths(&bucket) {
            self.buckets_by_claim.entry(path).or_default().insert(bucket.name.clone());
        }
        if let Some(owner) = owner_of(&bucket) {
            self.buckets_by_owner.entry(owner.uid.as_str().into()).or_default().insert(bucket.name.clone());
        }
        self.by_delivered.put_bucket(&bucket);
        keys.extend(self.affected_keys(&bucket));
        self.buckets.insert(bucket.name.clone(), Arc::new(bucket));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn evict_bucket(&mut self, name: &str) -> Vec<Key> {
        self.buckets.remove(name).map(|known| self.unlink(&known)).unwrap_or_default()
    }

    /// Removes an ObjectBucket from the indexes. Returns the affected keys.
    fn unlink(&mut self, bucket: &BucketFacts) -> Vec<Key> {
        for path in paths(bucket) {
            remove_entry(&mut self.buckets_by_claim, &path, &bucket.name);
        }
        if let Some(owner) = owner_of(bucket) {
            remove_entry(&mut self.buckets_by_owner, owner.uid.as_str(), &bucket.name);
        }
        self.by_delivered.unindex_bucket(bucket);
        self.affected_keys(bucket)
    }

    /// Returns the claim's key, and the keys of the claims that request its bucket.
    fn with_requesting_claims(&self, key: Key) -> Vec<Key> {
        let asking = self.claims_by_owner.get(key.path()).into_iter().flatten().cloned();
        let mut keys: Vec<Key> = asking.collect();
        keys.push(key);
        keys
    }

    /// Returns all keys that an ObjectBucket can affect: its own key, the keys of the claims that request the bucket,
    /// and the key of the claim that the bucket was created for.
    fn affected_keys(&self, bucket: &BucketFacts) -> Vec<Key> {
        let asking = paths(bucket).filter_map(|path| self.claims_by_owner.get(&path)).flatten().cloned();
        let owner = owner_of(bucket).and_then(|owner| self.by_path.get(&*owner.to_string()).cloned());
        self.keys_of(bucket).into_iter().chain(asking).chain(owner).collect()
    }

    /// Returns the keys of its claim and of the current claims of the same name. An ObjectBucket that does not prove
    /// its claim concerns all claims that point at it, which may belong to any tenant. Without any of these it has its
    /// own key.
    fn keys_of(&self, bucket: &BucketFacts) -> Vec<Key> {
        let of = bucket.claim().filter(|claim| !claim.uid.is_empty());
        let pointing = self.claims_by_bucket.get(&*bucket.name).filter(|_| of.is_none()).into_iter().flatten().cloned();
        let own = of.as_ref().map(|claim| Key::of(&claim.namespace, &claim.name, &claim.uid));
        let same_name = paths(bucket).filter_map(|path| self.by_path.get(&path).cloned());
        let keys: Vec<Key> = own.into_iter().chain(same_name).chain(pointing).collect();
        if keys.is_empty() { vec![Key::of("", &bucket.name, &bucket.uid)] } else { keys }
    }
}

pub(crate) fn key_of(claim: &ClaimFacts) -> Key {
    Key::of(&claim.namespace, &claim.name, &claim.uid)
}

/// Returns the claim that the bucket was created for, if it differs from the ObjectBucket's own claim.
fn owner_of(bucket: &BucketFacts) -> Option<&ClaimName> {
    bucket.record()?.owner.as_ref()
}

/// Returns `namespace/name` of the claim whose bucket a claim requests.
fn requested_claim_path(claim: &ClaimFacts) -> Option<Box<str>> {
    claim.bucket_claim().map(|name| format!("{}/{name}", claim.namespace).into())
}

/// Returns `namespace/name` of the claims that an ObjectBucket affects.
fn paths(bucket: &BucketFacts) -> impl Iterator<Item = Box<str>> + use<> {
    let of = bucket.claim().map(|of| format!("{}/{}", of.namespace, of.name).into_boxed_str());
    let given = bucket.adopt_for.clone().filter(|given| of.as_ref() != Some(given));
    of.into_iter().chain(given)
}

#[cfg(test)]
mod tests;
