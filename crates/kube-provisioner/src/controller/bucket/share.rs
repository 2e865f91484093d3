//! One bucket for several claims of a namespace: the first one's bucket, with a user for each.
//!
//! The ObjectBucket of a claim that uses the bucket of another one names that one as its owner before the author's code is called,
//! and the owner's deletion waits while there is such an ObjectBucket. Either may be written first: who writes second reads what
//! the other one wrote, so one of the two gives way. See `act/share.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use provisioner_runtime::controller::catch_panic;

use super::backend::BucketBackend;
use super::decide::Rules;
use super::decision::Refusal;
use super::facts::{BucketFacts, ClaimFacts, Facts, OurClass};
use super::record::{Record, Source};
use crate::bucket::ClaimName;
use crate::protocol::{BUCKET_CLAIM_NAME, CONFIG_MAP_NAME, SECRET_NAME};

/// The keys of `additionalConfig` that no author gets.
const OF_CONTROLLER: [&str; 3] = [BUCKET_CLAIM_NAME, SECRET_NAME, CONFIG_MAP_NAME];

/// A bucket of another claim that a new claim gets.
pub(crate) struct SharedBucket {
    /// The claim that the bucket was made for.
    pub(crate) owner: ClaimName,
    pub(crate) bucket: String,
    /// The parameters of the class that the bucket was made with.
    pub(crate) parameters: Option<BTreeMap<String, String>>,
}

/// Why a claim does not get the bucket of the claim that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BucketClaimProblem {
    /// There is no such claim.
    Missing,
    /// It has no bucket yet.
    NotBound,
    /// It is being deleted.
    Deleting,
    /// It is the claim itself.
    Itself,
    /// The bucket was not made for it.
    NotItsOwn,
    /// It has another class.
    OtherClass {
        /// Its class.
        class: String,
    },
    /// The class names a bucket.
    OfClass,
    /// The claim gives another name to its bucket.
    OtherName {
        /// The bucket's name.
        bucket: String,
    },
}

/// The bucket that a new claim shares; `None` for a claim that wants one of its own.
pub(crate) fn shared_bucket(
    claim: &ClaimFacts,
    class: &OurClass,
    facts: &Facts,
    rules: &Rules,
) -> Result<Option<SharedBucket>, Refusal> {
    let Some(name) = claim.bucket_claim() else { return Ok(None) };
    let found = match (&facts.owner.claim, &facts.owner.bucket) {
        _ if name == &*claim.name => Err(BucketClaimProblem::Itself),
        _ if class.bucket.is_some() => Err(BucketClaimProblem::OfClass),
        (None, _) => Err(BucketClaimProblem::Missing),
        (Some(owner), _) if owner.class != claim.class => {
            Err(BucketClaimProblem::OtherClass { class: owner.class.as_deref().unwrap_or_default().to_owned() })
        }
        (Some(owner), _) if owner.deleting => Err(BucketClaimProblem::Deleting),
        (Some(_), None) => Err(BucketClaimProblem::NotBound),
        (Some(_), Some(bucket)) => usable(claim, bucket, rules),
    };
    found.map(Some).map_err(|problem| Refusal::BucketClaim { claim: name.to_owned(), problem })
}

fn usable(claim: &ClaimFacts, bucket: &Arc<BucketFacts>, rules: &Rules) -> Result<SharedBucket, BucketClaimProblem> {
    if bucket.deleting {
        return Err(BucketClaimProblem::Deleting);
    }
    // Another cluster's, or another installation's, is not ours to give.
    let is_ours = rules.is_of_this_installation(bucket);
    let record = bucket.record().filter(|record| record.made && is_ours && bucket.unreadable.is_none());
    let (Some(record), Some(owner)) = (record, bucket.claim()) else { return Err(BucketClaimProblem::NotBound) };
    if record.source != Some(Source::Provisioned) {
        return Err(BucketClaimProblem::NotItsOwn);
    }
    let name = &*bucket.endpoint.bucket;
    // An earlier attempt has named the bucket that the other claim had then.
    let is_named_by_user = claim.object_bucket.is_none();
    if is_named_by_user && claim.bucket_name.as_deref().is_some_and(|wanted| wanted != name) {
        return Err(BucketClaimProblem::OtherName { bucket: name.to_owned() });
    }
    let (owner, parameters) = (bucket.made_for(owner), record.parameters.clone());
    Ok(SharedBucket { owner, bucket: name.to_owned(), parameters })
}

/// The keys of `additionalConfig` that claims can use. A crash of the author's code is reported when it reads a claim.
pub(crate) fn known_config(backend: &dyn BucketBackend) -> Option<Vec<String>> {
    let of_author = catch_panic(|| backend.keys()[1]).ok()??;
    Some(of_author.iter().copied().chain(OF_CONTROLLER).map(str::to_owned).collect())
}

/// The texts of `additionalConfig` that are the author's.
pub(crate) fn of_author(config: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let texts = config.iter().filter(|(key, _)| !OF_CONTROLLER.contains(&key.as_str()));
    texts.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether an unfinished attempt cannot come to its end: the bucket is going, or the claim does not ask for it any more.
pub(crate) fn is_over(record: &Record, claim: &ClaimFacts, facts: &Facts) -> bool {
    let has_leaving_claim = |bucket: &BucketFacts| {
        let owner = facts.owner.claim.as_ref().filter(|owner| owner.deleting);
        owner.is_some_and(|owner| bucket.claim().is_some_and(|of| *of.uid == *owner.uid))
    };
    let is_going = || facts.owner.bucket.as_ref().is_none_or(|bucket| bucket.deleting || has_leaving_claim(bucket));
    asks_for_another(record, claim) || record.owner.is_some() && is_going()
}

/// Whether the claim names another claim than when its bucket was made.
fn asks_for_another(record: &Record, claim: &ClaimFacts) -> bool {
    claim.bucket_claim() != record.owner.as_ref().map(|owner| owner.name.as_str())
}
