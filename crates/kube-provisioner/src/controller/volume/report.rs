//! The table from what happened to what is told and what comes next: events, labels, pauses.
//!
//! The only place with texts for users. They say what is wrong and what to do about it.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::NoAnswer;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::queue::Next;

use super::decide::{NoAction, Refusal};
use super::facts::{ClaimFacts, ClaimState, ClassState, Facts, Progress};
use super::outcome::Outcome;
use crate::error::{DeleteVerdict, Verdict};

/// What is told of one outcome, and when the key is looked at again.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) notice: Option<Notice>,
    pub(crate) next: Next,
    /// The outcome's name in metrics and logs.
    pub(crate) label: &'static str,
    pub(crate) work: WorkKind,
    /// How long a successful call took, with the API's part.
    pub(crate) took: Option<Duration>,
}

/// What the work was about, as far as metrics care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WorkKind {
    None,
    Provision,
    Delete,
}

/// An event for the claim's or the volume's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) about: About,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    /// Every replica of a fleet says the same.
    pub(crate) same_from_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Claim,
    Volume,
}

/// How often something is tried before it waits for a change. 0 is for ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thresholds {
    pub(crate) provision: u32,
    pub(crate) delete: u32,
}

/// The reasons of events, as users of the Go library know them.
mod reason {
    pub(super) const PROVISIONING: &str = "Provisioning";
    pub(super) const FAILED: &str = "ProvisioningFailed";
    pub(super) const CLEANUP_FAILED: &str = "ProvisioningCleanupFailed";
    pub(super) const SUCCEEDED: &str = "ProvisioningSucceeded";
    pub(super) const DELETE: &str = "VolumeDelete";
    pub(super) const DELETE_FAILED: &str = "VolumeFailedDelete";
}

/// What the tables need to know beside the outcome.
pub(crate) struct Case<'a> {
    pub(crate) provisioner: &'a str,
    pub(crate) volume: &'a str,
    pub(crate) facts: &'a Facts,
    pub(crate) attempt: u32,
    /// How often in a row the key was looked at again at once before this attempt.
    pub(crate) repeats: u32,
    /// How often in a row the key has waited for something before.
    pub(crate) waits: u32,
    pub(crate) thresholds: Thresholds,
}

/// How long a class may be unknown before the user hears of it: the watch of classes may be behind the one of claims.
const CLASS_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn report(outcome: Outcome, case: &Case<'_>) -> Summary {
    match outcome {
        Outcome::NoAction(why) => Summary::quiet(no_action_label(why), Next::Done),
        Outcome::AwaitsPermit(class) => Summary::quiet("awaits permit", Next::AwaitPermit(class)),
        Outcome::Changed => Summary::quiet("changed", Next::Again),
        Outcome::Behind => Summary::quiet("behind", Next::Wait(None)),
        Outcome::ClaimLives => Summary::quiet("claim lives", Next::Wait(None)),
        Outcome::ClaimReleased => Summary::quiet("claim released", Next::Done),
        Outcome::CleanedUp => Summary::quiet("cleaned up", Next::Again),
        Outcome::Rejected { .. } if case.repeats == 0 => Summary::quiet("changed", Next::Again),
        Outcome::Rejected { doing, error } => {
            let text = format!("{}: {error}", sentence(doing));
            Summary { next: Next::Retry, ..case.failed(Some(text), "rejected") }
        }
        Outcome::ProtectionSet => Summary::quiet("finalizer set", Next::Done),
        Outcome::Provisioned { took } => {
            let text = format!("Successfully provisioned volume {}", case.volume);
            let notice = normal(About::Claim, reason::SUCCEEDED, text);
            Summary { next: Next::Done, took: Some(took), ..Summary::provision(Some(notice), "success") }
        }
        Outcome::LooksAgain { after } => Summary::quiet("looks again", Next::Wait(Some(after))),
        Outcome::Refused(
            refusal @ (Refusal::NodeGone { .. } | Refusal::OtherInstallation { .. } | Refusal::RetainedTooLate),
        ) => {
            let same_from_all = matches!(refusal, Refusal::NodeGone { .. });
            let notice = warning(About::Volume, reason::DELETE_FAILED, refusal_text(&refusal, case));
            let notice = Notice { same_from_all, ..notice };
            Summary { next: Next::AwaitChange, ..Summary::deletion(Some(notice), "refused") }
        }
        Outcome::Refused(refusal @ Refusal::Populator { .. }) => {
            let notice = normal(About::Claim, reason::PROVISIONING, refusal_text(&refusal, case));
            Summary { next: Next::AwaitChange, ..Summary::provision(Some(notice), "awaits populator") }
        }
        Outcome::Refused(Refusal::ClassMissing(Some(_))) if case.attempt <= 1 => {
            Summary::quiet("class unknown", Next::RetryAfter(CLASS_WAIT))
        }
        Outcome::Refused(refusal) => {
            let text = refusal_text(&refusal, case);
            let same_from_all = refusal == Refusal::ImmediateClass;
            let notice = Notice { same_from_all, ..failed(case.with_origin(text)) };
            Summary { next: Next::AwaitChange, ..Summary::provision(Some(notice), "refused") }
        }
        Outcome::Locked { by, look_again } => {
            tracing::debug!(pv = case.volume, by, "locked");
            Summary::quiet("locked", Next::Wait(Some(look_again)))
        }
        Outcome::NotReady { problem } => case.provision_failed(sentence(&problem), "not ready", None),
        Outcome::NotJournaled(error) => not_journaled(&error, case),
        Outcome::NotProvisioned { verdict, message, retry_after, rescheduled } => {
            not_provisioned(verdict, message, retry_after, rescheduled, case)
        }
        // Something may have been made in these, so no threshold ends them.
        Outcome::ProvisionBroke { no_answer: NoAnswer::CutOff, .. }
        | Outcome::DeleteBroke { no_answer: NoAnswer::CutOff, .. } => Summary::quiet("lost", Next::Retry),
        Outcome::ProvisionBroke { method, no_answer } => {
            let text = case.with_origin(no_answer_text(&no_answer, method));
            Summary::provision(Some(failed(text)), no_answer_label(&no_answer))
        }
        Outcome::BadTemplate(error) => Summary::provision(Some(failed(sentence(&error.to_string()))), "bad template"),
        Outcome::NotSaved(error) => {
            let text = format!("The volume {} is made but not saved yet: {error}", case.volume);
            // There is an asset: no threshold ends this.
            Summary { next: after_call(&error), ..Summary::provision(Some(failed(text)), "not saved") }
        }
        Outcome::NotCleanedUp { verdict, message, retry_after } => not_cleaned_up(verdict, &message, retry_after, case),
        Outcome::NameTakenMeanwhile => {
            let text = refusal_text(&Refusal::NameTaken, case);
            Summary { next: Next::Retry, ..Summary::provision(Some(failed(text)), "name taken") }
        }
        Outcome::Deleted { took } => {
            Summary { next: Next::Done, took: Some(took), ..Summary::deletion(None, "success") }
        }
        Outcome::NotDeleted { verdict, message, retry_after } => not_deleted(verdict, message, retry_after, case),
        Outcome::DeleteBroke { method, no_answer } => {
            case.delete_failed(no_answer_text(&no_answer, method), no_answer_label(&no_answer), None)
        }
        Outcome::CallFailed { doing, error } => call_failed(doing, &error, case),
    }
}

/// Told while a call of the author's code takes its time. What comes of it is told when it is known.
pub(crate) fn slow(provisioner: &str, claim: &ClaimFacts) -> Notice {
    let text = format!("{provisioner} is provisioning a volume for claim \"{}/{}\"", claim.namespace, claim.name);
    normal(About::Claim, reason::PROVISIONING, text)
}

/// Told to those who wait while nothing at all can be provisioned.
pub(crate) fn held_up(problem: &str) -> Notice {
    failed(format!("No volume is made at the moment: {problem}"))
}

fn not_provisioned(
    verdict: Verdict,
    message: String,
    retry_after: Option<Duration>,
    rescheduled: bool,
    case: &Case<'_>,
) -> Summary {
    match verdict {
        Verdict::NotMine => Summary { next: Next::AwaitChange, ..Summary::provision(None, "ignored") },
        Verdict::Invalid => Summary { next: Next::AwaitChange, ..Summary::provision(Some(failed(message)), "invalid") },
        Verdict::InProgress => {
            // Waiting is no failure: neither thresholds nor pauses grow by it.
            let notice = normal(About::Claim, reason::PROVISIONING, case.with_origin(message));
            Summary { next: Next::Wait(retry_after), ..Summary::provision(Some(notice), "in progress") }
        }
        Verdict::Reschedule if rescheduled => {
            let text = format!("{message}; the scheduler is asked for another node");
            Summary { next: Next::Done, ..Summary::provision(Some(failed(text)), "rescheduled") }
        }
        Verdict::Reschedule | Verdict::Retry | Verdict::NothingLeft => {
            case.provision_failed(message, "failed", retry_after)
        }
    }
}

/// No threshold ends this: something may be there that nobody else knows of.
fn not_cleaned_up(verdict: DeleteVerdict, message: &str, retry_after: Option<Duration>, case: &Case<'_>) -> Summary {
    let text = format!("What an attempt may have left is not removed yet: {message}");
    let waits = matches!(verdict, DeleteVerdict::InProgress | DeleteVerdict::InUse);
    let next = if waits { Next::Wait(retry_after) } else { retry(retry_after) };
    let notice = match waits {
        true => normal(About::Claim, reason::PROVISIONING, text),
        false => warning(About::Claim, reason::CLEANUP_FAILED, case.with_origin(text)),
    };
    Summary { next, ..Summary::provision(Some(notice), "not cleaned up") }
}

fn not_deleted(verdict: DeleteVerdict, message: String, retry_after: Option<Duration>, case: &Case<'_>) -> Summary {
    match verdict {
        DeleteVerdict::NotMine => Summary { next: Next::AwaitChange, ..Summary::deletion(None, "ignored") },
        DeleteVerdict::InUse => {
            let notice = normal(About::Volume, reason::DELETE, message);
            Summary { next: retry(retry_after), ..Summary::deletion(Some(notice), "in use") }
        }
        DeleteVerdict::InProgress => {
            let notice = normal(About::Volume, reason::DELETE, message);
            Summary { next: Next::Wait(retry_after), ..Summary::deletion(Some(notice), "in progress") }
        }
        DeleteVerdict::Retry | DeleteVerdict::Unsupported => case.delete_failed(message, "failed", retry_after),
    }
}

fn call_failed(doing: &str, error: &CallError, case: &Case<'_>) -> Summary {
    let text = format!("{}: {error}", sentence(doing));
    // The server's bad moments pass by themselves; what lacks a right or is invalid needs a person.
    let text = (!error.is_transient()).then_some(text);
    Summary { next: after_call(error), ..case.failed(text, "api error") }
}

fn not_journaled(error: &JournalError, case: &Case<'_>) -> Summary {
    let what = if case.is_about_claim() { "made" } else { "deleted" };
    let (text, next) = match error {
        // Another replica goes on; this one is told that by its Lease.
        JournalError::Lost(_) => return Summary::quiet("lost", Next::Retry),
        JournalError::TooLarge { .. } => (
            format!(
                "No volume is made for what the provisioner's journal cannot hold: {error}; shorten the claim's spec or labels"
            ),
            Next::AwaitChange,
        ),
        // Room comes back by itself, and that it is not there is no failure of this claim.
        JournalError::Full { .. } => {
            (format!("The volume is not {what} yet, because too many are being made: {error}"), Next::Wait(None))
        }
        JournalError::Call(error) => (
            format!("The volume is not {what} yet, because the provisioner cannot write its journal: {error}"),
            after_call(error),
        ),
        error => (format!("The volume is not {what} yet: {error}"), Next::Retry),
    };
    Summary { next, ..case.failed(Some(text), "not journaled") }
}

impl Summary {
    fn quiet(label: &'static str, next: Next) -> Self {
        Self { notice: None, next, label, work: WorkKind::None, took: None }
    }

    fn provision(notice: Option<Notice>, label: &'static str) -> Self {
        Self { notice, next: Next::Retry, label, work: WorkKind::Provision, took: None }
    }

    fn deletion(notice: Option<Notice>, label: &'static str) -> Self {
        Self { work: WorkKind::Delete, ..Self::provision(notice, label) }
    }
}

impl Case<'_> {
    /// Whether this is one of many looks at something that goes on in the background.
    pub(crate) fn repeats_itself(&self) -> bool {
        self.waits > 0
    }

    /// Says of an attempt that is not given up that it was begun with what is gone by now, and how a person can end it.
    fn with_origin(&self, text: String) -> String {
        let Progress::Background(pending) = &self.facts.progress else { return text };
        let class = pending.class.name();
        let gone = match (&self.facts.claim, &self.facts.class) {
            (ClaimState::Absent, _) => "its claim, which is gone".to_owned(),
            (_, ClassState::Missing) => format!("the StorageClass \"{class}\", which is gone"),
            (_, ClassState::Foreign) => format!("the StorageClass \"{class}\", which is another provisioner's by now"),
            (_, ClassState::Ours(now)) if now.replaces(&pending.class) => {
                format!("a StorageClass \"{class}\" that was deleted and made anew since")
            }
            _ => return text,
        };
        let volume = self.volume;
        format!("{text} (begun with {gone}; the provisioner's command `journal drop {volume}` ends it by hand)")
    }

    fn provision_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> Summary {
        let text = self.with_origin(text);
        // What may have been left for a claim that is gone is removed, however often that fails.
        let wanted = matches!(&self.facts.claim, ClaimState::Waiting(claim) if !claim.facts.deleting);
        if wanted && self.is_last(self.thresholds.provision) {
            let text =
                format!("{text} (gave up after {} attempts; change the claim or its class to try again)", self.attempt);
            return Summary { next: Next::AwaitChange, ..Summary::provision(Some(failed(text)), label) };
        }
        Summary { next: retry(retry_after), ..Summary::provision(Some(failed(text)), label) }
    }

    fn delete_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> Summary {
        let last = self.is_last(self.thresholds.delete);
        let text = if last { format!("{text} (gave up after {} attempts)", self.attempt) } else { text };
        let notice = warning(About::Volume, reason::DELETE_FAILED, text);
        let next = if last { Next::AwaitChange } else { retry(retry_after) };
        Summary { next, ..Summary::deletion(Some(notice), label) }
    }

    fn is_about_claim(&self) -> bool {
        matches!(self.facts.claim, ClaimState::Waiting(_))
    }

    /// Told to whoever waits: the claim's user, or else the volume's.
    fn failed(&self, text: Option<String>, label: &'static str) -> Summary {
        let (about, reason, report) = if self.is_about_claim() {
            (About::Claim, reason::FAILED, Summary::provision as fn(_, _) -> _)
        } else {
            (About::Volume, reason::DELETE_FAILED, Summary::deletion as fn(_, _) -> _)
        };
        report(text.map(|text| warning(about, reason, text)), label)
    }

    fn is_last(&self, threshold: u32) -> bool {
        threshold > 0 && self.attempt > threshold
    }
}

fn retry(after: Option<Duration>) -> Next {
    after.map_or(Next::Retry, Next::RetryAfter)
}

/// The server's bad moments pass by themselves, and where it asks to be left alone that is no failure of the key.
fn after_call(error: &CallError) -> Next {
    match error {
        CallError::TooManyRequests { retry_after, .. } => Next::Wait(*retry_after),
        _ => Next::Retry,
    }
}

fn failed(text: String) -> Notice {
    warning(About::Claim, reason::FAILED, text)
}

fn warning(about: About, reason: &'static str, text: String) -> Notice {
    Notice { about, warning: true, reason, text, same_from_all: false }
}

fn normal(about: About, reason: &'static str, text: String) -> Notice {
    Notice { about, warning: false, reason, text, same_from_all: false }
}

fn refusal_text(refusal: &Refusal, case: &Case<'_>) -> String {
    let (provisioner, volume) = (case.provisioner, case.volume);
    let class = case.facts.claim_at_work().and_then(|claim| claim.class.as_deref()).unwrap_or_default();
    match refusal {
        Refusal::AllowedTopologies => format!(
            "{provisioner} does not heed allowedTopologies; remove them from the StorageClass \"{class}\", or its volumes would be anywhere"
        ),
        Refusal::AttemptOfOtherClass => format!(
            "an attempt for this claim was begun with other parameters of the StorageClass \"{class}\"; make the class as it was, or look in the backend for what {volume} may have left there, remove it and then the finalizer {} from the claim",
            crate::protocol::CLAIM_FINALIZER
        ),
        Refusal::ImmediateClass => format!(
            "{provisioner} makes volumes on the node that the scheduler has chosen, and the StorageClass \"{class}\" lets it choose none; create the class with volumeBindingMode: WaitForFirstConsumer"
        ),
        Refusal::MountOptions => {
            format!("{provisioner} does not support mountOptions; remove them from the StorageClass \"{class}\"")
        }
        Refusal::Populator { kind, name } => format!(
            "waiting for a volume populator: {provisioner} does not fill volumes from {kind} \"{name}\"; if nothing here does, remove the claim's dataSourceRef"
        ),
        Refusal::RetainedTooLate => format!(
            "the reclaim policy became Retain after the deletion of {volume} had begun; the object is kept, and some of its data may be gone: set the policy back to Delete to end it, or remove the finalizer {} to forget it",
            crate::protocol::FINALIZER
        ),
        Refusal::AccessModes(supported) => format!(
            "{provisioner} supports the access modes {} only; create the claim with one of them",
            supported.join(", ")
        ),
        Refusal::AttributesClass(name) => format!(
            "{provisioner} cannot honour the VolumeAttributesClass \"{name}\"; remove volumeAttributesClassName from the claim"
        ),
        Refusal::Block => format!(
            "{provisioner} does not support block volume provisioning; create the claim with volumeMode: Filesystem"
        ),
        Refusal::ClassMissing(Some(class)) => {
            format!("storageClass \"{class}\" not found; create it, or create the claim with another class")
        }
        Refusal::ClassMissing(None) => "the claim names no StorageClass; create it with storageClassName".to_owned(),
        Refusal::DataSource { kind, name } => format!(
            "{provisioner} cannot fill a volume from {kind} \"{name}\"; remove the claim's data source, or use a class whose provisioner can"
        ),
        Refusal::NameTaken => format!(
            "a PersistentVolume named {volume} exists already and is not this claim's; nothing is touched until it is gone"
        ),
        Refusal::NodeGone { node } => format!(
            "volume {volume} is on the node {node}, which does not exist any more, so nobody deletes its data; delete the volume by hand if they are gone, or bring the node back under its name"
        ),
        Refusal::OtherInstallation { maker } => format!(
            "volume {volume} was made by the installation \"{maker}\" of {provisioner} and is left alone; delete it there, or start this one with --identity {maker}"
        ),
        Refusal::Parameters(problems) => parameters_text(problems),
        Refusal::ParametersCrash(panic) => {
            parameters_text(&format!("the provisioner's code crashed while it read them: {panic}"))
        }
        Refusal::Request(problem) => format!("the claim's storage request cannot be read: {problem}"),
        Refusal::Selector => format!(
            "{provisioner} cannot provision a volume for a selector; remove spec.selector from the claim, or bind it to an existing volume"
        ),
    }
}

/// Also what `check-class` says, so that both are the same.
pub(crate) fn parameters_text(problems: &str) -> String {
    format!("the claim's StorageClass cannot be used: {problems}")
}

fn no_answer_text(no_answer: &NoAnswer, method: &str) -> String {
    match no_answer {
        NoAnswer::Panicked(text) => {
            format!(
                "The provisioner's code crashed in `{method}` and is called again: {text}; please report this to its authors"
            )
        }
        NoAnswer::CutOff => format!("`{method}` was cut off, because another replica goes on with it"),
        NoAnswer::TimedOut(limit) => {
            format!("The provisioner's `{method}` gave no answer within {} s and is called again", limit.as_secs())
        }
    }
}

fn no_answer_label(no_answer: &NoAnswer) -> &'static str {
    match no_answer {
        NoAnswer::Panicked(_) => "panicked",
        NoAnswer::CutOff => "lost",
        NoAnswer::TimedOut(_) => "timed out",
    }
}

fn no_action_label(why: NoAction) -> &'static str {
    match why {
        NoAction::AwaitsAdoption => "awaits adoption",
        NoAction::AwaitsNode => "awaits node",
        NoAction::Bound => "bound",
        NoAction::ClaimGoes => "claim goes",
        NoAction::ClaimStillSeen => "claim still seen",
        NoAction::ClassOfAnother => "class of another",
        NoAction::NotReleased => "not released",
        NoAction::OtherInstallation => "other installation",
        NoAction::OtherNode => "other node",
        NoAction::NothingHere => "nothing here",
        NoAction::Provisioned => "provisioned",
        NoAction::Retained => "retained",
        NoAction::Vetoed => "vetoed",
        NoAction::VolumeGoes => "volume goes",
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
