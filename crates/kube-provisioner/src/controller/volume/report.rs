//! The table from an outcome to its event, its label in metrics and logs, and when the key is processed again.
//!
//! All messages for users are here and in `messages`. They state the problem and its remedy.

mod draft;
mod messages;

use std::time::Duration;

use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, JournalError, Next};

pub(crate) use self::draft::{EventDraft, EventObject};
use self::draft::{failed, normal, reason, warning};
pub(crate) use self::messages::parameters_text;
use self::messages::{expansion_text, missing_input_text, no_room_text, node_inactivity_text, refusal_text};
use super::decision::{NoAction, Refusal};
use super::facts::{ClaimFacts, ClaimState, ClassState, Facts};
use super::outcome::{Done, MissingInput, NodeInactivity, Outcome, Stopped};
use crate::controller::shared::limits::{MAX_PAUSE_WITHOUT_CALL, REMIND, Thresholds, after_call, is_last, retry};
use crate::controller::shared::metrics::aborted_label;
use crate::controller::shared::texts::{
    call_failed_text, gave_up_deletion_text, gave_up_text, no_answer_text, sentence,
};
use crate::error::{DeleteVerdict, ExpandVerdict, ProvisionVerdict};

/// The event of one outcome, and the time of the key's next run.
#[derive(Debug)]
pub(crate) struct OutcomeReport {
    pub(crate) event: Option<EventDraft>,
    pub(crate) next: Next,
    /// The outcome's name in metrics and logs.
    pub(crate) label: &'static str,
    pub(crate) operation: Operation,
    /// The duration of a successful call, including requests to the API server.
    pub(crate) took: Option<Duration>,
}

/// The operation, as a label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    None,
    Provision,
    Expand,
    Delete,
}

/// The inputs of a report in addition to the outcome.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) provisioner: &'a str,
    pub(crate) volume: &'a str,
    pub(crate) facts: &'a Facts,
    pub(crate) attempt: u32,
    /// The number of consecutive immediate reruns of the key before this attempt.
    pub(crate) repeats: u32,
    /// The number of consecutive waits of the key before this attempt.
    pub(crate) waits: u32,
    pub(crate) thresholds: Thresholds,
}

/// The time for which a class may be unknown before the claim receives an event: the class watch may be behind the
/// claim watch.
const CLASS_WAIT: Duration = Duration::from_secs(1);

/// The pause before another check of a node whose replica does not create a volume.
const SILENCE: Duration = Duration::from_secs(300);

/// The pause before an infeasible expansion is retried, the same as in external-resizer.
const INFEASIBLE_PAUSE: Duration = Duration::from_secs(300);

pub(crate) fn report(outcome: Outcome, case: &Case<'_>) -> OutcomeReport {
    match outcome {
        Err(Stopped::NoAction(NoAction::ForeignClass)) if case.attempt <= 1 => {
            OutcomeReport::quiet("class_unknown", Next::RetryAfter(CLASS_WAIT))
        }
        // No other provisioner reconciles the claim, for example after an in-tree class was migrated to a CSI driver.
        Err(Stopped::NoAction(why @ NoAction::ForeignClass)) => {
            let class = case.facts.claim_at_work().and_then(|claim| claim.class.as_deref()).unwrap_or_default();
            let text = format!(
                "the claim asks {} for its volume, but its StorageClass \"{class}\" names another provisioner; delete the claim and \
                 create it with a class that names {}",
                case.provisioner, case.provisioner
            );
            let event = EventDraft { same_from_all: true, ..failed(text) };
            OutcomeReport { next: REMIND, ..OutcomeReport::provision(Some(event), no_action_label(why)) }
        }
        Err(Stopped::NoAction(why)) => OutcomeReport::quiet(no_action_label(why), Next::Done),
        Err(Stopped::AwaitsPermit(flow)) => OutcomeReport::quiet("awaits_permit", Next::AwaitPermit(flow)),
        Err(Stopped::Changed) => OutcomeReport::quiet("changed", Next::Again),
        Err(Stopped::WatchBehind) => OutcomeReport::quiet("behind", Next::Wait(None)),
        Err(Stopped::ClaimExists) => OutcomeReport::quiet("claim_lives", Next::Wait(None)),
        Ok(Done::CleanedUp) => OutcomeReport::quiet("cleaned_up", Next::Again),
        Err(Stopped::Rejected { .. }) if case.repeats == 0 => OutcomeReport::quiet("changed", Next::Again),
        Err(Stopped::Rejected { doing, error }) => {
            let text = call_failed_text(doing, &error);
            OutcomeReport { next: after_call(&error, case.attempt), ..case.failed(Some(text), "rejected") }
        }
        Ok(Done::ProtectionSet) => OutcomeReport::quiet("finalizer_set", Next::Done),
        Ok(Done::Provisioned { took }) => {
            let text = format!("Successfully provisioned volume {}", case.volume);
            let event = normal(EventObject::Claim, reason::SUCCEEDED, text);
            OutcomeReport { next: Next::Done, took: Some(took), ..OutcomeReport::provision(Some(event), "success") }
        }
        Ok(Done::CheckAgain { after }) => OutcomeReport::quiet("looks_again", Next::Wait(Some(after))),
        Err(Stopped::OtherNodeRequested { node, exists: false }) => {
            rescheduled(&missing_input_text(&MissingInput::Node(node)))
        }
        Err(Stopped::OtherNodeRequested { node, exists: true }) => {
            rescheduled(&format!("The selected node {node} does not have the CSI driver {}", case.provisioner))
        }
        Err(Stopped::NoRoom { after }) => {
            let event = normal(EventObject::Claim, reason::PROVISIONING, no_room_text(case.provisioner));
            let event = EventDraft { same_from_all: true, ..event };
            OutcomeReport { next: Next::Wait(Some(after)), ..OutcomeReport::provision(Some(event), "no_room") }
        }
        Err(Stopped::NodeInactive { node, why }) => {
            let text = node_inactivity_text(case.provisioner, &node, why, case.volume);
            let event = match why {
                NodeInactivity::Replica => normal(EventObject::Claim, reason::PROVISIONING, text),
                _ => failed(text),
            };
            let event = EventDraft { same_from_all: true, ..event };
            OutcomeReport { next: Next::Wait(Some(SILENCE)), ..OutcomeReport::provision(Some(event), "node_silent") }
        }
        Err(Stopped::Refused(refusal)) if refusal.is_about_volume() => {
            let same_from_all =
                matches!(refusal, Refusal::NodeGone { .. } | Refusal::NoUsableNode { .. } | Refusal::Unowned);
            let event = warning(EventObject::Volume, reason::DELETE_FAILED, case.refusal_text(&refusal));
            let event = EventDraft { same_from_all, ..event };
            OutcomeReport { next: REMIND, ..OutcomeReport::deletion(Some(event), "refused") }
        }
        Err(Stopped::Refused(Refusal::Expansion)) => expansion_unsupported(case),
        Err(Stopped::Refused(refusal @ Refusal::Unadopted)) => {
            let report = case.resize_failed(case.refusal_text(&refusal), "refused", None);
            let event = report.event.map(|event| EventDraft { same_from_all: true, ..event });
            OutcomeReport { event, next: REMIND, ..report }
        }
        Err(Stopped::Refused(refusal @ Refusal::Populator { .. })) => {
            let event = normal(EventObject::Claim, reason::PROVISIONING, case.refusal_text(&refusal));
            OutcomeReport { next: REMIND, ..OutcomeReport::provision(Some(event), "awaits_populator") }
        }
        Err(Stopped::Refused(Refusal::ClassMissing(Some(_)))) if case.attempt <= 1 => {
            OutcomeReport::quiet("class_unknown", Next::RetryAfter(CLASS_WAIT))
        }
        Err(Stopped::Refused(refusal)) => {
            let text = case.refusal_text(&refusal);
            let same_from_all = refusal == Refusal::ImmediateClass;
            let event = EventDraft { same_from_all, ..failed(case.with_origin(text)) };
            OutcomeReport { next: REMIND, ..OutcomeReport::provision(Some(event), "refused") }
        }
        // Only a change of the class or the claim can resolve this.
        Err(Stopped::NotReady(MissingInput::SecretName(problem))) if case.is_about_claim() => {
            let text = case.with_origin(sentence(&problem));
            OutcomeReport { next: REMIND, ..OutcomeReport::provision(Some(failed(text)), "not_ready") }
        }
        Err(Stopped::NotReady(missing)) => {
            // No watch shows when the Secret exists, so this counts against no threshold.
            let (text, case) = (missing_input_text(&missing), Case { thresholds: Thresholds::default(), ..*case });
            let report = match case.facts.claim_at_work() {
                Some(_) if case.grows() => case.resize_failed(text, "not_ready", None),
                Some(_) => case.provision_failed(text, "not_ready", None),
                None => case.delete_failed(text, "not_ready", None),
            };
            OutcomeReport { next: Next::Wait(None), ..report }
        }
        Err(Stopped::NotJournaled(error)) => not_journaled(&error, case),
        Err(Stopped::NotProvisioned { verdict, message, retry_after, rescheduled }) => {
            not_provisioned(verdict, message, retry_after, rescheduled, case)
        }
        // These calls may have created something, so they are retried without a limit.
        Err(Stopped::ProvisionAborted { aborted: CallAborted::Fenced, .. })
        | Err(Stopped::DeleteAborted { aborted: CallAborted::Fenced, .. })
        | Err(Stopped::ExpandAborted { aborted: CallAborted::Fenced }) => OutcomeReport::quiet("lost", Next::Retry),
        Err(Stopped::ProvisionAborted { method, aborted }) => {
            let text = case.with_origin(no_answer_text(&aborted, method));
            OutcomeReport::provision(Some(failed(text)), aborted_label(&aborted))
        }
        Err(Stopped::BadTemplate(error)) => {
            OutcomeReport::provision(Some(failed(sentence(&error.to_string()))), "bad_template")
        }
        Err(Stopped::NotSaved(error)) => {
            let text = format!(
                "The volume {} was created, but its PersistentVolume is not saved yet: {error}; ask the administrator",
                case.volume
            );
            // The asset exists, so retries are not limited.
            OutcomeReport {
                next: after_call(&error, case.attempt),
                ..OutcomeReport::provision(Some(failed(text)), "not_saved")
            }
        }
        Err(Stopped::NotCleanedUp { verdict, message, retry_after }) => {
            not_cleaned_up(verdict, &message, retry_after, case)
        }
        Err(Stopped::NameTakenMeanwhile) => {
            let text = case.refusal_text(&Refusal::NameTaken);
            OutcomeReport { next: Next::Retry, ..OutcomeReport::provision(Some(failed(text)), "name_taken") }
        }
        Ok(Done::Deleted { took }) => {
            OutcomeReport { next: Next::Done, took: Some(took), ..OutcomeReport::deletion(None, "success") }
        }
        Err(Stopped::NotDeleted { verdict, message, retry_after }) => not_deleted(verdict, message, retry_after, case),
        Err(Stopped::DeleteAborted { method, aborted }) => {
            case.delete_failed(no_answer_text(&aborted, method), aborted_label(&aborted), None)
        }
        Ok(Done::Expanded { took }) => {
            let event = normal(EventObject::Claim, reason::RESIZED, "Resize volume succeeded".to_owned());
            // The claim may already request more.
            OutcomeReport { next: Next::Again, took: Some(took), ..OutcomeReport::expansion(Some(event), "success") }
        }
        Err(Stopped::NotExpanded { verdict, message, retry_after }) => {
            not_expanded(verdict, message, retry_after, case)
        }
        Err(Stopped::ExpandAborted { aborted }) => {
            case.resize_failed(no_answer_text(&aborted, "expand"), aborted_label(&aborted), None)
        }
        Err(Stopped::CallFailed { doing, error }) => call_failed(doing, &error, case),
    }
}

/// Returns the event of a slow call of the author's code. The result of the call has its own event.
pub(crate) fn still_provisioning(provisioner: &str, claim: &ClaimFacts) -> EventDraft {
    let text = format!("{provisioner} is provisioning a volume for claim \"{}/{}\"", claim.namespace, claim.name);
    normal(EventObject::Claim, reason::PROVISIONING, text)
}

/// Returns the event of a volume that was created with a warning from its provisioner.
pub(crate) fn provisioned_with_warning(text: &str) -> EventDraft {
    warning(EventObject::Claim, reason::WARNING, text.to_owned())
}

/// Returns the event of an expansion that begins. The result of the expansion has its own event.
pub(crate) fn begins_resizing(provisioner: &str, volume: &str) -> EventDraft {
    normal(EventObject::Claim, reason::RESIZING, format!("{provisioner} is resizing volume {volume}"))
}

/// Returns the event for each waiting claim while the provisioner cannot work.
pub(crate) fn provisioner_paused() -> EventDraft {
    failed("No volume can be provisioned at the moment, because the provisioner cannot work; ask the administrator to check its log and /readyz".to_owned())
}

fn not_provisioned(
    verdict: ProvisionVerdict,
    message: String,
    retry_after: Option<Duration>,
    was_rescheduled: bool,
    case: &Case<'_>,
) -> OutcomeReport {
    match verdict {
        ProvisionVerdict::Ignored => {
            OutcomeReport { next: Next::AwaitChange, ..OutcomeReport::provision(None, "ignored") }
        }
        ProvisionVerdict::Invalid => {
            OutcomeReport { next: REMIND, ..OutcomeReport::provision(Some(failed(message)), "invalid") }
        }
        ProvisionVerdict::InProgress => {
            // Waiting is not a failure: it affects neither thresholds nor pauses.
            let event = normal(EventObject::Claim, reason::PROVISIONING, case.with_origin(message));
            OutcomeReport { next: Next::Wait(retry_after), ..OutcomeReport::provision(Some(event), "in_progress") }
        }
        ProvisionVerdict::Reschedule if was_rescheduled => rescheduled(&message),
        ProvisionVerdict::NoChange => {
            let report = case.provision_failed(message, "failed", retry_after);
            let next = if report.next == Next::Retry { Next::RetryWithin(MAX_PAUSE_WITHOUT_CALL) } else { report.next };
            OutcomeReport { next, ..report }
        }
        ProvisionVerdict::Reschedule
        | ProvisionVerdict::Retry
        | ProvisionVerdict::NothingLeft
        | ProvisionVerdict::AlreadyExists => case.provision_failed(message, "failed", retry_after),
    }
}

fn rescheduled(problem: &str) -> OutcomeReport {
    let text = format!("{problem}; the scheduler is asked for another node");
    OutcomeReport { next: Next::Done, ..OutcomeReport::provision(Some(failed(text)), "rescheduled") }
}

/// Reports a failed clean-up. Retries are not limited, since only the attempt's record leads to what it may have left.
fn not_cleaned_up(
    verdict: DeleteVerdict,
    message: &str,
    retry_after: Option<Duration>,
    case: &Case<'_>,
) -> OutcomeReport {
    let text = format!("Cleaning up after the attempt: {message}");
    let waits = matches!(verdict, DeleteVerdict::InProgress | DeleteVerdict::InUse);
    let next = if waits { Next::Wait(retry_after) } else { retry(retry_after) };
    let event = if waits {
        normal(EventObject::Claim, reason::PROVISIONING, text)
    } else {
        warning(EventObject::Claim, reason::CLEANUP_FAILED, case.with_origin(text))
    };
    OutcomeReport { next, ..OutcomeReport::provision(Some(event), "not_cleaned_up") }
}

fn not_deleted(
    verdict: DeleteVerdict,
    message: String,
    retry_after: Option<Duration>,
    case: &Case<'_>,
) -> OutcomeReport {
    match verdict {
        DeleteVerdict::Ignored => OutcomeReport { next: Next::AwaitChange, ..OutcomeReport::deletion(None, "ignored") },
        DeleteVerdict::InUse => {
            let event = normal(EventObject::Volume, reason::DELETE, message);
            OutcomeReport { next: retry(retry_after), ..OutcomeReport::deletion(Some(event), "in_use") }
        }
        DeleteVerdict::InProgress => {
            let event = normal(EventObject::Volume, reason::DELETE, message);
            OutcomeReport { next: Next::Wait(retry_after), ..OutcomeReport::deletion(Some(event), "in_progress") }
        }
        DeleteVerdict::Retry | DeleteVerdict::Unsupported => case.delete_failed(message, "failed", retry_after),
    }
}

/// Reports a failed expansion. Retries are not limited, since a user has requested it and waits for it.
fn not_expanded(
    verdict: ExpandVerdict,
    message: String,
    retry_after: Option<Duration>,
    case: &Case<'_>,
) -> OutcomeReport {
    match verdict {
        ExpandVerdict::Retry => case.resize_failed(message, "failed", retry_after),
        ExpandVerdict::InProgress => {
            let event = normal(EventObject::Claim, reason::RESIZING, message);
            OutcomeReport { next: Next::Wait(retry_after), ..OutcomeReport::expansion(Some(event), "in_progress") }
        }
        ExpandVerdict::Infeasible => {
            case.resize_failed(message, "infeasible", Some(retry_after.unwrap_or(INFEASIBLE_PAUSE)))
        }
        ExpandVerdict::Ignored => {
            OutcomeReport { next: Next::AwaitChange, ..OutcomeReport::expansion(None, "ignored") }
        }
        ExpandVerdict::Unsupported => expansion_unsupported(case),
    }
}

fn expansion_unsupported(case: &Case<'_>) -> OutcomeReport {
    let report = case.resize_failed(expansion_text(case.provisioner), "refused", None);
    OutcomeReport { next: REMIND, ..report }
}

fn call_failed(doing: &str, error: &CallError, case: &Case<'_>) -> OutcomeReport {
    // Transient errors have no event. A missing permission or an invalid request needs an administrator.
    let text = (!error.is_transient()).then(|| call_failed_text(doing, error));
    OutcomeReport { next: after_call(error, case.attempt), ..case.failed(text, "api_error") }
}

fn not_journaled(error: &JournalError, case: &Case<'_>) -> OutcomeReport {
    let what = match case {
        _ if case.is_about_claim() => "provisioned",
        _ if case.grows() => "expanded",
        _ => "deleted",
    };
    let (text, next) = match error {
        // Another replica continues the work. This replica learns it from the Lease.
        JournalError::Lost(_) => return OutcomeReport::quiet("lost", Next::Retry),
        JournalError::TooLarge { .. } => (
            format!(
                "The claim is too large for the provisioner's journal: {error}; delete the claim and create it with fewer or shorter labels, ownerReferences, annotations that the provisioner reads, \
                 and settings"
            ),
            REMIND,
        ),
        // The journal has room again when other attempts end. The claim itself has not failed.
        JournalError::Full { .. } => (
            format!("The volume is not {what} yet, because too many attempts are unfinished: {error}"),
            Next::Wait(None),
        ),
        JournalError::Call(error) => (
            format!(
                "The volume is not {what} yet, because the provisioner cannot write its journal: {error}; ask the administrator"
            ),
            after_call(error, case.attempt),
        ),
        error => (format!("The volume is not {what} yet: {error}"), Next::Retry),
    };
    OutcomeReport { next, ..case.failed(Some(text), "not_journaled") }
}

impl OutcomeReport {
    fn quiet(label: &'static str, next: Next) -> Self {
        Self { event: None, next, label, operation: Operation::None, took: None }
    }

    fn provision(event: Option<EventDraft>, label: &'static str) -> Self {
        Self { event, next: Next::Retry, label, operation: Operation::Provision, took: None }
    }

    fn expansion(event: Option<EventDraft>, label: &'static str) -> Self {
        Self { operation: Operation::Expand, ..Self::provision(event, label) }
    }

    fn deletion(event: Option<EventDraft>, label: &'static str) -> Self {
        Self { operation: Operation::Delete, ..Self::provision(event, label) }
    }
}

impl Case<'_> {
    /// Returns whether this is a repeated poll of work that continues in the background.
    pub(crate) fn repeats_itself(&self) -> bool {
        self.waits > 0
    }

    fn refusal_text(&self, refusal: &Refusal) -> String {
        let claim = self.facts.claim_at_work();
        if let Refusal::NameShared { rival } = refusal {
            // Do not show tenants the names of other namespaces.
            let is_near = claim.is_some_and(|claim| rival.starts_with(&format!("\"{}/", claim.namespace)));
            let rival = if is_near { format!("the claim {rival}") } else { "a claim in another namespace".to_owned() };
            return refusal_text(&Refusal::NameShared { rival }, self.provisioner, self.volume, "");
        }
        let class = claim.and_then(|claim| claim.class.as_deref()).unwrap_or_default();
        refusal_text(refusal, self.provisioner, self.volume, class)
    }

    /// Adds to a message that the attempt began with a claim or class that no longer exists, and how an administrator
    /// can end it.
    fn with_origin(&self, text: String) -> String {
        let Some(pending) = self.facts.attempt() else { return text };
        // Only the class of a waiting claim is known.
        if matches!(self.facts.claim, ClaimState::Bound { .. } | ClaimState::Unreadable(_)) {
            return text;
        }
        let class = pending.class.name();
        let gone = match (&self.facts.claim, &self.facts.class) {
            (ClaimState::Absent, _) => "a claim that no longer exists".to_owned(),
            (_, ClassState::Missing) => format!("the StorageClass \"{class}\", which no longer exists"),
            (_, ClassState::Unmanaged) => {
                format!("the StorageClass \"{class}\", which now names another provisioner")
            }
            (_, ClassState::Ours(now)) if now.replaces(&pending.class) => {
                format!("a StorageClass \"{class}\" that was deleted and created again")
            }
            _ => return text,
        };
        let volume = self.volume;
        format!("{text} (begun with {gone}; the provisioner's command `journal drop {volume}` ends it)")
    }

    fn provision_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> OutcomeReport {
        let text = self.with_origin(text);
        // The clean-up of an attempt whose claim no longer exists is retried without a limit.
        let wanted = matches!(&self.facts.claim, ClaimState::Waiting(claim) if !claim.facts.deleting);
        if wanted && is_last(self.attempt, self.thresholds.provision) {
            let text = gave_up_text(&text, self.attempt);
            return OutcomeReport { next: Next::AwaitChange, ..OutcomeReport::provision(Some(failed(text)), label) };
        }
        OutcomeReport { next: retry(retry_after), ..OutcomeReport::provision(Some(failed(text)), label) }
    }

    fn delete_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> OutcomeReport {
        let last = is_last(self.attempt, self.thresholds.delete);
        let text = if last { gave_up_deletion_text(&text, self.attempt) } else { text };
        let event = warning(EventObject::Volume, reason::DELETE_FAILED, text);
        let next = if last { Next::AwaitChange } else { retry(retry_after) };
        OutcomeReport { next, ..OutcomeReport::deletion(Some(event), label) }
    }

    fn resize_failed(&self, text: String, label: &'static str, retry_after: Option<Duration>) -> OutcomeReport {
        let event = warning(EventObject::Claim, reason::RESIZE_FAILED, text);
        OutcomeReport { next: retry(retry_after), ..OutcomeReport::expansion(Some(event), label) }
    }

    /// Returns whether the work is about a claim that has its volume and requests more.
    fn grows(&self) -> bool {
        self.facts.growing().is_some() && self.facts.attempt().is_none()
    }

    fn is_about_claim(&self) -> bool {
        matches!(self.facts.claim, ClaimState::Waiting(_))
    }

    /// Returns the report of a failure, about the waiting claim or else about the volume.
    fn failed(&self, text: Option<String>, label: &'static str) -> OutcomeReport {
        let (object, reason, report) = if self.is_about_claim() {
            (EventObject::Claim, reason::FAILED, OutcomeReport::provision as fn(_, _) -> _)
        } else if self.grows() {
            (EventObject::Claim, reason::RESIZE_FAILED, OutcomeReport::expansion as fn(_, _) -> _)
        } else {
            (EventObject::Volume, reason::DELETE_FAILED, OutcomeReport::deletion as fn(_, _) -> _)
        };
        report(text.map(|text| warning(object, reason, text)), label)
    }
}

fn no_action_label(why: NoAction) -> &'static str {
    match why {
        NoAction::AwaitsAdoption => "awaits_adoption",
        NoAction::AwaitsNode => "awaits_node",
        NoAction::Bound => "bound",
        NoAction::ClaimTerminating => "claim_terminating",
        NoAction::ClaimStillExists => "claim_still_seen",
        NoAction::ForeignClass => "class_of_another",
        NoAction::NotReleased => "not_released",
        NoAction::OtherCluster => "other_cluster",
        NoAction::OtherInstallation => "other_installation",
        NoAction::OtherNode => "other_node",
        NoAction::Unrelated => "nothing_here",
        NoAction::Provisioned => "provisioned",
        NoAction::Retained => "retained",
        NoAction::Vetoed => "vetoed",
        NoAction::VolumeTerminating => "volume_terminating",
    }
}
