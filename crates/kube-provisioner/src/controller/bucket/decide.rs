//! Decides what to do for a claim: a pure function over [`Facts`] with every rule about creating, updating, adopting,
//! rotating and removing.

use std::collections::BTreeMap;

use objectbucket_api::names::{object_bucket_name, provisioner_label};

use super::class::allowed_config;
use super::decision::{
    BucketClaimProblem, ChangeWithoutEffect, Decision, NoAction, Reason, Refusal, RefusedConfig, ReleaseMode,
};
use super::delivered_names::{BadName, DeliveredNames};
use super::facts::{BucketFacts, ClaimFacts, ClassState, Delivered, Facts, OurClass, ReclaimPolicy, RecordState};
use super::outcome::NotServed;
use super::record::{Record, Source};
use super::safeguards::{BucketSafeguard, Safeguards};
use crate::bucket::{BucketCapabilities, ClaimName};
use crate::controller::shared::class_parameters::BadParameters;
use crate::controller::shared::names::ProvisionerNames;
use crate::protocol::{BUCKET_CLAIM_NAME, CONFIG_MAP_NAME, SECRET_NAME};

/// The inputs of decisions other than the facts.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) names: ProvisionerNames,
    pub(crate) capabilities: BucketCapabilities,
    /// This installation.
    pub(crate) identity: Box<str>,
    pub(crate) cluster_id: Box<str>,
    /// The keys of `additionalConfig` for claims whose class has no list; `None` allows all keys that the provisioner
    /// knows.
    pub(crate) allowed_config: Option<Vec<String>>,
    /// The keys of `additionalConfig` that the provisioner knows, if its type lists them.
    pub(crate) known_config: Option<Vec<String>>,
    pub(crate) safeguards: Safeguards,
}

pub(crate) fn decide(facts: &Facts, rules: &Rules) -> Decision {
    match &facts.bucket {
        None => without_bucket(facts, rules),
        Some(bucket) => with_bucket(bucket, facts, rules),
    }
}

fn with_bucket(bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Decision {
    if !rules.owns(bucket, &facts.class) {
        return Decision::NoAction(NoAction::OtherProvisioner);
    }
    if let Some(decision) = decide_other_installation(bucket, facts, rules) {
        return decision;
    }
    if bucket.has_only_foreign_finalizers() {
        // The process that let it go may have ended before it released the claim.
        let is_held = facts.claim.as_ref().is_some_and(|claim| claim.deleting && claim.has_finalizer());
        return if is_held { Decision::ReleaseClaim } else { Decision::NoAction(NoAction::ObjectBeingDeleted) };
    }
    if let Some(refusal) = unreadable_bucket(bucket).filter(|_| !(bucket.abandoned && facts.is_ending())) {
        return Decision::Refuse(refusal);
    }
    let Some(claim) = &facts.claim else { return without_claim(bucket, facts, rules) };
    // Without a record, only the class determines whether the bucket was created for the claim. A claim that is being
    // deleted is adopted as well: only its record names the claim that the bucket was created for.
    let is_known = bucket.record().is_some() || facts.class.ours().is_some() || claim.deleting;
    if bucket.is_given_to(claim) && is_known && claim.unreadable.is_none() {
        return Decision::Adopt;
    }
    if claim.deleting {
        return release(bucket, facts, rules);
    }
    if let Some(refusal) = unreadable_claim(claim) {
        return Decision::Refuse(refusal);
    }
    match bucket.record() {
        Some(record) => with_record(record, claim, bucket, facts, rules),
        None if bucket.is_bound() || claim.is_bound() => match facts.class {
            ClassState::Ours(_) => Decision::Adopt,
            // Only the class determines whether the bucket was created for the claim. It may be recreated.
            _ => Decision::NoAction(NoAction::Bound),
        },
        // Another provisioner had begun to create it, and its claim now names us.
        None => attempt(claim, facts, rules, Reason::New),
    }
}

/// Decides about an ObjectBucket whose claim is absent. Its absence does not prove a deletion: our own release marks
/// the ObjectBucket before it removes the claim's finalizer. If the ObjectBucket is not being deleted, it was restored
/// without its claim, or the claim's finalizer was removed manually.
fn without_claim(bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Decision {
    let careful = rules.safeguards.include(BucketSafeguard::Absence);
    let asked = bucket.deleting || bucket.abandoned || !careful;
    match bucket.claim().filter(|claim| !claim.uid.is_empty()) {
        None if bucket.abandoned => Decision::Release(ReleaseMode::Abandon),
        None => Decision::Refuse(Refusal::Unclaimed { object: bucket.name.to_string() }),
        // It may be a copy from another cluster, in which its claim still exists.
        Some(_) if !bucket.abandoned && bucket.record().is_none() && bucket.cluster_id.is_none() && careful => {
            Decision::Refuse(Refusal::NoCluster { object: bucket.name.to_string() })
        }
        Some(_) if asked => release(bucket, facts, rules),
        Some(_) => Decision::Refuse(Refusal::NoClaim { object: bucket.name.to_string() }),
    }
}

/// Leaves a bucket of another cluster or installation alone. The waiting claim or ObjectBucket reports it.
fn decide_other_installation(bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Option<Decision> {
    let (rest, refusal) = match (rules.other_cluster(bucket), bucket.identity.as_deref()) {
        (Some(creator), _) => (NoAction::OtherCluster, Refusal::OtherCluster { creator: creator.to_owned() }),
        (None, Some(creator)) if *creator != *rules.identity => {
            (NoAction::OtherInstallation, Refusal::OtherInstallation { creator: creator.to_owned() })
        }
        (None, _) => return None,
    };
    let waits = match &facts.claim {
        Some(claim) => claim.deleting || !claim.is_bound(),
        None => bucket.deleting || rest == NoAction::OtherCluster,
    };
    Some(if bucket.abandoned && facts.is_ending() {
        Decision::Release(ReleaseMode::Abandon)
    } else if waits {
        Decision::Refuse(refusal)
    } else {
        Decision::NoAction(rest)
    })
}

/// Returns the reason why an ObjectBucket cannot be understood. It still represents a bucket.
fn unreadable_bucket(bucket: &BucketFacts) -> Option<Refusal> {
    if let Some(problem) = &bucket.unreadable {
        return Some(Refusal::Unreadable { kind: "ObjectBucket", problem: problem.to_string() });
    }
    match &bucket.record {
        RecordState::Unreadable(problem) => Some(Refusal::Record(problem.clone())),
        RecordState::Missing | RecordState::Present(_) => None,
    }
}

fn unreadable_claim(claim: &ClaimFacts) -> Option<Refusal> {
    let problem = claim.unreadable.as_ref()?.to_string();
    Some(Refusal::Unreadable { kind: "ObjectBucketClaim", problem })
}

/// Decides about a bucket that we have created or are creating.
fn with_record(record: &Record, claim: &ClaimFacts, bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Decision {
    // A clean-up that has begun must be finished: an ObjectBucket that is being deleted cannot be assigned to the claim
    // again.
    if !record.made && (bucket.is_released() || is_obsolete(record, claim, facts)) {
        return Decision::Release(ReleaseMode::CleanUp);
    }
    if !record.made {
        return attempt(claim, facts, rules, Reason::New);
    }
    let wanted = wanted_names(facts, claim).ok();
    if let Some(kind) = foreign_object_kind(facts, wanted.as_ref()) {
        return Decision::Refuse(Refusal::NotOwned { kind });
    }
    // Bucket and user may have been deleted since the backup that the record or the Secret comes from.
    if record.assigned || facts.secret == Delivered::Unowned {
        return attempt(claim, facts, rules, Reason::Secret);
    }
    if facts.config_map == Delivered::Unowned {
        return Decision::Restore;
    }
    // The Secret contains the key before or after the rotation, and both remain valid.
    if record.new_key.is_some() && facts.secret == Delivered::Intact {
        return Decision::Rotate;
    }
    let is_renamed = wanted.as_ref() != Some(&facts.names);
    if record.config != effective_config(record, claim, facts.is_served()) || !record.attempted.is_empty() || is_renamed
    {
        return attempt(claim, facts, rules, Reason::Config);
    }
    if facts.secret != Delivered::Intact {
        return Decision::Attempt(Reason::Secret);
    }
    if claim.rotation.is_some() && claim.rotation.as_deref() != record.rotation.as_deref() {
        return if rules.capabilities.rotation && !record.keyless {
            Decision::Rotate
        } else if claim.is_ready() == Some(true) {
            Decision::Refuse(Refusal::NoRotation)
        } else {
            settled(claim, bucket, facts, rules)
        };
    }
    match settled(claim, bucket, facts, rules) {
        Decision::NoAction(NoAction::Bound) if record.retire_at.is_some() => Decision::Retire,
        Decision::NoAction(NoAction::Bound) if bucket.deleting => Decision::Refuse(Refusal::ObjectDeleted),
        Decision::NoAction(NoAction::Bound) => match change_without_effect(facts) {
            Some(change) => Decision::Refuse(Refusal::ChangeWithoutEffect(change)),
            None => Decision::NoAction(NoAction::Bound),
        },
        decision => decision,
    }
}

/// Returns how the claim differs from the claim that its bucket was created for, if the difference has no effect.
pub(crate) fn change_without_effect(facts: &Facts) -> Option<ChangeWithoutEffect> {
    let (claim, bucket) = (facts.claim.as_ref()?, facts.bucket()?);
    let record = bucket.record().filter(|record| record.made && facts.is_served())?;
    let made = &*bucket.endpoint.bucket;
    // An earlier attempt, for another class of the same name, may have written the generated name.
    let generated = claim.generated_name();
    let differs = |name: &str| name != made && generated.as_deref() != Some(name);
    if claim.bucket_name.as_deref().is_some_and(differs) && !made.is_empty() {
        return Some(ChangeWithoutEffect::BucketName { bucket: made.to_owned() });
    }
    if let (Some(class), Some(other)) = (&bucket.class, &claim.class)
        && class != other
    {
        let policy = if bucket.policy == Some(ReclaimPolicy::Delete) { "Delete" } else { "Retain" };
        return Some(ChangeWithoutEffect::Class { class: class.to_string(), policy, object: bucket.name.to_string() });
    }
    let names = record.delivered_names(&claim.name);
    let differs = |key: &&&str| {
        let (asked, applied) = (claim.config.get(**key), record.config.get(**key));
        let names_it = asked.is_some_and(|name| match **key {
            SECRET_NAME => *name == names.secret,
            CONFIG_MAP_NAME => *name == names.config_map,
            _ => false,
        });
        asked != applied && !names_it
    };
    fixed_keys(record, facts.is_served()).iter().find(differs).map(|key| ChangeWithoutEffect::Config { key })
}

/// Decides about a bucket that needs no call to the provisioner.
fn settled(claim: &ClaimFacts, bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Decision {
    let is_reported = claim.is_bound() && claim.is_ready() != Some(false) && bucket.is_bound();
    let is_prepared = rules.is_prepared(claim, &bucket.name, Some(&bucket.endpoint.bucket))
        || !rules.safeguards.include(BucketSafeguard::Finalizer);
    let ready = is_reported && is_prepared && facts.config_map == Delivered::Intact;
    if ready { Decision::NoAction(NoAction::Bound) } else { Decision::Restore }
}

fn without_bucket(facts: &Facts, rules: &Rules) -> Decision {
    let Some(claim) = &facts.claim else { return Decision::NoAction(NoAction::Unrelated) };
    if claim.deleting {
        let ours = facts.class.ours().is_some() || rules.has_label(claim.label.as_deref());
        let held = ours && claim.has_finalizer();
        // The bucket may belong to the claim, and would be forgotten with it.
        if let (true, Some(obstacle @ Refusal::UnprovenOwner { .. })) = (held, &facts.obstacle) {
            return Decision::Refuse(obstacle.clone());
        }
        return if held { Decision::ReleaseClaim } else { Decision::NoAction(NoAction::Unrelated) };
    }
    match &facts.class {
        ClassState::Missing => Decision::NoAction(NoAction::ClassMissing),
        ClassState::Unmanaged => Decision::NoAction(NoAction::ForeignClass),
        ClassState::Ours(_) => match unreadable_claim(claim).or_else(|| facts.obstacle.clone()) {
            Some(refusal) => Decision::Refuse(refusal),
            None => attempt(claim, facts, rules, Reason::New),
        },
    }
}

/// Decides to call the provisioner, unless the call can only fail.
fn attempt(claim: &ClaimFacts, facts: &Facts, rules: &Rules, reason: Reason) -> Decision {
    let begun = facts.record();
    if let (None, Some(class)) = (begun, facts.class.ours()) {
        match &class.parameters {
            Err(BadParameters::Invalid(problem)) => return Decision::Refuse(Refusal::Parameters(problem.clone())),
            Err(BadParameters::Crashed(panic)) => return Decision::Refuse(Refusal::ParametersCrash(panic.clone())),
            Ok(_) => {}
        }
        match shared_bucket(claim, class, facts, rules) {
            Err(refusal) => return Decision::Refuse(refusal),
            Ok(Some(_)) => {}
            Ok(None) => match bucket_name(claim, class) {
                None => return Decision::Refuse(Refusal::NoName),
                // An existing bucket already has its name.
                Some(name) if class.bucket.is_none() => {
                    if let Some(problem) = name_problem(&name) {
                        return Decision::Refuse(Refusal::BadName { name, problem });
                    }
                }
                Some(_) => {}
            },
        }
    }
    let recorded = match facts.class.ours() {
        Some(_) => None,
        None => begun.and_then(|record| allowed_config(record.parameters.as_ref()?)),
    };
    let of_class = facts.class.ours().and_then(|class| class.allowed_config.as_ref());
    if let Some(allowed) = of_class.or(recorded.as_ref()).or(rules.allowed_config.as_ref()) {
        let applied = begun.filter(|record| record.made).map(|record| &record.config);
        let is_new =
            |(key, value): &(&String, &String)| applied.is_none_or(|applied| applied.get(*key) != Some(*value));
        let asked =
            begun.map_or_else(|| claim.config.clone(), |record| effective_config(record, claim, facts.is_served()));
        let asked = asked.iter().filter(is_new).map(|(key, _)| key);
        let refused: Vec<String> = asked.filter(|key| !allowed.contains(key)).cloned().collect();
        if !refused.is_empty() {
            let is_known = |key| rules.known_config.as_ref().is_none_or(|known| known.contains(key));
            let are_known = refused.iter().all(is_known);
            let refused = RefusedConfig { keys: refused, allowed: allowed.clone(), are_known };
            return Decision::Refuse(Refusal::ConfigNotAllowed(refused));
        }
    }
    let wanted = match wanted_names(facts, claim) {
        Ok(wanted) => wanted,
        Err(BadName { kind, name }) => return Decision::Refuse(Refusal::BadObjectName { kind, name }),
    };
    if let Some(kind) = foreign_object_kind(facts, Some(&wanted)) {
        return Decision::Refuse(Refusal::NotOwned { kind });
    }
    Decision::Attempt(reason)
}

/// Returns which of the claim's names is used by a foreign object, unless the claim now requests another name.
fn foreign_object_kind(facts: &Facts, wanted: Option<&DeliveredNames>) -> Option<&'static str> {
    let stays = |kind| wanted.is_none_or(|wanted| wanted.of_kind(kind) == facts.names.of_kind(kind));
    let states = [("Secret", facts.secret), ("ConfigMap", facts.config_map)];
    let found = states.into_iter().find(|(kind, state)| *state == Delivered::Unmanaged && stays(kind));
    found.map(|(kind, _)| kind)
}

/// Decides about a release. A bucket is kept until the other claims that use it are deleted.
fn release(bucket: &BucketFacts, facts: &Facts, rules: &Rules) -> Decision {
    let release_mode = release_mode(bucket, facts);
    let is_used = !facts.users.is_empty() && rules.safeguards.include(BucketSafeguard::Shared);
    if is_used && release_mode != ReleaseMode::Abandon {
        Decision::Refuse(Refusal::InUse { by: facts.users.iter().map(ToString::to_string).collect() })
    } else {
        Decision::Release(release_mode)
    }
}

fn release_mode(bucket: &BucketFacts, facts: &Facts) -> ReleaseMode {
    if bucket.abandoned {
        return ReleaseMode::Abandon;
    }
    let source = match (bucket.record(), &facts.class) {
        (Some(record), _) => record.source,
        (None, ClassState::Ours(class)) => class.source(),
        (None, _) => Source::Unknown,
    };
    // A bucket of another provisioner is bound, or cannot be identified.
    if let Some(record) = bucket.record().filter(|record| !record.made && source != Source::Unknown) {
        // A claim that was removed by force may have been bound.
        let may_have_data = facts.claim.as_ref().is_none_or(|claim| was_bound(record, claim));
        let is_kept = may_have_data && bucket.policy != Some(ReclaimPolicy::Delete);
        return if is_kept { ReleaseMode::Revoke } else { ReleaseMode::CleanUp };
    }
    match (source, bucket.policy) {
        (Source::Unknown, _) => ReleaseMode::RevokeUnknown,
        (Source::Provisioned, Some(ReclaimPolicy::Delete)) => ReleaseMode::Delete,
        (Source::Provisioned | Source::Granted, _) => ReleaseMode::Revoke,
    }
}

/// Returns the name of a new claim's bucket. It is the same in every attempt.
pub(crate) fn bucket_name(claim: &ClaimFacts, class: &OurClass) -> Option<String> {
    if let Some(name) = class.bucket.as_deref().or(claim.bucket_name.as_deref()) {
        return Some(name.to_owned());
    }
    claim.generated_name()
}

/// Checks the rules for names of S3 buckets:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>.
fn name_problem(name: &str) -> Option<&'static str> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    if !(3..=63).contains(&bytes.len()) {
        return Some("it must have 3 to 63 characters");
    }
    if !bytes.iter().all(|byte| letter(*byte) || b".-".contains(byte)) {
        return Some("it may have lower case letters, digits, `-` and `.` only");
    }
    if !letter(bytes[0]) || !letter(bytes[bytes.len() - 1]) {
        return Some("it must begin and end with a lower case letter or a digit");
    }
    if name.contains("..") || name.contains(".-") || name.contains("-.") {
        return Some("a `.` must be between letters or digits");
    }
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return Some("it must not look like an IP address");
    }
    None
}

impl Rules {
    /// Returns true if an ObjectBucket belongs to this provisioner.
    pub(crate) fn owns(&self, bucket: &BucketFacts, class: &ClassState) -> bool {
        match (&bucket.provisioner, &bucket.label) {
            (Some(provisioner), _) => self.names.include(provisioner),
            (None, Some(label)) => self.has_label(Some(label)),
            (None, None) => class.ours().is_some(),
        }
    }

    /// Returns true if the claim has our finalizer and label and names its ObjectBucket, and its bucket if that has a
    /// final name.
    pub(crate) fn is_prepared(&self, claim: &ClaimFacts, object: &str, bucket: Option<&str>) -> bool {
        let is_named = bucket.is_none_or(|bucket| match claim.bucket_claim() {
            Some(_) => claim.bucket_name.as_deref() == Some(bucket),
            None => claim.bucket_name.is_some(),
        });
        let is_ours = claim.has_finalizer() && self.has_label(claim.label.as_deref());
        is_ours && claim.object_bucket.as_deref() == Some(object) && is_named
    }

    /// Returns true if the claim's class is reported: no other provisioner works on the claim.
    pub(crate) fn should_report(&self, why: NotServed, facts: &Facts) -> bool {
        facts.claim.as_ref().is_some_and(|claim| match why {
            NotServed::NoClass => claim.is_untouched() || !claim.is_bound() && self.has_label(claim.label.as_deref()),
            NotServed::ForeignClass => claim.is_untouched(),
        })
    }

    /// Returns true if a claim is present. An unreadable claim is present.
    pub(crate) fn is_present(&self, claim: &ClaimFacts) -> bool {
        claim.unreadable.is_none() || self.safeguards.include(BucketSafeguard::Unreadable)
    }

    /// Returns the cluster in which an ObjectBucket was created, if it is another one.
    pub(crate) fn other_cluster<'a>(&self, bucket: &'a BucketFacts) -> Option<&'a str> {
        let other = bucket.cluster_id.as_deref().filter(|id| **id != *self.cluster_id);
        other.filter(|_| self.safeguards.include(BucketSafeguard::Cluster))
    }

    /// Returns true if an ObjectBucket belongs neither to another cluster nor to another installation.
    pub(crate) fn is_of_this_installation(&self, bucket: &BucketFacts) -> bool {
        self.other_cluster(bucket).is_none() && bucket.identity.as_deref().is_none_or(|id| *id == *self.identity)
    }

    fn has_label(&self, label: Option<&str>) -> bool {
        label.is_some_and(|label| self.names.all().any(|name| provisioner_label(name) == label))
    }
}

impl OurClass {
    /// Returns the source of the buckets of its claims.
    pub(crate) fn source(&self) -> Source {
        if self.bucket.is_some() { Source::Granted } else { Source::Provisioned }
    }
}

/// Returns the name of a new claim's ObjectBucket: the usual one in this API, unless another object already has it.
pub(crate) fn object_name(claim: &ClaimFacts, is_taken: impl FnOnce(&str) -> bool) -> String {
    let usual = object_bucket_name(&claim.namespace, &claim.name);
    if usual.len() <= 253 && !is_taken(&usual) { usual } else { format!("obc-{}", claim.uid) }
}

/// Returns the names that the claim's Secret and ConfigMap should have. They are fixed once the claim is served. If the
/// class is recorded, its recorded parameters apply.
pub(crate) fn wanted_names(facts: &Facts, claim: &ClaimFacts) -> Result<DeliveredNames, BadName> {
    let record = facts.record();
    if let Some(record) = record.filter(|record| record.made && facts.is_served()) {
        return Ok(record.delivered_names(&claim.name));
    }
    let of_class = || facts.class.ours().map(|class| &*class.texts);
    let class = record.map_or_else(of_class, |record| record.parameters.as_ref());
    DeliveredNames::wanted(claim.template_names(), &claim.config, class)
}

/// Returns the claim's `additionalConfig`, with the recorded values of keys that can no longer change.
pub(crate) fn effective_config(record: &Record, claim: &ClaimFacts, is_served: bool) -> BTreeMap<String, String> {
    let mut config = claim.config.clone();
    for key in fixed_keys(record, is_served).iter().copied() {
        match record.config.get(key) {
            Some(recorded) => config.insert(key.to_owned(), recorded.clone()),
            None => config.remove(key),
        };
    }
    config
}

/// Returns the keys of `additionalConfig` whose changes no longer have an effect.
fn fixed_keys(record: &Record, is_served: bool) -> &'static [&'static str] {
    match (record.made, is_served) {
        (false, _) => &[],
        (true, false) => &[BUCKET_CLAIM_NAME],
        (true, true) => &[BUCKET_CLAIM_NAME, SECRET_NAME, CONFIG_MAP_NAME],
    }
}

/// A bucket of another claim that a new claim shares.
pub(crate) struct SharedBucket {
    /// The claim that the bucket was created for.
    pub(crate) owner: ClaimName,
    pub(crate) bucket: String,
    /// The parameters of the class that the bucket was created with.
    pub(crate) parameters: Option<BTreeMap<String, String>>,
}

/// Returns the bucket that a new claim shares; `None` for a claim that requests its own.
pub(crate) fn shared_bucket(
    claim: &ClaimFacts,
    class: &OurClass,
    facts: &Facts,
    rules: &Rules,
) -> Result<Option<SharedBucket>, Refusal> {
    let Some(name) = claim.bucket_claim() else { return Ok(None) };
    // A bucket keeps its class, whatever its claim names later.
    let of_bucket = facts.owner.bucket.as_ref().and_then(|bucket| bucket.class.as_deref());
    let class_of = |owner: &ClaimFacts| of_bucket.or(owner.class.as_deref()).unwrap_or_default().to_owned();
    let found = match (&facts.owner.claim, &facts.owner.bucket) {
        _ if name == &*claim.name => Err(BucketClaimProblem::SameClaim),
        _ if class.bucket.is_some() => Err(BucketClaimProblem::ClassNamesBucket),
        (None, _) => Err(BucketClaimProblem::Missing),
        (Some(owner), _) if class_of(owner) != *class.name => {
            Err(BucketClaimProblem::OtherClass { class: class_of(owner) })
        }
        (Some(owner), _) if owner.deleting => Err(BucketClaimProblem::Deleting),
        (Some(_), None) => Err(BucketClaimProblem::NotBound),
        (Some(_), Some(bucket)) => shareable_bucket(claim, bucket, rules),
    };
    found.map(Some).map_err(|problem| Refusal::BucketClaim { claim: name.to_owned(), problem })
}

fn shareable_bucket(
    claim: &ClaimFacts,
    bucket: &BucketFacts,
    rules: &Rules,
) -> Result<SharedBucket, BucketClaimProblem> {
    if bucket.deleting {
        return Err(BucketClaimProblem::Deleting);
    }
    // A bucket of another cluster or installation must not be shared.
    let is_ours = rules.is_of_this_installation(bucket);
    let record = bucket.record().filter(|record| record.made && is_ours && bucket.unreadable.is_none());
    let (Some(record), Some(owner)) = (record, bucket.claim()) else { return Err(BucketClaimProblem::NotBound) };
    if record.source != Source::Provisioned {
        return Err(BucketClaimProblem::NotBucketOwner);
    }
    let name = &*bucket.endpoint.bucket;
    // An earlier attempt has recorded the bucket that the other claim had then.
    let is_named_by_user = claim.object_bucket.is_none();
    if is_named_by_user && claim.bucket_name.as_deref().is_some_and(|wanted| wanted != name) {
        return Err(BucketClaimProblem::OtherName { bucket: name.to_owned() });
    }
    let (owner, parameters) = (bucket.created_for(owner), record.parameters.clone());
    Ok(SharedBucket { owner, bucket: name.to_owned(), parameters })
}

/// Returns true if an unfinished attempt cannot succeed: the bucket is being deleted, or the claim no longer requests
/// it.
fn is_obsolete(record: &Record, claim: &ClaimFacts, facts: &Facts) -> bool {
    let has_leaving_claim = |bucket: &BucketFacts| {
        let owner = facts.owner.claim.as_ref().filter(|owner| owner.deleting);
        owner.is_some_and(|owner| bucket.claim().is_some_and(|of| *of.uid == *owner.uid))
    };
    let is_being_deleted =
        || facts.owner.bucket.as_ref().is_none_or(|bucket| bucket.deleting || has_leaving_claim(bucket));
    requests_other_claim(record, claim) && !was_bound(record, claim) || record.owner.is_some() && is_being_deleted()
}

/// Returns true if an unfinished attempt recreates the lost ObjectBucket of a bound claim, whose bucket may contain
/// data.
fn was_bound(record: &Record, claim: &ClaimFacts) -> bool {
    claim.is_bound() && record.source == Source::Provisioned
}

/// Returns true if the claim names another claim than when its bucket was created.
fn requests_other_claim(record: &Record, claim: &ClaimFacts) -> bool {
    claim.bucket_claim() != record.owner.as_ref().map(|owner| owner.name.as_str())
}
