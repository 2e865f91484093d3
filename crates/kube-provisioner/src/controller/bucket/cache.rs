//! What is known of the cluster: compact tables of claims, ObjectBuckets, classes, Secrets and ConfigMaps, fed by the
//! watches. A pure data structure. Every change returns the keys that it may affect.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use objectbucket_api::names::object_bucket_name;
use provisioner_runtime::controller::{Cache, StaleReads};
use provisioner_runtime::table::Table;
use provisioner_runtime::watch::Change;

use super::accounts::AccountIndex;
use super::class::ReadClass;
use super::decide::{Decision, Rules, decide};
use super::delivered::{DeliveredFacts, Seen};
use super::delivered_index::DeliveredIndex;
use super::delivered_names::DeliveredNames;
use super::delivered_table::DeliveredTable;
use super::facts::{
    BucketFacts, BucketState, ClaimFacts, ClassState, Delivered, Facts, Fellow, Obstacle, OurClass, OwnerFacts,
    Recorded,
};
use super::gone::Gone;
use super::key::Key;
use super::safeguards::BucketSafeguard;
use crate::bucket::ClaimName;
use crate::controller::shared::index::take;

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
    /// Claims by their Secrets and ConfigMaps of other names.
    by_delivered: DeliveredIndex,
    /// Claims by the `namespace/name` of the claim whose bucket they ask for.
    asking: HashMap<Box<str>, BTreeSet<Key>>,
    /// ObjectBuckets of claims that use the bucket of another one, by the uid of the claim that it was made for.
    using: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    by_account: AccountIndex,
    gone: Gone,
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
            by_delivered: DeliveredIndex::default(),
            asking: HashMap::new(),
            using: HashMap::new(),
            by_account: AccountIndex::default(),
            gone: Gone::default(),
        }
    }

    pub(crate) fn claim_event(&mut self, event: Change<Option<ClaimFacts>>) -> Vec<Key> {
        match event {
            Change::Begin => self.claims.begin_snapshot(),
            Change::Listed(claim) | Change::Applied(claim) => {
                return claim
                    .and_then(|claim| self.put_claim(claim))
                    .map(|key| self.with_asking(key))
                    .unwrap_or_default();
            }
            Change::Deleted(claim) => {
                let Some(key) = claim.map(|claim| key_of(&claim)) else { return Vec::new() };
                self.gone.add(key.uid());
                if let Some(known) = self.claims.remove(&key) {
                    self.claim_gone(&key, &known);
                }
                return self.of_gone_claim(key);
            }
            Change::Ready => {
                let gone = self.claims.end_snapshot();
                gone.iter().for_each(|(key, known)| self.claim_gone(key, known));
                return gone.into_iter().flat_map(|(key, _)| self.of_gone_claim(key)).collect();
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
                self.gone.add(&bucket.uid);
                let same = self.buckets.get(&*bucket.name).is_some_and(|known| known.uid == bucket.uid);
                return if same { self.bucket_gone(&bucket.name) } else { self.concerned(&bucket) };
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
        let (by_path, by_delivered) = (&self.by_path, &self.by_delivered);
        self.secrets.event(|path| by_path.get(path).into_iter().chain(by_delivered.at(path)).cloned().collect(), event)
    }

    pub(crate) fn config_map_event(&mut self, event: Change<Option<Seen>>) -> Vec<Key> {
        let (by_path, by_delivered) = (&self.by_path, &self.by_delivered);
        self.config_maps
            .event(|path| by_path.get(path).into_iter().chain(by_delivered.at(path)).cloned().collect(), event)
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

    /// The API server does not have the claim any more, whatever the watch has shown.
    pub(crate) fn claim_is_gone(&mut self, key: &Key) {
        if let Some(known) = self.claims.remove(key) {
            self.claim_gone(key, &known);
            self.gone.add(key.uid());
        }
    }

    /// A write of the claim's status has had no answer: the next one is made whatever the status seems to be.
    pub(crate) fn status_is_unknown(&mut self, key: &Key) {
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

    /// The API server does not have the ObjectBucket with this uid any more, whatever the watch has shown.
    pub(crate) fn bucket_is_gone(&mut self, name: &str, uid: &str) {
        if self.buckets.get(name).is_some_and(|known| *known.uid == *uid) {
            self.bucket_gone(name);
            self.gone.add(uid);
        }
    }

    /// How many lists of Secrets and ConfigMaps are complete: a write is begun at this.
    pub(crate) fn lists(&self) -> u64 {
        self.secrets.lists() + self.config_maps.lists()
    }

    /// Applies a Secret that the API server has returned for a write that was begun at `lists`.
    pub(crate) fn observe_secret(&mut self, seen: Option<Seen>, lists: u64) {
        if lists == self.lists() {
            self.secrets.observe(seen);
        }
    }

    pub(crate) fn observe_config_map(&mut self, seen: Option<Seen>, lists: u64) {
        if lists == self.lists() {
            self.config_maps.observe(seen);
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

    /// The Secret and the ConfigMap of these names.
    pub(crate) fn delivered(&self, namespace: &str, names: &DeliveredNames) -> [Option<&DeliveredFacts>; 2] {
        let [secret, config_map] = names.paths(namespace);
        [self.secrets.get(&secret), self.config_maps.get(&config_map)]
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
        if !self.rules.is_present(&claim) {
            return None;
        }
        let key = key_of(&claim);
        if self.gone.has(key.uid()) {
            return None;
        }
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
        if let Some(owner) = asked_path(&claim) {
            self.asking.entry(owner).or_default().insert(key.clone());
        }
        self.by_delivered.put_claim(&key, &claim);
        self.by_account.put_claim(&key, &claim);
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
        if let Some(owner) = asked_path(known) {
            take(&mut self.asking, &owner, key);
        }
        self.by_delivered.claim_gone(key, known);
        self.by_account.claim_gone(key, known);
    }

    fn put_bucket(&mut self, bucket: BucketFacts) -> Vec<Key> {
        let mut keys = Vec::new();
        if self.gone.has(&bucket.uid) {
            return keys;
        }
        if let Some(known) = self.buckets.get(&bucket.name).cloned() {
            // A watch that is behind may still show the one that had this name before.
            if bucket.resource_version < known.resource_version {
                self.buckets.keep(&bucket.name);
                return keys;
            }
            keys = self.unlink(&known);
        }
        for path in paths(&bucket) {
            self.of_claim.entry(path).or_default().insert(bucket.name.clone());
        }
        if let Some(owner) = owner_of(&bucket) {
            self.using.entry(owner.uid.as_str().into()).or_default().insert(bucket.name.clone());
        }
        self.by_delivered.put_bucket(&bucket);
        self.by_account.put_bucket(&bucket);
        keys.extend(self.concerned(&bucket));
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
        for path in paths(bucket) {
            take(&mut self.of_claim, &path, &bucket.name);
        }
        if let Some(owner) = owner_of(bucket) {
            take(&mut self.using, owner.uid.as_str(), &bucket.name);
        }
        self.by_delivered.bucket_gone(bucket);
        self.by_account.bucket_gone(bucket);
        self.concerned(bucket)
    }

    /// The claim's key, and those of the claims that ask for its bucket.
    fn with_asking(&self, key: Key) -> Vec<Key> {
        let asking = self.asking.get(key.path()).into_iter().flatten().cloned();
        let mut keys: Vec<Key> = asking.collect();
        keys.push(key);
        keys
    }

    /// As [`with_asking`](Self::with_asking), of a claim that is gone, with those of the claims that ask for its account.
    fn of_gone_claim(&self, key: Key) -> Vec<Key> {
        let buckets = self.of_claim.get(key.path()).into_iter().flatten().filter_map(|name| self.buckets.get(name));
        let fellows: Vec<Key> = buckets.flat_map(|bucket| self.by_account.asking(bucket)).cloned().collect();
        let mut keys = self.with_asking(key);
        keys.extend(fellows);
        keys
    }

    /// Whether the claim of an ObjectBucket exists. One that cannot be read does.
    pub(crate) fn has_claim(&self, bucket: &BucketFacts) -> bool {
        let key = bucket.claim().map(|claim| Key::of(&claim.namespace, &claim.name, &claim.uid));
        key.is_none_or(|key| self.claims.get(&key).is_some())
    }

    /// All keys that may change with an ObjectBucket: its own, those that ask for the bucket, and that of the claim that the
    /// bucket was made for.
    fn concerned(&self, bucket: &BucketFacts) -> Vec<Key> {
        let asking = paths(bucket).filter_map(|path| self.asking.get(&path)).flatten().cloned();
        let owner = owner_of(bucket).and_then(|owner| self.by_path.get(&*owner.to_string()).cloned());
        let fellows = self.by_account.asking(bucket).cloned();
        self.keys_of(bucket).into_iter().chain(asking).chain(owner).chain(fellows).collect()
    }

    /// Its claim's key, those of the claims of the same name now, and that of the claim that points at it. An ObjectBucket
    /// without any of these has a key of its own.
    fn keys_of(&self, bucket: &BucketFacts) -> Vec<Key> {
        let of = bucket.claim().filter(|claim| !claim.uid.is_empty());
        let own = of.map(|claim| Key::of(&claim.namespace, &claim.name, &claim.uid));
        let same_name = paths(bucket).filter_map(|path| self.by_path.get(&path).cloned());
        let pointing = self.pointing.get(&*bucket.name);
        let keys: Vec<Key> = own.into_iter().chain(same_name).chain(pointing.cloned()).collect();
        if keys.is_empty() { vec![Key::of("", &bucket.name, &bucket.uid)] } else { keys }
    }

    /// Whether the ObjectBucket stands for this claim.
    fn is_of(&self, bucket: &BucketFacts, claim: &ClaimFacts) -> bool {
        let points = claim.object_bucket.as_deref() == Some(&bucket.name);
        if !self.rules.safeguards.include(BucketSafeguard::Pointer) && bucket.claim().is_none_or(|of| of.uid.is_empty())
        {
            return points;
        }
        match bucket.claim() {
            Some(of) if !of.uid.is_empty() => *of.uid == *claim.uid,
            Some(of) => {
                let same_name = *of.namespace == *claim.namespace && *of.name == *claim.name;
                points && same_name && has_its_bucket(bucket, claim)
            }
            // A damaged object is nobody else's as long as it may be the claim's.
            None if bucket.unreadable.is_some() || matches!(bucket.record, Recorded::Unreadable(_)) => points,
            None => points && self.is_named_after(bucket, claim) && has_its_bucket(bucket, claim),
        }
    }

    /// Whether an ObjectBucket of another provisioner that names no claim can only be this claim's: it has the name that all
    /// give to the claim's ObjectBucket, no other claim would have the same, and it was made after the claim. Tenants choose
    /// what a claim points at, but not when it was made.
    fn is_named_after(&self, bucket: &BucketFacts, claim: &ClaimFacts) -> bool {
        let Some(path) = bucket.name.strip_prefix("obc-") else { return false };
        let mut claims = path.match_indices('-').filter_map(|(hyphen, _)| {
            let path = format!("{}/{}", &path[..hyphen], &path[hyphen + 1..]);
            self.by_path.get(&*path)
        });
        let only = claims.next().filter(|_| claims.next().is_none());
        let is_older = claim.created.zip(bucket.created).is_some_and(|(claim, bucket)| claim <= bucket);
        is_older && only == Some(&key_of(claim))
    }

    /// Whether no claim has the ObjectBucket.
    fn is_free(&self, bucket: &BucketFacts) -> bool {
        let of = bucket.claim().map(|of| Key::of(&of.namespace, &of.name, &of.uid));
        of.is_none_or(|key| self.claims.get(&key).is_none())
    }

    /// What keeps a claim without an ObjectBucket from getting one.
    fn obstacle(&self, key: &Key, claim: Option<&ClaimFacts>, class: &ClassState) -> Option<Obstacle> {
        let (mut left, mut former) = (None, false);
        for other in self.candidates(key, None).filter(|other| self.rules.own(other, class)) {
            if other.claim().is_none_or(|of| of.uid.is_empty() || of.uid == key.uid()) {
                continue;
            }
            if let Some(maker) = self.rules.other_cluster(other) {
                return Some(Obstacle::OtherCluster { maker: maker.into() });
            }
            match other.deleting || !self.rules.safeguards.include(BucketSafeguard::Absence) {
                true => former = true,
                false => left = Some(other.name.clone()),
            }
        }
        let unproven = || {
            let claim = claim?;
            // A claim that cannot be read does not say where it points, and probably it is there.
            let usual = claim.unreadable.as_ref().map(|_| object_bucket_name(&claim.namespace, &claim.name));
            let pointed = self.buckets.get(claim.object_bucket.as_deref().or(usual.as_deref())?)?;
            let may_be_ours = usual.is_some() || self.rules.own(pointed, class);
            let proven = pointed.claim().is_some_and(|of| !of.uid.is_empty());
            Some(pointed).filter(|_| !proven && may_be_ours)
        };
        match left {
            _ if former => Some(Obstacle::Former),
            Some(object) => Some(Obstacle::Left { object }),
            None => unproven().map(|other| Obstacle::Unproven { object: other.name.clone() }),
        }
    }

    /// The claim whose bucket this one uses, or asks for.
    fn owner(&self, claim: &ClaimFacts, bucket: Option<&BucketFacts>) -> OwnerFacts {
        let recorded = bucket.and_then(owner_of);
        let path = recorded.map(|owner| owner.to_string().into_boxed_str()).or_else(|| asked_path(claim));
        let Some(path) = path else { return OwnerFacts::default() };
        let claim = self.by_path.get(&path).and_then(|key| self.claims.get(key)).cloned();
        let is_its = |bucket: &&Arc<BucketFacts>| match (recorded, &claim) {
            (Some(owner), _) => made_for(bucket).is_some_and(|claim| claim.uid == owner.uid),
            (None, Some(claim)) => self.is_of(bucket, claim),
            (None, None) => false,
        };
        let pointed = claim.as_ref().and_then(|claim| claim.object_bucket.as_deref());
        let named = self.of_claim.get(&path).into_iter().flatten().map(|name| &**name);
        let bucket = named.chain(pointed).filter_map(|name| self.buckets.get(name)).find(is_its).cloned();
        OwnerFacts { claim, bucket }
    }

    /// The other claims that use a bucket.
    fn users(&self, bucket: &BucketFacts) -> Vec<ClaimName> {
        let made_for = made_for(bucket).filter(|_| owner_of(bucket).is_none());
        let using = made_for.and_then(|claim| self.using.get(&*claim.uid)).into_iter().flatten();
        using.filter_map(|name| self.buckets.get(name)?.claim()).collect()
    }

    fn of_class(&self, class: &str) -> Vec<Key> {
        self.by_class.get(class).into_iter().flatten().cloned().collect()
    }

    fn class(&self, name: Option<&str>) -> ClassState {
        match name.and_then(|name| self.classes.get(name)) {
            None => ClassState::Missing,
            Some(None) => ClassState::Unmanaged,
            Some(Some(class)) => ClassState::Ours(class.clone()),
        }
    }

    /// The ObjectBuckets of claims of this name, and the one that the claim points at.
    fn candidates<'a>(
        &'a self,
        key: &'a Key,
        claim: Option<&'a ClaimFacts>,
    ) -> impl Iterator<Item = &'a Arc<BucketFacts>> + use<'a> {
        let named = self.of_claim.get(key.path()).into_iter().flatten();
        let pointed = claim.and_then(|claim| claim.object_bucket.as_deref());
        let unclaimed = key.path().strip_prefix('/');
        named.map(|name| &**name).chain(pointed).chain(unclaimed).filter_map(|name| self.buckets.get(name))
    }
}

impl Cache for BucketCache {
    type Key = Key;
    type Facts = Facts;

    fn facts(&self, key: &Key) -> Facts {
        let claim = self.claims.get(key).cloned();
        let is_own = |bucket: &&Arc<BucketFacts>| match (&claim, bucket.claim()) {
            (Some(claim), _) => self.is_of(bucket, claim),
            (None, Some(of)) if !of.uid.is_empty() => of.uid == key.uid(),
            (None, _) => *bucket.uid == *key.uid() && self.keys_of(bucket).contains(key),
        };
        let is_given = |bucket: &&Arc<BucketFacts>| {
            let claim = claim.as_ref().filter(|_| !bucket.deleting);
            claim.is_some_and(|claim| bucket.is_given_to(claim) && self.is_free(bucket))
        };
        let candidates = || self.candidates(key, claim.as_deref());
        let bucket = candidates().find(is_own).or_else(|| candidates().find(is_given)).cloned();
        let class = claim.as_ref().and_then(|claim| claim.class.as_deref());
        let class = self.class(class.or_else(|| bucket.as_ref()?.class.as_deref()));
        let obstacle = match bucket {
            Some(_) => None,
            None => self.obstacle(key, claim.as_deref(), &class),
        };
        let owner = claim.as_ref().map(|claim| self.owner(claim, bucket.as_deref())).unwrap_or_default();
        let users = bucket.as_ref().map(|bucket| self.users(bucket)).unwrap_or_default();
        let fellows = self.by_account.buckets(claim.as_deref(), bucket.as_deref());
        let fellows = fellows.filter_map(|name| self.buckets.get(name));
        let fellows = fellows.filter(|fellow| self.rules.is_of_this_installation(fellow));
        let fellows =
            fellows.map(|fellow| Fellow { bucket: fellow.clone(), has_claim: self.has_claim(fellow) }).collect();
        let mut facts = Facts {
            claim,
            bucket: bucket.map_or(BucketState::Absent, BucketState::Known),
            obstacle,
            owner,
            users,
            fellows,
            class,
            names: DeliveredNames::of(key.name()),
            secret: Delivered::Absent,
            config_map: Delivered::Absent,
        };
        match (facts.bucket().map(|bucket| bucket.record()), &facts.claim) {
            (Some(Some(record)), _) => facts.names = record.delivered_names(key.name()),
            (None, Some(claim)) => facts.names = facts.wanted_names(claim).unwrap_or(facts.names),
            _ => {}
        }
        let record = facts.bucket().and_then(|bucket| Some((bucket, bucket.record()?)));
        let [secret, config_map] = self.delivered(key.namespace(), &facts.names);
        let secret =
            secret.map_or(Delivered::Absent, |secret| secret.as_secret(key.uid(), record.map(|(_, record)| &**record)));
        let config_map = config_map.map_or(Delivered::Absent, |map| {
            let wanted = record.map(|(bucket, record)| record.config_map(&bucket.endpoint)).unwrap_or_default();
            map.as_config_map(key.uid(), &wanted)
        });
        (facts.secret, facts.config_map) = (secret, config_map);
        facts
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

    /// Whoever had our keys before may have changed anything: a watch that is behind lists again.
    fn stale_reads(&self, _: usize) -> StaleReads {
        if self.rules.safeguards.include(BucketSafeguard::Fresh) { StaleReads::ListAgain } else { StaleReads::Each(0) }
    }
}

pub(crate) fn key_of(claim: &ClaimFacts) -> Key {
    Key::of(&claim.namespace, &claim.name, &claim.uid)
}

/// Whether both name the same bucket, as far as they name one. An ObjectBucket that comes from the backup of another cluster may
/// name a claim of this name.
fn has_its_bucket(bucket: &BucketFacts, claim: &ClaimFacts) -> bool {
    let named = claim.bucket_name.as_deref().filter(|name| !name.is_empty());
    bucket.endpoint.bucket.is_empty() || named.is_none_or(|name| *name == *bucket.endpoint.bucket)
}

/// The claim that the bucket was made for, where it is not the ObjectBucket's own.
fn owner_of(bucket: &BucketFacts) -> Option<&ClaimName> {
    bucket.record()?.owner.as_ref()
}

/// The claim that marks in the backend name.
fn made_for(bucket: &BucketFacts) -> Option<ClaimName> {
    bucket.claim().map(|claim| bucket.made_for(claim)).filter(|claim| !claim.uid.is_empty())
}

/// `namespace/name` of the claim whose bucket a claim asks for.
fn asked_path(claim: &ClaimFacts) -> Option<Box<str>> {
    claim.bucket_claim().map(|name| format!("{}/{name}", claim.namespace).into())
}

/// `namespace/name` of the claims that an ObjectBucket concerns.
fn paths(bucket: &BucketFacts) -> impl Iterator<Item = Box<str>> + use<> {
    let of = bucket.claim().map(|of| format!("{}/{}", of.namespace, of.name).into_boxed_str());
    let given = bucket.adopt_for.clone().filter(|given| of.as_ref() != Some(given));
    of.into_iter().chain(given)
}

#[cfg(test)]
mod tests;
