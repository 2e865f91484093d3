//! The table from what happened to what is told and what comes next: events, labels, pauses.
//!
//! The only place with texts for users. They say what is wrong and what to do about it.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::queue::Next;

use super::act::{Breakage, Outcome};
use super::decide::{Refusal, Rest};
use super::facts::{ClaimFacts, ClaimState, Facts};
use crate::error::{DeleteVerdict, Verdict};

/// What is told of one outcome, and when the key is looked at again.
#[derive(Debug)]
pub(crate) struct Report {
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
    pub(crate) thresholds: Thresholds,
}

/// How long a class may be unknown before the user hears of it: the watch of classes may be behind the one of claims.
const CLASS_WAIT: Duration = Duration::from_secs(1);

pub(crate) fn report(outcome: Outcome, case: &Case<'_>) -> Report {
    match outcome {
        Outcome::Rested(why) => Report::quiet(rest_label(why), Next::Done),
        Outcome::LaneFull(lane) => Report::quiet("lane full", Next::AwaitLane(lane)),
        Outcome::Changed => Report::quiet("changed", Next::Again),
        Outcome::ProtectionSet => Report::quiet("finalizer set", Next::Done),
        Outcome::Provisioned { took } => {
            let text = format!("Successfully provisioned volume {}", case.volume);
            let notice = Notice { about: About::Claim, warning: false, reason: reason::SUCCEEDED, text };
            Report { next: Next::Done, took: Some(took), ..Report::provision(Some(notice), "success") }
        }
        Outcome::Refused(refusal @ Refusal::OtherInstallation { .. }) => {
            let text = refusal_text(&refusal, case.provisioner, case.volume);
            let notice = Notice { about: About::Volume, warning: true, reason: reason::DELETE_FAILED, text };
            Report { next: Next::AwaitChange, ..Report::deletion(Some(notice), "other installation") }
        }
        Outcome::Refused(Refusal::ClassMissing(Some(_))) if case.attempt <= 1 => {
            Report::quiet("class unknown", Next::RetryAfter(CLASS_WAIT))
        }
        Outcome::Refused(refusal) => {
            let text = refusal_text(&refusal, case.provisioner, case.volume);
            Report { next: Next::AwaitChange, ..Report::provision(Some(failed(text)), "refused") }
        }
        Outcome::Locked { by, look_again } => {
            tracing::debug!(pv = case.volume, by, "locked");
            Report::quiet("locked", Next::RetryAfter(look_again))
        }
        Outcome::NotJournaled(error) => not_journaled(&error, case),
        Outcome::NotProvisioned { verdict, message, retry_after, rescheduled } => {
            not_provisioned(verdict, message, retry_after, rescheduled, case)
        }
        // Something may have been made in these two, so no threshold ends them.
        Outcome::ProvisionBroke(Breakage::CutOff) | Outcome::DeleteBroke(Breakage::CutOff) => {
            Report::quiet("lost", Next::Retry)
        }
        Outcome::ProvisionBroke(breakage) => {
            Report::provision(Some(failed(breakage_text(&breakage, "provision"))), breakage_label(&breakage))
        }
        Outcome::BadTemplate(error) => Report::provision(Some(failed(sentence(&error.to_string()))), "bad template"),
        Outcome::NotSaved(error) => {
            let text = format!("The volume {} is made but not saved yet: {error}", case.volume);
            // There is an asset: no threshold ends this.
            Report { next: retry(error.retry_after()), ..Report::provision(Some(failed(text)), "not saved") }
        }
        Outcome::NameTakenMeanwhile => {
            let text = refusal_text(&Refusal::NameTaken, case.provisioner, case.volume);
            Report { next: Next::Retry, ..Report::provision(Some(failed(text)), "name taken") }
        }
        Outcome::Deleted { took } => Report { next: Next::Done, took: Some(took), ..Report::deletion(None, "success") },
        Outcome::NotDeleted { verdict, message, retry_after } => not_deleted(verdict, message, retry_after, case),
        Outcome::DeleteBroke(breakage) => {
            case.delete_failed(breakage_text(&breakage, "delete"), breakage_label(&breakage), None)
        }
        Outcome::CallFailed { doing, error } => call_failed(doing, &error, case),
    }
}

/// Told while a call of the author's code takes its time. What comes of it is told when it is known.
pub(crate) fn slow(provisioner: &str, claim: &ClaimFacts) -> Notice {
    let text = format!("{provisioner} is provisioning a volume for claim \"{}/{}\"", claim.namespace, claim.name);
    Notice { about: About::Claim, warning: false, reason: reason::PROVISIONING, text }
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
) -> Report {
    match verdict {
        Verdict::NotMine => Report { next: Next::AwaitChange, ..Report::provision(None, "ignored") },
        Verdict::Invalid => Report { next: Next::AwaitChange, ..Report::provision(Some(failed(message)), "invalid") },
        Verdict::InProgress => {
            let notice = Notice { about: About::Claim, warning: false, reason: reason::PROVISIONING, text: message };
            // Not a failure, so no threshold: the backend would be left alone with its work.
            Report { next: retry(retry_after), ..Report::provision(Some(notice), "in progress") }
        }
        Verdict::Reschedule if rescheduled => {
            let text = format!("{message}; the scheduler is asked for another node");
            Report { next: Next::Done, ..Report::provision(Some(failed(text)), "rescheduled") }
        }
        Verdict::Reschedule | Verdict::Retry => case.provision_failed(message, "failed", retry_after),
    }
}

fn not_deleted(verdict: DeleteVerdict, message: String, retry_after: Option<Duration>, case: &Case<'_>) -> Report {
    match verdict {
        DeleteVerdict::NotMine => Report { next: Next::AwaitChange, ..Report::deletion(None, "ignored") },
        DeleteVerdict::InUse => {
            let notice = Notice { about: About::Volume, warning: false, reason: reason::DELETE, text: message };
            Report { next: retry(retry_after), ..Report::deletion(Some(notice), "in use") }
        }
        DeleteVerdict::Retry => case.delete_failed(message, "failed", retry_after),
    }
}

fn call_failed(doing: &str, error: &CallError, case: &Case<'_>) -> Report {
    let text = format!("{}: {error}", sentence(doing));
    // The server's bad moments pass by themselves; what lacks a right or is invalid needs a person.
    let text = (!error.is_transient()).then_some(text);
    Report { next: retry(error.retry_after()), ..case.failed(text, "api error") }
}

fn not_journaled(error: &JournalError, case: &Case<'_>) -> Report {
    let retry_after = match error {
        // Another replica goes on; this one is told that by its Lease.
        JournalError::Lost(_) => return Report::quiet("lost", Next::Retry),
        JournalError::Call(error) => error.retry_after(),
        _ => None,
    };
    let what = if case.is_about_claim() { "made" } else { "deleted" };
    let (text, next) = match error {
        JournalError::TooLarge { .. } => {
            let advice = "shorten the claim's annotations or the class's";
            (
                format!("No volume is made for what the provisioner's journal cannot hold: {error}; {advice}"),
                Next::AwaitChange,
            )
        }
        _ => {
            let text =
                format!("The volume is not {what} yet, because the provisioner cannot write its journal: {error}");
            (text, retry(retry_after))
        }
    };
    Report { next, ..case.failed(Some(text), "not journaled") }
}

impl Report {
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
    fn provision_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> Report {
        if self.is_last(self.thresholds.provision) {
            let text =
                format!("{text} (gave up after {} attempts; change the claim or its class to try again)", self.attempt);
            return Report { next: Next::AwaitChange, ..Report::provision(Some(failed(text)), label) };
        }
        Report { next: retry(retry_after), ..Report::provision(Some(failed(text)), label) }
    }

    fn delete_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> Report {
        let last = self.is_last(self.thresholds.delete);
        let text = if last { format!("{text} (gave up after {} attempts)", self.attempt) } else { text };
        let notice = Notice { about: About::Volume, warning: true, reason: reason::DELETE_FAILED, text };
        let next = if last { Next::AwaitChange } else { retry(retry_after) };
        Report { next, ..Report::deletion(Some(notice), label) }
    }

    fn is_about_claim(&self) -> bool {
        matches!(self.facts.claim, ClaimState::Waiting(_))
    }

    /// Told to whoever waits: the claim's user, or else the volume's.
    fn failed(&self, text: Option<String>, label: &'static str) -> Report {
        let (about, reason, report) = if self.is_about_claim() {
            (About::Claim, reason::FAILED, Report::provision as fn(_, _) -> _)
        } else {
            (About::Volume, reason::DELETE_FAILED, Report::deletion as fn(_, _) -> _)
        };
        report(text.map(|text| Notice { about, warning: true, reason, text }), label)
    }

    fn is_last(&self, threshold: u32) -> bool {
        threshold > 0 && self.attempt > threshold
    }
}

fn retry(after: Option<Duration>) -> Next {
    after.map_or(Next::Retry, Next::RetryAfter)
}

fn failed(text: String) -> Notice {
    Notice { about: About::Claim, warning: true, reason: reason::FAILED, text }
}

fn refusal_text(refusal: &Refusal, provisioner: &str, volume: &str) -> String {
    match refusal {
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
        Refusal::OtherInstallation { maker } => format!(
            "volume {volume} was made by the installation \"{maker}\" of {provisioner} and is left alone; delete it there, or start this one with --identity {maker}"
        ),
        Refusal::Parameters(problems) => parameters_text(problems),
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

fn breakage_text(breakage: &Breakage, method: &str) -> String {
    match breakage {
        Breakage::Panicked(text) => {
            format!(
                "The provisioner's code crashed in `{method}` and is called again: {text}; please report this to its authors"
            )
        }
        Breakage::CutOff => format!("`{method}` was cut off, because another replica goes on with it"),
        Breakage::TimedOut(limit) => {
            format!("The provisioner's `{method}` gave no answer within {} s and is called again", limit.as_secs())
        }
    }
}

fn breakage_label(breakage: &Breakage) -> &'static str {
    match breakage {
        Breakage::Panicked(_) => "panicked",
        Breakage::CutOff => "lost",
        Breakage::TimedOut(_) => "timed out",
    }
}

fn rest_label(why: Rest) -> &'static str {
    match why {
        Rest::AwaitsNode => "awaits node",
        Rest::Bound => "bound",
        Rest::ClaimGoes => "claim goes",
        Rest::ClaimStillSeen => "claim still seen",
        Rest::ClassOfAnother => "class of another",
        Rest::NotReleased => "not released",
        Rest::OtherInstallation => "other installation",
        Rest::OtherNode => "other node",
        Rest::NothingHere => "nothing here",
        Rest::Provisioned => "provisioned",
        Rest::Retained => "retained",
        Rest::Vetoed => "vetoed",
        Rest::VolumeGoes => "volume goes",
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
