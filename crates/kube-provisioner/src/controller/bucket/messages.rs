//! The table of messages for users: the event and the claim's status for each outcome. It contains all texts for users,
//! which say what is wrong and what to do about it.

use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, JournalError};

use super::decide::change_without_effect;
use super::decision::{BucketClaimProblem, ChangeWithoutEffect, Refusal, RefusedConfig, ReleaseMode};
use super::delivered_names::keys;
use super::facts::Facts;
use super::outcome::{Done, NotServed, Outcome, Stopped};
use crate::controller::shared::texts::{
    call_failed_text, gave_up_deletion_text, gave_up_text, limited, listed, no_answer_text, sentence,
};
use crate::error::{DeleteVerdict, ProvisionVerdict};
use crate::parameters::{nearest, printable, quoted, suggestion_text};
use crate::protocol;

/// The meaning of an outcome for the claim's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UserMessage {
    /// The event's reason and the reason of the condition `Ready`.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    pub(crate) severity: Severity,
    /// The state for the status; `None` leaves it unchanged.
    pub(crate) state: Option<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Only in the status.
    Silent,
    Normal,
    Warning,
}

/// The state in a claim's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bound,
    /// The operation may succeed without any change.
    Pending,
    /// The operation needs a change to succeed.
    Failed,
    /// The claim is being deleted.
    Deleting,
    /// The claim's bucket was removed, and only foreign finalizers keep the claim.
    Released,
}

/// The condition `Ready` of every usable bucket.
const USABLE: (&str, &str) = ("Bound", "The bucket can be used");

impl UserMessage {
    /// Returns reason and message of the condition `Ready`, for a status with this message.
    pub(crate) fn ready(&self) -> (&'static str, &str) {
        if self.state == Some(State::Bound) { USABLE } else { (self.reason, &self.text) }
    }
}

/// Returns the message for an outcome. `gave_up` is the number of attempts, if this was the last one until something
/// changes.
pub(crate) fn user_message(
    outcome: &Outcome,
    facts: &Facts,
    provisioner: &str,
    gave_up: Option<u32>,
) -> Option<UserMessage> {
    let mut message = message_once(outcome, facts, provisioner)?;
    if matches!(outcome, Err(Stopped::NotProvisioned { .. } | Stopped::NotReleased { .. }))
        && let Some(object) = pinned_to_former_class(facts)
    {
        message.text = pinned_text(&message.text, object);
    }
    let Some(attempts) = gave_up else { return Some(message) };
    Some(match message.state {
        Some(State::Deleting) => UserMessage { text: gave_up_deletion_text(&message.text, attempts), ..message },
        _ => UserMessage { text: gave_up_text(&message.text, attempts), state: Some(State::Failed), ..message },
    })
}

/// Returns the ObjectBucket of an unfinished attempt that uses other parameters than its class has now.
fn pinned_to_former_class(facts: &Facts) -> Option<&str> {
    let bucket = facts.bucket()?;
    let record = bucket.record().filter(|record| !record.made)?;
    let parameters = record.parameters.as_ref();
    let class = facts.class.ours();
    let differs = class.is_none_or(|class| parameters.is_some_and(|recorded| *recorded != *class.texts));
    differs.then_some(&*bucket.name)
}

/// Returns the text of such an attempt.
pub(crate) fn pinned_text(text: &str, object: &str) -> String {
    format!(
        "{text} (this attempt keeps the StorageClass parameters that it began with, because a bucket may exist in that backend; if that backend no longer exists, delete the claim, and ask an administrator to run: {})",
        abandon_hint(object)
    )
}

fn message_once(outcome: &Outcome, facts: &Facts, provisioner: &str) -> Option<UserMessage> {
    let stopped = match outcome {
        Ok(done) => return message_of(done, facts, provisioner),
        Err(stopped) => stopped,
    };
    Some(match stopped {
        Stopped::Changed | Stopped::ClaimGone | Stopped::AwaitsPermit(_) => return None,
        Stopped::ProvisionAborted { aborted: CallAborted::Fenced, .. }
        | Stopped::RotationAborted { aborted: CallAborted::Fenced, .. }
        | Stopped::ReleaseAborted { aborted: CallAborted::Fenced, .. } => return None,
        Stopped::NotFenced(JournalError::Call(error)) if !error.is_transient() => not_fenced(error, facts),
        // Another replica continues.
        Stopped::NotFenced(_) => return None,
        Stopped::CallFailed { error, .. } if error.is_transient() => return None,
        Stopped::Refused(refusal) => refused(refusal, facts, provisioner),
        Stopped::NotServed(why) => not_served(*why, facts.class_name()),
        Stopped::NotOwned { kind, name } => not_owned(kind, name, facts),
        Stopped::BadConfig { problem, known } => {
            let text = format!("The claim's additionalConfig cannot be used: {problem}; correct the claim")
                .replace("parameter \"", "key \"");
            let keys = known.iter().map(|key| quoted(key)).collect::<Vec<_>>().join(", ");
            let text = if known.is_empty() { text } else { format!("{text}; the keys are {keys}") };
            warning("InvalidConfig", text, State::Failed)
        }
        Stopped::BadRecord(problem) => {
            let text = format!(
                "The provisioner cannot use the class parameters that the annotation {} of the claim's ObjectBucket records: {problem}; an administrator has to correct them in the annotation, or run a version of the provisioner that supports them",
                protocol::BUCKET
            );
            warning("InvalidClass", text, deleting_or(facts, State::Pending))
        }
        Stopped::ClassGone => {
            let text = format!(
                "The claim's StorageClass \"{}\" no longer exists, and no ObjectBucket records its parameters; an administrator has to recreate the class",
                facts.class_name()
            );
            warning("InvalidClass", text, State::Pending)
        }
        Stopped::SecretMissing { namespace, name } => {
            let text = format!(
                "The Secret {namespace}/{name}, which the class names, does not exist; an administrator has to create it"
            );
            warning("SecretMissing", text, deleting_or(facts, State::Pending))
        }
        Stopped::SecretName(problem) => warning("InvalidClass", sentence(problem), deleting_or(facts, State::Failed)),
        Stopped::NotProvisioned { verdict: ProvisionVerdict::Ignored, .. } => return None,
        Stopped::NotProvisioned { verdict: ProvisionVerdict::Invalid, message, .. } => {
            warning("ProvisioningFailed", message.clone(), State::Failed)
        }
        Stopped::NotProvisioned { verdict: ProvisionVerdict::InProgress, message, .. } => {
            normal("Provisioning", message.clone(), State::Pending)
        }
        Stopped::NotProvisioned { message, .. } => warning("ProvisioningFailed", message.clone(), State::Pending),
        Stopped::ProvisionAborted { method, aborted } => {
            warning(failed_reason(facts), no_answer_text(aborted, method), deleting_or(facts, State::Pending))
        }
        Stopped::NotRotated { message, .. } => event_only(warning("RotationFailed", message.clone(), State::Bound)),
        Stopped::NotRetired { message, .. } => {
            let text = format!("The keys that the last rotation replaced still exist: {message}");
            event_only(warning("RotationFailed", text, State::Bound))
        }
        Stopped::RotationAborted { method, aborted } => {
            event_only(warning("RotationFailed", no_answer_text(aborted, method), State::Bound))
        }
        Stopped::NotReleased { verdict: DeleteVerdict::Ignored, .. } => return None,
        Stopped::NotReleased { verdict: DeleteVerdict::InProgress | DeleteVerdict::InUse, message, .. } => {
            normal("BucketDelete", message.clone(), State::Deleting)
        }
        Stopped::NotReleased { message, .. } => warning("BucketFailedDelete", message.clone(), State::Deleting),
        Stopped::ReleaseAborted { method, aborted } => {
            warning("BucketFailedDelete", no_answer_text(aborted, method), State::Deleting)
        }
        Stopped::CallFailed { doing, error } => {
            warning(failed_reason(facts), call_failed_text(doing, error), deleting_or(facts, State::Pending))
        }
    })
}

fn message_of(done: &Done, facts: &Facts, provisioner: &str) -> Option<UserMessage> {
    Some(match done {
        Done::Nothing | Done::ClaimReleased => return None,
        // In all other cases the claim is at rest.
        Done::CheckAgain { .. } => {
            return change_without_effect(facts)
                .map(|change| change_without_effect_message(&change, facts.class_name()));
        }
        Done::Provisioned { bucket } => {
            normal("ProvisioningSucceeded", format!("Successfully provisioned bucket {bucket}"), State::Bound)
        }
        Done::Configured => normal("Configured", "Applied the changed additionalConfig".to_owned(), State::Bound),
        Done::Restored => {
            let (reason, text) = USABLE;
            UserMessage { severity: Severity::Silent, ..normal(reason, text.to_owned(), State::Bound) }
        }
        Done::KeyReplaced => {
            let text = "The claim's Secret has a new key: the Secret was edited or deleted, or its key no longer worked; former keys stay valid for the credentialsOverlap of the class where the backend allows it; restart the pods that use them".to_owned();
            warning("CredentialsReplaced", text, State::Bound)
        }
        Done::Adopted => event_only(normal("Adopted", format!("{provisioner} now manages this bucket"), State::Bound)),
        Done::Rotated => {
            let text = "The claim's Secret has a new key; the provisioner removes the previous key later".to_owned();
            event_only(normal("CredentialsRotated", text, State::Bound))
        }
        Done::Retired => {
            let text = "Removed the keys that the last rotation replaced".to_owned();
            event_only(normal("CredentialsRetired", text, State::Bound))
        }
        Done::Released { release_mode, bucket } => {
            UserMessage { state: Some(State::Released), ..released(*release_mode, bucket) }
        }
    })
}

/// Returns the event of a waiting claim while the provisioner cannot work.
pub(crate) fn provisioner_paused(is_deletion: bool) -> UserMessage {
    let (reason, problem) = if is_deletion {
        ("BucketFailedDelete", "The bucket cannot be deleted")
    } else {
        ("ProvisioningFailed", "No bucket can be provisioned")
    };
    let text = format!(
        "{problem} at the moment, because the provisioner cannot work; ask the administrator to check its log and /readyz"
    );
    event_only(warning(reason, text, State::Pending))
}

/// Returns the event of a slow call to the provisioner. Its result has a separate event.
pub(crate) fn still_provisioning(provisioner: &str, claim: &str) -> UserMessage {
    let text = format!("{provisioner} is provisioning a bucket for claim \"{claim}\"");
    event_only(normal("Provisioning", text, State::Pending))
}

/// Returns the event of a created bucket with a warning from its provisioner.
pub(crate) fn provisioned_with_warning(text: &str) -> UserMessage {
    event_only(warning("ProvisioningWarning", text.to_owned(), State::Bound))
}

/// Returns the event of a claim with both a bucket name and a prefix for a generated name.
pub(crate) fn has_unused_prefix(bucket: &str) -> UserMessage {
    let text = format!(
        "spec.generateBucketName has no effect, because spec.bucketName names the bucket {bucket}; to get a generated name, create another claim without spec.bucketName"
    );
    event_only(warning("ProvisioningWarning", text, State::Bound))
}

/// Returns the event about keys that a rotation or its end has removed, although no record names them.
pub(crate) fn removed_unknown_keys(ids: &[String]) -> UserMessage {
    let text = format!(
        "Removed keys of the claim's account that the provisioner has not delivered: {}; if an administrator created them, create a separate claim for that purpose",
        ids.join(", ")
    );
    event_only(warning("UnknownKeysRemoved", text, State::Bound))
}

fn refused(refusal: &Refusal, facts: &Facts, provisioner: &str) -> UserMessage {
    let class = facts.class_name();
    let claim = facts.claim_name().map(|claim| claim.to_string()).unwrap_or_default();
    match refusal {
        Refusal::FormerBucket => normal(
            "AwaitsFormer",
            format!("The bucket of an earlier claim {claim} is being removed; this claim is provisioned afterwards"),
            State::Pending,
        ),
        Refusal::OrphanedBucket { object } => warning(
            "BucketLeft",
            format!(
                "The ObjectBucket {object} belongs to an earlier claim {claim}, and this cluster has no record of that claim's deletion; to assign the bucket to this claim, an administrator can run: {}; to delete the bucket: kubectl delete objectbucket {object}",
                adopt_hint(object, &claim)
            ),
            State::Pending,
        ),
        Refusal::UnprovenOwner { object } => warning(
            "ObjectBucketNotProven",
            format!(
                "The claim names the ObjectBucket {object}, but that ObjectBucket does not name the claim, so the provisioner does not use it; an administrator can assign it: {}",
                adopt_hint(object, &claim)
            ),
            deleting_or(facts, State::Pending),
        ),
        Refusal::NoClaim { object } => warning(
            "ClaimMissing",
            format!(
                "The claim {claim} of this ObjectBucket does not exist, and this cluster has no record of its deletion, so the bucket is kept; to delete the bucket: kubectl delete objectbucket {object}; to assign it to the current claim of that name: {}",
                adopt_hint(object, &claim)
            ),
            State::Deleting,
        ),
        Refusal::Unclaimed { object } => warning(
            "ObjectBucketUnclaimed",
            format!(
                "The ObjectBucket {object} names no claim, and no claim names it, so its bucket is kept; to assign it to a claim: {}; to delete the ObjectBucket and keep the bucket: {}",
                adopt_hint(object, "NAMESPACE/CLAIM"),
                abandon_hint(object)
            ),
            State::Deleting,
        ),
        Refusal::NoCluster { object } => warning(
            "ClaimMissing",
            format!(
                "The claim {claim} of this ObjectBucket does not exist, and the cluster that created its bucket is not recorded, so the bucket is kept; to assign it to the current claim of that name: {}; to delete the ObjectBucket and keep the bucket: {}",
                adopt_hint(object, &claim),
                abandon_hint(object)
            ),
            State::Deleting,
        ),
        Refusal::Unreadable { kind, problem } => warning(
            "Unreadable",
            format!(
                "The provisioner cannot read the {kind} of the bucket: {problem}; it changes nothing until the object is corrected"
            ),
            deleting_or(facts, State::Pending),
        ),
        Refusal::OtherCluster { creator } => warning(
            "OtherCluster",
            format!(
                "The bucket belongs to the cluster \"{creator}\", so this provisioner does not change it; if this cluster replaces that one, an administrator has to start the provisioner with --cluster-id {creator}; to remove only this cluster's objects, set the ObjectBucket's annotation {}=true and delete it",
                protocol::ABANDON
            ),
            deleting_or(facts, State::Pending),
        ),
        Refusal::OtherInstallation { creator } => warning(
            "OtherInstallation",
            format!(
                "The bucket belongs to the installation \"{creator}\" of {provisioner}, so this one does not change it; an administrator has to start that installation, or this one with --identity {creator}"
            ),
            deleting_or(facts, State::Pending),
        ),
        Refusal::NoName => warning(
            "NoBucketName",
            "The claim names no bucket; delete it and create it with spec.generateBucketName or spec.bucketName"
                .to_owned(),
            State::Failed,
        ),
        Refusal::BadName { name, problem } => warning(
            "InvalidBucketName",
            format!(
                "{} is not a valid bucket name: {problem}; delete the claim and create it with another name",
                quoted(name)
            ),
            State::Failed,
        ),
        Refusal::Parameters(problem) => warning(
            "InvalidClass",
            format!(
                "{}; an administrator has to delete the class and create it with correct parameters",
                class_text(class, problem)
            ),
            State::Failed,
        ),
        Refusal::ParametersCrash(_) => warning(
            "InvalidClass",
            format!(
                "The provisioner's code crashed while it read the StorageClass \"{class}\"; please report this to its authors, with the provisioner's log"
            ),
            State::Failed,
        ),
        Refusal::ConfigNotAllowed(refused) => {
            warning("ConfigNotAllowed", config_not_allowed_text(refused, class), State::Failed)
        }
        Refusal::Record(problem) => warning(
            "ObjectBucketUnreadable",
            format!(
                "The provisioner cannot read the annotation {} of the claim's ObjectBucket: {problem}; it changes nothing until an administrator corrects the annotation",
                protocol::BUCKET
            ),
            State::Pending,
        ),
        Refusal::ObjectDeleted => event_only(warning(
            "ObjectBucketDeleted",
            "The claim's ObjectBucket is marked for deletion; it is removed after the claim is deleted, and the bucket remains usable until then"
                .to_owned(),
            State::Bound,
        )),
        Refusal::NoRotation => event_only(warning(
            "RotationFailed",
            format!(
                "The claim has no keys that {provisioner} can rotate; remove the annotation {}",
                protocol::ROTATE_CREDENTIALS
            ),
            State::Bound,
        )),
        Refusal::BadObjectName { kind, name } => {
            let [key, parameter] = keys(kind);
            warning(
                "InvalidObjectName",
                format!(
                    "{} is not a valid name for the claim's {kind}: a name consists of lowercase letters, digits, `-` and `.`, and is at most 253 characters long; correct {key} in the claim's additionalConfig, or ask the administrator to correct {parameter} in the StorageClass \"{class}\"",
                    quoted(name)
                ),
                State::Failed,
            )
        }
        Refusal::NotOwned { kind } => not_owned(kind, facts.names.of_kind(kind), facts),
        Refusal::BucketClaim { claim, problem } => shared_bucket_unavailable(claim, problem, class),
        Refusal::ChangeWithoutEffect(change) => change_without_effect_message(change, class),
        Refusal::InUse { by } => normal(
            "BucketInUse",
            format!("The bucket stays until these claims, which use it, are deleted: {}", listed(by, printable)),
            State::Deleting,
        ),
    }
}

/// Suggests a request to the administrator only for keys that the provisioner knows.
fn config_not_allowed_text(refused: &RefusedConfig, class: &str) -> String {
    let RefusedConfig { keys, allowed, are_known } = refused;
    let suggestion = match &keys[..] {
        [key] => suggestion_text(nearest(key, allowed.iter().map(String::as_str))),
        _ => String::new(),
    };
    let (are, them) = if keys.len() == 1 { ("is", "it") } else { ("are", "them") };
    let permitted = if allowed.is_empty() {
        "the class allows no keys".to_owned()
    } else {
        format!("the class allows {}", listed(allowed, quoted))
    };
    let administrator = if *are_known {
        format!(", or ask the administrator to allow {them} in allowedAdditionalConfig of the StorageClass \"{class}\"")
    } else {
        String::new()
    };
    let keys = listed(keys, quoted);
    format!(
        "OBC config {keys} {are} not allowed{suggestion}; {permitted}; remove {them} from the claim's additionalConfig{administrator}"
    )
}

/// Returns the event about a change of a bound claim that has no effect.
fn change_without_effect_message(change: &ChangeWithoutEffect, class: &str) -> UserMessage {
    let text = match change {
        ChangeWithoutEffect::BucketName { bucket } => format!(
            "The changed spec.bucketName has no effect: the claim has the bucket {bucket}; restore the field, or create another claim"
        ),
        ChangeWithoutEffect::Class { class: former, policy, object } => {
            let other = if *policy == "Delete" { "Retain" } else { "Delete" };
            format!(
                "The change of spec.storageClassName to \"{class}\" has no effect: the bucket keeps the settings of \"{former}\" and the reclaim policy {policy}; restore the field; for the reclaim policy {other} an administrator can run: kubectl patch objectbucket {object} --type=merge -p '{{\"spec\":{{\"reclaimPolicy\":\"{other}\"}}}}'"
            )
        }
        ChangeWithoutEffect::Config { key } => format!(
            "The changed key {key} of the claim's additionalConfig has no effect while the claim has a bucket; restore it, or create another claim"
        ),
    };
    event_only(warning("ChangeWithoutEffect", text, State::Bound))
}

fn not_served(why: NotServed, class: &str) -> UserMessage {
    let text = match why {
        NotServed::NoClass if class.is_empty() => {
            "The claim names no StorageClass; delete it and create it with spec.storageClassName".to_owned()
        }
        NotServed::NoClass => format!(
            "The claim's StorageClass \"{class}\" does not exist; an administrator can create it; otherwise delete the claim and create it with another class"
        ),
        NotServed::ForeignClass => format!(
            "The claim has not been picked up by a provisioner; if the StorageClass \"{class}\" is for volumes, delete the claim and create it with a class for buckets; otherwise, ask the administrator to check whether the provisioner of the class is running"
        ),
    };
    warning("NotServed", text, State::Pending)
}

/// Returns the message for a claim that does not receive the bucket of another claim.
fn shared_bucket_unavailable(other: &str, problem: &BucketClaimProblem, class: &str) -> UserMessage {
    let key = protocol::BUCKET_CLAIM_NAME;
    let other = printable(other);
    let waits = |text: String| normal("AwaitsBucketClaim", text, State::Pending);
    let invalid = |text: String| warning("InvalidBucketClaim", text, State::Failed);
    match problem {
        BucketClaimProblem::Missing => {
            waits(format!("ObjectBucketClaim {other} ({key}) does not exist; create it, or correct {key}"))
        }
        BucketClaimProblem::NotBound => {
            waits(format!("ObjectBucketClaim {other} ({key}) has no bucket yet; read the events of that claim"))
        }
        BucketClaimProblem::Deleting => waits(format!(
            "ObjectBucketClaim {other} ({key}) is being deleted with its bucket; create it again afterwards, or name another claim in {key}"
        )),
        BucketClaimProblem::SameClaim => {
            invalid(format!("The key {key} names this claim itself; name another claim, or remove the key"))
        }
        BucketClaimProblem::NotBucketOwner => invalid(format!(
            "The bucket of the claim {other} was not created for that claim; set {key} to the claim that the bucket was created for, or use a class that names the bucket"
        )),
        BucketClaimProblem::OtherClass { class: of_other } => invalid(format!(
            "The claim {other} has the StorageClass \"{of_other}\", but this claim has \"{class}\"; claims that share a bucket need the same class; delete this claim and create it with that class"
        )),
        BucketClaimProblem::ClassNamesBucket => invalid(format!(
            "The StorageClass \"{class}\" names the bucket for its claims; remove {key} from the claim's additionalConfig"
        )),
        BucketClaimProblem::OtherName { bucket } => invalid(format!(
            "The bucket of the claim {other} is {bucket}, but this claim's spec.bucketName names another bucket; delete this claim and create it without spec.bucketName"
        )),
    }
}

/// Returns the command that assigns an ObjectBucket to a claim.
fn adopt_hint(object: &str, claim: &str) -> String {
    format!("kubectl annotate objectbucket {object} {}={claim}", protocol::ADOPT_FOR)
}

/// Returns the command that abandons the assets of an ObjectBucket.
fn abandon_hint(object: &str) -> String {
    format!("kubectl annotate objectbucket {object} {}=true", protocol::ABANDON)
}

/// Returns the text about an invalid class, which `check-class` also uses.
pub(crate) fn class_text(class: &str, problem: &str) -> String {
    format!("The claim's StorageClass \"{class}\" cannot be used: {problem}")
}

fn not_owned(kind: &str, name: &str, facts: &Facts) -> UserMessage {
    let namespace = facts.claim_name().map(|claim| claim.namespace).unwrap_or_default();
    let [key, _] = keys(kind);
    let problem = format!("The {kind} {namespace}/{name} exists and does not belong to this claim; delete that {kind}");
    // The names are fixed once they have been used.
    let text = if facts.is_served() {
        problem
    } else {
        format!("{problem}, or set {key} in the claim's additionalConfig to another name")
    };
    let reason = if kind == "Secret" { "SecretNotOwned" } else { "ConfigMapNotOwned" };
    warning(reason, text, State::Pending)
}

fn released(release_mode: ReleaseMode, bucket: &str) -> UserMessage {
    match release_mode {
        ReleaseMode::Delete => {
            normal("BucketDeleted", format!("Deleted bucket {bucket} and revoked access to it"), State::Deleting)
        }
        ReleaseMode::Revoke => {
            normal("BucketReleased", format!("Revoked access; the bucket {bucket} is kept"), State::Deleting)
        }
        ReleaseMode::RevokeUnknown => warning(
            "BucketReleased",
            format!(
                "Revoked access; the bucket {bucket} is kept, because its StorageClass no longer exists and no record shows that the bucket was created for this claim"
            ),
            State::Deleting,
        ),
        ReleaseMode::CleanUp => {
            let text = format!("Removed what the unfinished attempt for the bucket {bucket} had created");
            normal("BucketReleased", text, State::Deleting)
        }
        ReleaseMode::Abandon => warning(
            "BucketAbandoned",
            format!(
                "Removed the ObjectBucket, because its annotation {} requests it; the bucket {bucket} and its user may still exist",
                protocol::ABANDON
            ),
            State::Deleting,
        ),
    }
}

fn not_fenced(error: &CallError, facts: &Facts) -> UserMessage {
    let text = format!(
        "The provisioner cannot write its journal, so it has not started to work on the bucket: {error}; ask the administrator"
    );
    event_only(warning(failed_reason(facts), text, State::Pending))
}

fn failed_reason(facts: &Facts) -> &'static str {
    if facts.is_ending() { "BucketFailedDelete" } else { "ProvisioningFailed" }
}

fn deleting_or(facts: &Facts, state: State) -> State {
    if facts.is_ending() { State::Deleting } else { state }
}

/// Leaves the status unchanged.
fn event_only(message: UserMessage) -> UserMessage {
    UserMessage { state: None, ..message }
}

fn normal(reason: &'static str, text: String, state: State) -> UserMessage {
    UserMessage { reason, text: limited(text), severity: Severity::Normal, state: Some(state) }
}

fn warning(reason: &'static str, text: String, state: State) -> UserMessage {
    UserMessage { reason, text: limited(text), severity: Severity::Warning, state: Some(state) }
}
