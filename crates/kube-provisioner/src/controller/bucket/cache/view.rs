//! The control loop's view of the cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use objectbucket_api::names::object_bucket_name;
use provisioner_runtime::controller::{Cache, StaleReads};

use super::{BucketCache, key_of, owner_of, requested_claim_path};
use crate::bucket::ClaimName;
use crate::controller::bucket::decide::{decide, wanted_names};
use crate::controller::bucket::decision::{Decision, NoAction, Refusal};
use crate::controller::bucket::delivered::config_map_entries;
use crate::controller::bucket::delivered_names::DeliveredNames;
use crate::controller::bucket::facts::{
    BucketFacts, ClaimFacts, ClassState, Delivered, Facts, OwnerFacts, RecordState,
};
use crate::controller::bucket::inputs::inputs;
use crate::controller::bucket::key::Key;
use crate::controller::bucket::outcome::NotServed;
use crate::controller::bucket::safeguards::BucketSafeguard;

impl Cache for BucketCache {
    type Key = Key;
    type Facts = Facts;

    fn facts(&self, key: &Key) -> Facts {
        let claim = self.claims.get(key).cloned();
        let is_own = |bucket: &&Arc<BucketFacts>| match (&claim, bucket.claim()) {
            (Some(claim), _) => self.belongs_to(bucket, claim),
            (None, Some(of)) if !of.uid.is_empty() => of.uid == key.uid(),
            (None, _) => *bucket.uid == *key.uid() && self.keys_of(bucket).contains(key),
        };
        let is_given = |bucket: &&Arc<BucketFacts>| {
            let claim = claim.as_ref().filter(|_| !bucket.deleting);
            claim.is_some_and(|claim| bucket.is_given_to(claim) && self.is_unclaimed(bucket))
        };
        let candidates = || self.candidates(key, claim.as_deref());
        let own = candidates().find(is_own);
        let is_bound_to_it =
            own.is_some_and(|bucket| bucket.is_bound()) || claim.as_ref().is_some_and(|claim| claim.is_bound());
        let bucket = own.or_else(|| candidates().find(is_given)).cloned();
        // A bucket keeps the settings of the class that it was created with. Users can edit the class of a bound claim.
        let of_bucket = bucket.as_ref().filter(|bucket| match bucket.record() {
            Some(record) => record.made,
            None => is_bound_to_it,
        });
        let class = of_bucket.and_then(|bucket| bucket.class.as_deref());
        let class = class.or_else(|| claim.as_ref()?.class.as_deref());
        let class = self.class(class.or_else(|| bucket.as_ref()?.class.as_deref()));
        let obstacle = match bucket {
            Some(_) => None,
            None => self.obstacle(key, claim.as_deref(), &class),
        };
        let owner = claim.as_ref().map(|claim| self.owner(claim, bucket.as_deref())).unwrap_or_default();
        // List the users only if they matter, because each change of a user reads the facts about the owner.
        let ends = claim.as_ref().is_none_or(|claim| claim.deleting);
        let users = bucket.as_ref().filter(|_| ends).map(|bucket| self.users(bucket)).unwrap_or_default();
        let mut facts = Facts {
            claim,
            bucket,
            obstacle,
            owner,
            users,
            class,
            names: DeliveredNames::of(key.name()),
            secret: Delivered::Absent,
            config_map: Delivered::Absent,
        };
        match (facts.bucket().map(|bucket| bucket.record()), &facts.claim) {
            (Some(Some(record)), _) => facts.names = record.delivered_names(key.name()),
            (None, Some(claim)) => facts.names = wanted_names(&facts, claim).unwrap_or(facts.names),
            _ => {}
        }
        let record = facts.bucket().and_then(|bucket| Some((bucket, bucket.record()?)));
        let [secret, config_map] = self.delivered(key.namespace(), &facts.names);
        let secret =
            secret.map_or(Delivered::Absent, |secret| secret.as_secret(key.uid(), record.map(|(_, record)| record)));
        let config_map = config_map.map_or(Delivered::Absent, |map| {
            let wanted =
                record.map(|(bucket, record)| config_map_entries(record, &bucket.endpoint)).unwrap_or_default();
            map.as_config_map(key.uid(), &wanted)
        });
        (facts.secret, facts.config_map) = (secret, config_map);
        facts
    }

    fn inputs(&self, key: &Key) -> u64 {
        inputs(&self.facts(key))
    }

    fn unsettled(&self, among: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        let mut keys: BTreeSet<Key> = self.claims.iter().map(|(key, _)| key.clone()).collect();
        keys.extend(self.buckets.iter().flat_map(|(_, bucket)| self.keys_of(bucket)));
        let needs_work = |key: &Key| {
            let facts = self.facts(key);
            match decide(&facts, &self.rules) {
                // Its key is verified periodically.
                Decision::NoAction(NoAction::Bound) => facts.has_key(),
                // Its user is notified after some time.
                Decision::NoAction(NoAction::ClassMissing) => self.rules.should_report(NotServed::NoClass, &facts),
                Decision::NoAction(NoAction::ForeignClass) => self.rules.should_report(NotServed::ForeignClass, &facts),
                Decision::NoAction(_) => false,
                _ => true,
            }
        };
        keys.into_iter().filter(|key| among(key) && needs_work(key)).collect()
    }

    /// Another replica may have worked on our keys before, so a watch that is behind lists again.
    fn stale_reads(&self, _: usize) -> StaleReads {
        if self.rules.safeguards.include(BucketSafeguard::Fresh) { StaleReads::ListAgain } else { StaleReads::Each(0) }
    }
}

impl BucketCache {
    pub(super) fn class(&self, name: Option<&str>) -> ClassState {
        match name.and_then(|name| self.classes.get(name)) {
            None => ClassState::Missing,
            Some(None) => ClassState::Unmanaged,
            Some(Some(class)) => ClassState::Ours(class.clone()),
        }
    }

    /// Returns the ObjectBuckets of claims of this name, and the one that the claim points at.
    fn candidates<'a>(
        &'a self,
        key: &'a Key,
        claim: Option<&'a ClaimFacts>,
    ) -> impl Iterator<Item = &'a Arc<BucketFacts>> + use<'a> {
        let named = self.buckets_by_claim.get(key.path()).into_iter().flatten();
        let pointed = claim.and_then(|claim| claim.object_bucket.as_deref());
        let unclaimed = key.path().strip_prefix('/');
        named.map(|name| &**name).chain(pointed).chain(unclaimed).filter_map(|name| self.buckets.get(name))
    }

    /// Returns true if the ObjectBucket represents this claim's bucket.
    fn belongs_to(&self, bucket: &BucketFacts, claim: &ClaimFacts) -> bool {
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
            // A damaged object that may be the claim's belongs to no other claim.
            None if bucket.unreadable.is_some() || matches!(bucket.record, RecordState::Unreadable(_)) => points,
            None => points && self.is_named_after(bucket, claim) && has_its_bucket(bucket, claim),
        }
    }

    /// Returns true if an ObjectBucket of another provisioner that names no claim can only belong to this claim: it has
    /// the name that all provisioners give to the claim's ObjectBucket, no other claim would use the same name, and it
    /// was created after the claim. Tenants choose what a claim points at, but not when it was created.
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

    /// Returns true if the ObjectBucket belongs to no claim.
    fn is_unclaimed(&self, bucket: &BucketFacts) -> bool {
        let of = bucket.claim().map(|of| Key::of(&of.namespace, &of.name, &of.uid));
        of.is_none_or(|key| self.claims.get(&key).is_none())
    }

    /// Returns the obstacle that prevents a claim without an ObjectBucket from receiving one.
    fn obstacle(&self, key: &Key, claim: Option<&ClaimFacts>, class: &ClassState) -> Option<Refusal> {
        let (mut left, mut former) = (None, false);
        for other in self.candidates(key, None).filter(|other| self.rules.owns(other, class)) {
            if other.claim().is_none_or(|of| of.uid.is_empty() || of.uid == key.uid()) {
                continue;
            }
            if let Some(creator) = self.rules.other_cluster(other) {
                return Some(Refusal::OtherCluster { creator: creator.to_owned() });
            }
            if other.deleting || !self.rules.safeguards.include(BucketSafeguard::Absence) {
                former = true;
            } else {
                left = Some(other.name.to_string());
            }
        }
        let unproven = || {
            let claim = claim?;
            // An unreadable claim does not say where it points, which is probably the usual name.
            let usual = claim.unreadable.as_ref().map(|_| object_bucket_name(&claim.namespace, &claim.name));
            let pointed = self.buckets.get(claim.object_bucket.as_deref().or(usual.as_deref())?)?;
            let may_be_ours = usual.is_some() || self.rules.owns(pointed, class);
            let proven = pointed.claim().is_some_and(|of| !of.uid.is_empty());
            Some(pointed).filter(|_| !proven && may_be_ours)
        };
        match left {
            _ if former => Some(Refusal::FormerBucket),
            Some(object) => Some(Refusal::OrphanedBucket { object }),
            None => unproven().map(|other| Refusal::UnprovenOwner { object: other.name.to_string() }),
        }
    }

    /// Returns the claim whose bucket this one uses or requests.
    fn owner(&self, claim: &ClaimFacts, bucket: Option<&BucketFacts>) -> OwnerFacts {
        let recorded = bucket.and_then(owner_of);
        let path = recorded.map(|owner| owner.to_string().into_boxed_str()).or_else(|| requested_claim_path(claim));
        let Some(path) = path else { return OwnerFacts::default() };
        let claim = self.by_path.get(&path).and_then(|key| self.claims.get(key)).cloned();
        let is_its = |bucket: &&Arc<BucketFacts>| match (recorded, &claim) {
            (Some(owner), _) => created_for(bucket).is_some_and(|claim| claim.uid == owner.uid),
            (None, Some(claim)) => self.belongs_to(bucket, claim),
            (None, None) => false,
        };
        let pointed = claim.as_ref().and_then(|claim| claim.object_bucket.as_deref());
        let named = self.buckets_by_claim.get(&path).into_iter().flatten().map(|name| &**name);
        let bucket = named.chain(pointed).filter_map(|name| self.buckets.get(name)).find(is_its).cloned();
        OwnerFacts { claim, bucket }
    }

    fn users(&self, bucket: &BucketFacts) -> Vec<ClaimName> {
        let created_for = created_for(bucket).filter(|_| owner_of(bucket).is_none());
        let using = created_for.and_then(|claim| self.buckets_by_owner.get(&*claim.uid)).into_iter().flatten();
        let users = using.filter_map(|name| self.buckets.get(name)).filter(|user| !user.has_only_foreign_finalizers());
        users.filter_map(|user| user.claim()).collect()
    }
}

/// Returns true unless both name different buckets. An ObjectBucket that comes from the backup of another cluster may
/// name a claim of this name.
fn has_its_bucket(bucket: &BucketFacts, claim: &ClaimFacts) -> bool {
    let named = claim.bucket_name.as_deref().filter(|name| !name.is_empty());
    bucket.endpoint.bucket.is_empty() || named.is_none_or(|name| *name == *bucket.endpoint.bucket)
}

/// Returns the claim that the marks in the backend name.
fn created_for(bucket: &BucketFacts) -> Option<ClaimName> {
    bucket.claim().map(|claim| bucket.created_for(claim)).filter(|claim| !claim.uid.is_empty())
}
