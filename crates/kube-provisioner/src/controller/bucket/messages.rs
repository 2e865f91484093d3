//! The table of what users are told: for each outcome the event, and what the claim's status says. All texts for users are
//! here. They say what is wrong and what to do about it.

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::NoAnswer;
use provisioner_runtime::journal::JournalError;

use super::decide::{Ending, Refusal};
use super::facts::Facts;
use super::outcome::Outcome;
use crate::error::{DeleteVerdict, Verdict};
use crate::protocol;

/// What an outcome means for the claim's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The event's reason and the reason of the condition `Ready`.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    pub(crate) severity: Severity,
    /// What the status says; `None` leaves it as it is.
    pub(crate) state: Option<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// In the status alone.
    Silent,
    Normal,
    Warning,
}

/// What a claim's status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bound,
    /// It may succeed although nobody changes anything.
    Pending,
    /// It needs a change.
    Failed,
    /// It is going.
    Going,
}

/// What the condition `Ready` says of every bucket that can be used.
const USABLE: (&str, &str) = ("Bound", "The bucket can be used");

impl Told {
    /// Reason and message of the condition `Ready`, where the status tells this.
    pub(crate) fn ready(&self) -> (&'static str, &str) {
        if self.state == Some(State::Bound) { USABLE } else { (self.reason, &self.text) }
    }
}

/// `gave_up`: the number of attempts, where this was the last one until something changes.
pub(crate) fn told(outcome: &Outcome, facts: &Facts, provisioner: &str, gave_up: Option<u32>) -> Option<Told> {
    let told = told_once(outcome, facts, provisioner)?;
    let Some(attempts) = gave_up else { return Some(told) };
    Some(match told.state {
        Some(State::Going) => Told { text: format!("{} (gave up after {attempts} attempts)", told.text), ..told },
        _ => Told {
            text: format!(
                "{} (gave up after {attempts} attempts; change the claim or its class to try again)",
                told.text
            ),
            state: Some(State::Failed),
            ..told
        },
    })
}

fn told_once(outcome: &Outcome, facts: &Facts, provisioner: &str) -> Option<Told> {
    let claim = facts.claim_name().map(|claim| claim.to_string()).unwrap_or_default();
    Some(match outcome {
        Outcome::NoAction
        | Outcome::AwaitsPermit(_)
        | Outcome::Changed
        | Outcome::RetiresLater { .. }
        | Outcome::ClaimReleased => return None,
        Outcome::Broke { no_answer: NoAnswer::CutOff, .. }
        | Outcome::RotationBroke { no_answer: NoAnswer::CutOff, .. }
        | Outcome::ReleaseBroke { no_answer: NoAnswer::CutOff, .. } => return None,
        Outcome::NotFenced(JournalError::Call(error)) if !error.is_transient() => not_fenced(error, facts),
        // Another replica goes on.
        Outcome::NotFenced(_) => return None,
        Outcome::CallFailed { error, .. } if error.is_transient() => return None,
        Outcome::Refused(refusal) => refused(refusal, facts, provisioner),
        Outcome::NotOwned { kind } => not_owned(kind, &claim),
        Outcome::BadConfig(problem) => {
            let text = format!("The claim's additionalConfig cannot be used: {problem}").replace("parameter", "key");
            warning("InvalidConfig", text, State::Failed)
        }
        Outcome::BadRecord(problem) => {
            let text = format!(
                "The class's parameters as the annotation {} of the claim's ObjectBucket records them cannot be used: {problem}; mend them there, or run a version of the provisioner that knows them",
                protocol::BUCKET
            );
            warning("InvalidClass", text, going_or(facts, State::Pending))
        }
        Outcome::ClassGone => {
            let text = format!(
                "The claim's StorageClass \"{}\" is gone, and nothing else says how its bucket is made; create the class again",
                facts.class_name()
            );
            warning("InvalidClass", text, State::Pending)
        }
        Outcome::SecretMissing { namespace, name } => {
            let text = format!("The Secret {namespace}/{name}, which the class names, does not exist; create it");
            warning("SecretMissing", text, going_or(facts, State::Pending))
        }
        Outcome::SecretName(problem) => warning("InvalidClass", sentence(problem), going_or(facts, State::Failed)),
        Outcome::Provisioned { bucket } => {
            normal("ProvisioningSucceeded", format!("Successfully provisioned bucket {bucket}"), State::Bound)
        }
        Outcome::Configured => normal("Configured", "The changed additionalConfig is applied".to_owned(), State::Bound),
        Outcome::Restored => {
            let (reason, text) = USABLE;
            Told { severity: Severity::Silent, ..normal(reason, text.to_owned(), State::Bound) }
        }
        Outcome::Adopted => {
            event_only(normal("Adopted", format!("{provisioner} looks after this bucket from now on"), State::Bound))
        }
        Outcome::Rotated => {
            let text = "The claim's Secret has a new key; the one before it goes later".to_owned();
            event_only(normal("CredentialsRotated", text, State::Bound))
        }
        Outcome::Retired => {
            let text = "The keys before the last rotation are removed".to_owned();
            event_only(normal("CredentialsRetired", text, State::Bound))
        }
        Outcome::NotProvisioned { verdict: Verdict::NotMine, .. } => return None,
        Outcome::NotProvisioned { verdict: Verdict::Invalid, message, .. } => {
            warning("ProvisioningFailed", message.clone(), State::Failed)
        }
        Outcome::NotProvisioned { verdict: Verdict::InProgress, message, .. } => {
            normal("Provisioning", message.clone(), State::Pending)
        }
        Outcome::NotProvisioned { message, .. } => warning("ProvisioningFailed", message.clone(), State::Pending),
        Outcome::Broke { method, no_answer } => {
            warning(failed_reason(facts), no_answer_text(no_answer, method), going_or(facts, State::Pending))
        }
        Outcome::NotRotated { message, .. } => event_only(warning("RotationFailed", message.clone(), State::Bound)),
        Outcome::NotRetired { message, .. } => {
            let text = format!("The keys before the last rotation are not removed yet: {message}");
            event_only(warning("RotationFailed", text, State::Bound))
        }
        Outcome::RotationBroke { method, no_answer } => {
            event_only(warning("RotationFailed", no_answer_text(no_answer, method), State::Bound))
        }
        Outcome::Released { ending, bucket } => event_only(released(*ending, bucket)),
        Outcome::NotReleased { verdict: DeleteVerdict::NotMine, .. } => return None,
        Outcome::NotReleased { verdict: DeleteVerdict::InProgress | DeleteVerdict::InUse, message, .. } => {
            normal("BucketDelete", message.clone(), State::Going)
        }
        Outcome::NotReleased { message, .. } => warning("BucketFailedDelete", message.clone(), State::Going),
        Outcome::ReleaseBroke { method, no_answer } => {
            warning("BucketFailedDelete", no_answer_text(no_answer, method), State::Going)
        }
        Outcome::CallFailed { doing, error } => call_failed(doing, error, facts),
    })
}

/// The event of a waiting claim while the provisioner cannot work.
pub(crate) fn not_now(problem: &str) -> Told {
    let text = format!("No bucket is made at the moment: {problem}");
    event_only(warning("ProvisioningFailed", text, State::Pending))
}

/// The event of a slow call of the author's code. Its result has an event of its own.
pub(crate) fn still_provisioning(provisioner: &str, claim: &str) -> Told {
    let text = format!("{provisioner} is provisioning a bucket for claim \"{claim}\"");
    event_only(normal("Provisioning", text, State::Pending))
}

/// The event of a bucket that was made, and of which its author says something.
pub(crate) fn made_with_warning(text: &str) -> Told {
    event_only(warning("ProvisioningWarning", text.to_owned(), State::Bound))
}

fn refused(refusal: &Refusal, facts: &Facts, provisioner: &str) -> Told {
    let class = facts.class_name();
    let claim = facts.claim_name().map(|claim| claim.to_string()).unwrap_or_default();
    match refusal {
        Refusal::Former => normal(
            "AwaitsFormer",
            format!("The bucket of an earlier claim {claim} is being removed; this one is served afterwards"),
            State::Pending,
        ),
        Refusal::NoName => warning(
            "NoBucketName",
            "The claim names no bucket; create it with spec.generateBucketName or spec.bucketName".to_owned(),
            State::Failed,
        ),
        Refusal::BadName { name, problem } => warning(
            "InvalidBucketName",
            format!("\"{name}\" cannot be the name of a bucket: {problem}; create the claim with another name"),
            State::Failed,
        ),
        Refusal::Parameters(problem) => warning(
            "InvalidClass",
            class_text(class, problem),
            State::Failed,
        ),
        Refusal::ParametersCrash(panic) => warning(
            "InvalidClass",
            format!("The provisioner's code crashed while it read the StorageClass \"{class}\": {panic}; please report this to its authors"),
            State::Failed,
        ),
        Refusal::ConfigNotAllowed(keys) => warning(
            "ConfigNotAllowed",
            format!(
                "OBC config \"{}\" is not allowed; remove it from the claim's additionalConfig, or start the provisioner with it among --allowed-additional-config",
                keys.join("\", \"")
            ),
            State::Failed,
        ),
        Refusal::Record(problem) => warning(
            "ObjectBucketUnreadable",
            format!(
                "The annotation {} of the claim's ObjectBucket cannot be read: {problem}; nothing is touched until it is mended",
                protocol::BUCKET
            ),
            State::Pending,
        ),
        Refusal::ObjectDeleted => event_only(warning(
            "ObjectBucketDeleted",
            "The claim's ObjectBucket was deleted by hand and stays until the claim is deleted, too; the bucket can be used meanwhile".to_owned(),
            State::Bound,
        )),
        Refusal::NoRotation => event_only(warning(
            "RotationFailed",
            format!("{provisioner} cannot rotate keys; remove the annotation {}", protocol::ROTATE_CREDENTIALS),
            State::Bound,
        )),
        Refusal::NotOwned { kind } => not_owned(kind, &claim),
    }
}

/// `check-class` uses the same text.
pub(crate) fn class_text(class: &str, problem: &str) -> String {
    format!("The claim's StorageClass \"{class}\" cannot be used: {problem}")
}

fn not_owned(kind: &str, claim: &str) -> Told {
    let text = format!(
        "The {kind} {claim} exists and is not this claim's, so it is left alone; delete it, or create the claim under another name"
    );
    let reason = if kind == "Secret" { "SecretNotOwned" } else { "ConfigMapNotOwned" };
    warning(reason, text, State::Pending)
}

fn released(ending: Ending, bucket: &str) -> Told {
    match ending {
        Ending::Delete => normal("BucketDeleted", format!("Deleted bucket {bucket} and its user"), State::Going),
        Ending::Revoke => {
            normal("BucketReleased", format!("Removed the user; the bucket {bucket} is kept"), State::Going)
        }
        Ending::RevokeUnknown => warning(
            "BucketReleased",
            format!(
                "Removed the user. The bucket {bucket} is kept: its StorageClass is gone, and nothing else says that the bucket was made for this claim"
            ),
            State::Going,
        ),
        Ending::CleanUp => normal("BucketDeleted", format!("Removed what was begun for bucket {bucket}"), State::Going),
        Ending::Abandon => warning(
            "BucketAbandoned",
            format!(
                "The bucket {bucket} and its user are given up as the ObjectBucket's annotation {} asks; they may still exist",
                protocol::ABANDON
            ),
            State::Going,
        ),
    }
}

fn call_failed(doing: &str, error: &CallError, facts: &Facts) -> Told {
    // What could not be written is not tried again for the status.
    event_only(warning(failed_reason(facts), format!("{}: {error}", sentence(doing)), State::Pending))
}

fn not_fenced(error: &CallError, facts: &Facts) -> Told {
    let text =
        format!("Nothing is done about the bucket yet, because the provisioner cannot write its journal: {error}");
    event_only(warning(failed_reason(facts), text, State::Pending))
}

fn failed_reason(facts: &Facts) -> &'static str {
    if is_going(facts) { "BucketFailedDelete" } else { "ProvisioningFailed" }
}

fn going_or(facts: &Facts, state: State) -> State {
    if is_going(facts) { State::Going } else { state }
}

fn is_going(facts: &Facts) -> bool {
    facts.claim.as_ref().is_none_or(|claim| claim.deleting)
}

pub(crate) fn no_answer_text(no_answer: &NoAnswer, method: &str) -> String {
    crate::controller::volume::no_answer_text(no_answer, method)
}

fn sentence(text: &str) -> String {
    crate::controller::volume::sentence(text)
}

/// The status stays as it is.
fn event_only(told: Told) -> Told {
    Told { state: None, ..told }
}

fn normal(reason: &'static str, text: String, state: State) -> Told {
    Told { reason, text, severity: Severity::Normal, state: Some(state) }
}

fn warning(reason: &'static str, text: String, state: State) -> Told {
    Told { reason, text, severity: Severity::Warning, state: Some(state) }
}
