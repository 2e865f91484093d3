//! The fingerprint of the inputs whose change ends a delay.

use std::hash::Hash;

use provisioner_runtime::fingerprint;

use super::facts::{ClaimFacts, ClassState, Facts, OwnerFacts, RecordState};

/// Returns the fingerprint. It excludes what an attempt writes before it fails, because the write would wake the next
/// attempt immediately.
pub(super) fn inputs(facts: &Facts) -> u64 {
    let claim = facts.claim.as_ref().map(|claim| {
        let name = claim.bucket_name.as_deref().filter(|name| !is_given_by_us(facts, claim, name));
        let unreadable = claim.unreadable.is_some();
        (&claim.class, name, &claim.prefix, &claim.config, &claim.rotation, claim.deleting, unreadable)
    });
    let living = facts.claim.as_ref().filter(|claim| !claim.deleting);
    let made = facts.bucket().filter(|bucket| bucket.record().is_none_or(|record| record.made));
    let made = made.map(|bucket| {
        let protection = living.map(|claim| {
            let names_object = claim.object_bucket.as_deref() == Some(&bucket.name);
            (claim.has_finalizer(), &claim.label, names_object, claim.bucket_name.is_some())
        });
        // In a record, include only fields that attempts never change, and fields that an administrator may have to
        // correct.
        let record = match &bucket.record {
            RecordState::Missing => None,
            RecordState::Unreadable(_) => Some(None),
            RecordState::Present(record) => Some(Some((record.source, &record.owner, &record.parameters))),
        };
        let origin = (&bucket.cluster_id, &bucket.identity, &bucket.provisioner, &bucket.reference);
        let deleted = living.is_some() && bucket.deleting;
        (protection, &bucket.uid, deleted, bucket.policy, record, &bucket.endpoint.bucket, origin)
    });
    let by_hand = facts.bucket().map(|bucket| {
        let deleted = facts.claim.is_none() && bucket.deleting;
        (bucket.abandoned, bucket.adopt_for.as_deref(), deleted, bucket.unreadable.is_some())
    });
    let by_hand = by_hand.unwrap_or_default();
    let class = match &facts.class {
        ClassState::Missing => 0,
        ClassState::Unmanaged => 1,
        ClassState::Ours(class) => class.fingerprint,
    };
    let others = (&facts.obstacle, facts.secret, facts.config_map, of_owner(&facts.owner), &facts.users);
    fingerprint(&(claim, made, by_hand, class, others))
}

fn of_owner(owner: &OwnerFacts) -> impl Hash {
    // The claim becomes bound or ready again after a call that has recreated the bucket, although its ObjectBucket is
    // unchanged. Only newer CustomResourceDefinitions keep conditions.
    let claim = owner.claim.as_ref().map(|claim| {
        let state = (claim.is_bound(), claim.is_ready());
        (&claim.uid, &claim.class, claim.deleting, state)
    });
    let bucket = owner.bucket.as_ref().map(|bucket| {
        // Each successful call recreates a bucket that was deleted from the backend.
        let record = bucket.record().map(|record| (record.made, &record.config, &record.attempted));
        let object = (&bucket.uid, bucket.deleting, bucket.unreadable.is_some(), &bucket.endpoint.bucket);
        (record, object, &bucket.identity, &bucket.cluster_id)
    });
    (claim, bucket)
}

/// Returns true if the claim's bucket name is the name that we write to a claim that names no bucket.
fn is_given_by_us(facts: &Facts, claim: &ClaimFacts, name: &str) -> bool {
    let granted = facts.class.ours().is_some_and(|class| class.bucket.as_deref() == Some(name));
    let shared = facts.owner.bucket.as_ref().is_some_and(|bucket| &*bucket.endpoint.bucket == name);
    granted || shared || claim.generated_name().as_deref() == Some(name)
}
