//! Checks that `docs/book/pages/reference/events.md` has a row for each message that users can see, and no other rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use provisioner_runtime::journal::JournalError;

use self::Example::{Claim, Growth, Volume};
use super::*;
use crate::controller::shared::event_table::{
    MESSAGE, NUMBER, Row, all_aborted, call_error, compare_with_page, delete_verdicts, every, verdicts, with_capitals,
};
use crate::controller::shared::limits::Thresholds;
use crate::controller::volume::decision::{NoAction, Refusal};
use crate::controller::volume::facts::{ClaimState, ClassState, Facts, Progress};
use crate::controller::volume::object::TemplateError;
use crate::controller::volume::outcome::{Done, MissingInput, NodeInactivity, Outcome, Stopped};
use crate::controller::volume::report::{
    Case, EventDraft, EventObject, begins_resizing, provisioned_with_warning, provisioner_paused, report,
    still_provisioning,
};
use crate::error::with_log_hint;
use crate::{DeleteVerdict, ExpandVerdict, ProvisionVerdict};

every!(refusals -> Refusal {
    Refusal::AccessModes(_) => [Refusal::AccessModes(vec!["MODES".to_owned()])],
    Refusal::AllowedTopologies => [Refusal::AllowedTopologies],
    Refusal::AttributesClass(_) => [Refusal::AttributesClass("NAME".to_owned())],
    Refusal::BindCompleted => [Refusal::BindCompleted],
    Refusal::Block => [Refusal::Block],
    Refusal::ClassMissing(_) => [Refusal::ClassMissing(Some("CLASS".to_owned())), Refusal::ClassMissing(None)],
    Refusal::Copy { .. } => [Refusal::Copy { uid: "UID".to_owned() }],
    Refusal::DataSource { .. } => [Refusal::DataSource { kind: "KIND".to_owned(), name: "NAME".to_owned() }],
    Refusal::Expansion => [],
    Refusal::ImmediateClass => [Refusal::ImmediateClass],
    Refusal::MountOptions => [Refusal::MountOptions],
    Refusal::NameShared { .. } => ["\"NAMESPACE/OTHER\"", "\"there/OTHER\""].map(|rival| Refusal::NameShared { rival: rival.to_owned() }),
    Refusal::NameTaken => [Refusal::NameTaken],
    Refusal::Unowned => [Refusal::Unowned],
    Refusal::NoUsableNode { .. } => [Refusal::NoUsableNode { place: "LABELS".to_owned() }],
    Refusal::NodeGone { .. } => [Refusal::NodeGone { node: "NODE".to_owned() }],
    Refusal::OtherCluster { .. } => [Refusal::OtherCluster { creator: "CLUSTER".to_owned() }],
    Refusal::OtherInstallation { .. } => [Refusal::OtherInstallation { creator: "IDENTITY".to_owned() }],
    Refusal::Parameters(_) => [Refusal::Parameters("PROBLEMS".to_owned())],
    // The class is read again, and the crash is reported like a crash in a call.
    Refusal::ParametersCrash(_) => [],
    Refusal::Populator { .. } => [Refusal::Populator { kind: "KIND".to_owned(), name: "NAME".to_owned() }],
    Refusal::Request(_) => [Refusal::Request("PROBLEM".to_owned())],
    Refusal::RetainedTooLate => [Refusal::RetainedTooLate],
    Refusal::Selector => [Refusal::Selector],
    Refusal::SourceNamespace { .. } => {
        [Refusal::SourceNamespace { namespace: "NAMESPACE".to_owned(), name: "NAME".to_owned() }]
    },
    Refusal::Unadopted => [Refusal::Unadopted],
    Refusal::Unreleased { .. } => [Refusal::Unreleased { uid: "UID".to_owned() }],
    Refusal::Unreadable { .. } => [Refusal::Unreadable { problem: "PROBLEM".to_owned() }],
    Refusal::UnreadableVolume { .. } => [Refusal::UnreadableVolume { problem: "PROBLEM".to_owned() }],
});

every!(missing_inputs -> MissingInput {
    MissingInput::Node(_) => [MissingInput::Node("NODE".to_owned())],
    MissingInput::Secret { .. } => [MissingInput::Secret { namespace: "NAMESPACE".to_owned(), name: "NAME".to_owned() }],
    MissingInput::SecretName(_) => [MissingInput::SecretName("PROBLEM".to_owned())],
});

every!(node_inactivities -> NodeInactivity {
    NodeInactivity::NotReady => [NodeInactivity::NotReady],
    NodeInactivity::NoReplica => [NodeInactivity::NoReplica],
    NodeInactivity::MayHaveBegun => [NodeInactivity::MayHaveBegun],
    NodeInactivity::Unrecorded => [NodeInactivity::Unrecorded],
    NodeInactivity::Replica => [NodeInactivity::Replica],
});

every!(template_errors -> TemplateError {
    TemplateError::AccessMode(_) => [TemplateError::AccessMode("MODE".to_owned())],
    TemplateError::TooSmall { .. } => [TemplateError::TooSmall { made: NUMBER.into(), asked: NUMBER.into() }],
    TemplateError::LocalWithoutNode => [TemplateError::LocalWithoutNode],
    TemplateError::Path(_) => [TemplateError::Path("PATH".to_owned())],
});

every!(expand_verdicts -> ExpandVerdict {
    ExpandVerdict::Retry => [ExpandVerdict::Retry],
    ExpandVerdict::InProgress => [ExpandVerdict::InProgress],
    ExpandVerdict::Infeasible => [ExpandVerdict::Infeasible],
    ExpandVerdict::Ignored => [ExpandVerdict::Ignored],
    ExpandVerdict::Unsupported => [ExpandVerdict::Unsupported],
});

/// An outcome of work on a waiting claim, on a bound claim that requests more, or on a released volume whose claim no
/// longer exists.
enum Example {
    Claim(Outcome),
    Growth(Outcome),
    Volume(Outcome),
}

every!(done_examples of Done => Example {
    Done::CheckAgain { .. } => [],
    Done::Provisioned { .. } => [Claim(Ok(Done::Provisioned { took: Duration::ZERO }))],
    Done::CleanedUp => [],
    Done::Deleted { .. } => [],
    Done::ProtectionSet => [],
    Done::Expanded { .. } => [Growth(Ok(Done::Expanded { took: Duration::ZERO }))],
});

every!(stopped_examples of Stopped => Example {
    Stopped::NoAction(_) => [Claim(Err(Stopped::NoAction(NoAction::ForeignClass)))],
    Stopped::Refused(_) => refusals().into_iter().map(|refusal| Claim(Err(Stopped::Refused(refusal)))),
    Stopped::AwaitsPermit(_) => [],
    Stopped::Changed => [],
    Stopped::WatchBehind => [],
    Stopped::OtherNodeRequested { .. } => {
        [false, true].map(|exists| Claim(Err(Stopped::OtherNodeRequested { node: "NODE".to_owned(), exists })))
    },
    Stopped::NoRoom { .. } => [Claim(Err(Stopped::NoRoom { after: Duration::ZERO }))],
    Stopped::NodeInactive { .. } => node_inactivities().into_iter().map(|why| {
        Claim(Err(Stopped::NodeInactive { node: "NODE".to_owned(), why }))
    }),
    Stopped::Rejected { .. } => of_each(|| Err(Stopped::Rejected { doing: "DOING", error: call_error() })),
    Stopped::NotJournaled(_) => journal_errors(),
    Stopped::NotReady(_) => {
        let claim = missing_inputs().into_iter().map(|missing| Claim(Err(Stopped::NotReady(missing))));
        // Deleting also needs the Secrets.
        let secret = missing_inputs().into_iter().filter(|missing| matches!(missing, MissingInput::Secret { .. }));
        let missing = secret.flat_map(|missing| {
            let MissingInput::Secret { namespace, name } = missing else { return Vec::new() };
            let again = || Err(Stopped::NotReady(MissingInput::Secret { namespace: namespace.clone(), name: name.clone() }));
            vec![Growth(again()), Volume(again())]
        });
        claim.chain(missing)
    },
    Stopped::NotProvisioned { .. } => verdicts().into_iter().map(|verdict| {
        let rescheduled = verdict == ProvisionVerdict::Reschedule;
        Claim(Err(Stopped::NotProvisioned { verdict, message: MESSAGE.to_owned(), retry_after: None, rescheduled }))
    }),
    Stopped::ProvisionAborted { .. } => all_aborted().into_iter().map(|aborted| {
        Claim(Err(Stopped::ProvisionAborted { method: "METHOD", aborted }))
    }),
    Stopped::BadTemplate(_) => template_errors().into_iter().map(|error| Claim(Err(Stopped::BadTemplate(error)))),
    Stopped::NotSaved(_) => [Claim(Err(Stopped::NotSaved(call_error())))],
    Stopped::NameTakenMeanwhile => [Claim(Err(Stopped::NameTakenMeanwhile))],
    Stopped::NotCleanedUp { .. } => delete_verdicts().into_iter().map(|verdict| {
        Claim(Err(Stopped::NotCleanedUp { verdict, message: MESSAGE.to_owned(), retry_after: None }))
    }),
    Stopped::ClaimExists => [],
    Stopped::NotDeleted { .. } => delete_verdicts().into_iter().map(|verdict| {
        Volume(Err(Stopped::NotDeleted { verdict, message: MESSAGE.to_owned(), retry_after: None }))
    }),
    Stopped::DeleteAborted { .. } => all_aborted().into_iter().map(|aborted| {
        Volume(Err(Stopped::DeleteAborted { method: "METHOD", aborted }))
    }),
    Stopped::NotExpanded { .. } => expand_verdicts().into_iter().map(|verdict| {
        Growth(Err(Stopped::NotExpanded { verdict, message: MESSAGE.to_owned(), retry_after: None }))
    }),
    Stopped::ExpandAborted { .. } => all_aborted().into_iter().map(|aborted| Growth(Err(Stopped::ExpandAborted { aborted }))),
    Stopped::CallFailed { .. } => of_each(|| Err(Stopped::CallFailed { doing: "DOING", error: call_error() })),
});

fn of_each(outcome: impl Fn() -> Outcome) -> [Example; 3] {
    [Claim(outcome()), Growth(outcome()), Volume(outcome())]
}

/// Returns an example of each journal error. The type belongs to another crate, which may add variants.
fn journal_errors() -> Vec<Example> {
    let number = NUMBER as usize;
    let mut all = vec![
        Claim(Err(Stopped::NotJournaled(JournalError::Full { entries: number, bytes: number }))),
        Claim(Err(Stopped::NotJournaled(JournalError::TooLarge { bytes: number, most: number }))),
        Claim(Err(Stopped::NotJournaled(JournalError::Dropped))),
    ];
    all.extend(of_each(|| Err(Stopped::NotJournaled(JournalError::Call(Arc::new(call_error()))))));
    all
}

/// Returns the event as the page shows it.
fn row(event: EventDraft) -> Row {
    let EventDraft { object, warning, reason, text, .. } = event;
    let kind = if warning { "Warning" } else { "Normal" };
    let object = match object {
        EventObject::Claim => "claim",
        EventObject::Volume => "volume",
    };
    (format!("`{reason}` ({kind}, on the {object})"), with_capitals(&text))
}

fn waiting() -> Fixture {
    let named = json!({"metadata": {"name": "CLAIM", "namespace": "NAMESPACE"}, "spec": {"storageClassName": "CLASS"}});
    Fixture::new().class(class(json!({"metadata": {"name": "CLASS"}}))).claim(claim(named))
}

fn facts_of_claim() -> Facts {
    waiting().cache.facts(&Key::of_claim("uid-1-1"))
}

fn facts_of_volume() -> Facts {
    let fixture = Fixture::new().volume(volume("Released", "Delete", json!({})));
    fixture.cache.facts(&Key::of_volume("volume-1"))
}

fn facts_of_growth() -> Facts {
    let fixture =
        Fixture::new().claim(super::growth::growing(json!({}))).volume(super::growth::bound_volume(json!({})));
    fixture.cache.facts(&Key::of_claim("uid-1-1"))
}

fn event(outcome: Outcome, facts: &Facts, thresholds: Thresholds) -> Option<EventDraft> {
    let (provisioner, volume) = ("PROVISIONER", "VOLUME");
    // Use a later attempt, since some outcomes have an event only when they are repeated.
    report(outcome, &Case { provisioner, volume, facts, attempt: NUMBER, repeats: 1, waits: 0, thresholds }).event
}

fn rows_of_outcomes() -> BTreeSet<Row> {
    let (of_claim, of_growth) = (facts_of_claim(), facts_of_growth());
    let (of_volume, thresholds) = (facts_of_volume(), Thresholds::default());
    let events = done_examples().into_iter().chain(stopped_examples()).filter_map(|example| match example {
        Claim(outcome) => event(outcome, &of_claim, thresholds),
        Growth(outcome) => event(outcome, &of_growth, thresholds),
        Volume(outcome) => event(outcome, &of_volume, thresholds),
    });
    let claim = of_claim.claim_at_work().unwrap();
    let others = [
        begins_resizing("PROVISIONER", "VOLUME"),
        still_provisioning("PROVISIONER", claim),
        provisioned_with_warning(MESSAGE),
        provisioner_paused(),
    ];
    events.chain(others).map(row).collect()
}

/// Returns the rows of the sentences that are appended to some messages.
fn rows_of_additions() -> BTreeSet<Row> {
    let failed = |verdict| {
        let message = MESSAGE.to_owned();
        Err(Stopped::NotProvisioned { verdict, message, retry_after: None, rescheduled: false })
    };
    let not_deleted =
        Err(Stopped::NotDeleted { verdict: DeleteVerdict::Retry, message: MESSAGE.to_owned(), retry_after: None });
    let once = Thresholds { provision: 1, delete: 1 };
    let mut events = vec![
        event(failed(ProvisionVerdict::Retry), &facts_of_claim(), once),
        event(not_deleted, &facts_of_volume(), once),
    ];
    let mut begun = facts_of_claim();
    let ClassState::Ours(class_now) = begun.class.clone() else { panic!("{:?}", begun.class) };
    let ClaimState::Waiting(waits) = begun.claim.clone() else { panic!("{:?}", begun.claim) };
    let class_then =
        Fixture::new().class(class(json!({"metadata": {"name": "CLASS", "uid": "former", "resourceVersion": "0"}})));
    let class_then = class_then
        .claim(claim(json!({"spec": {"storageClassName": "CLASS"}})))
        .cache
        .facts(&Key::of_claim("uid-1-1"))
        .class;
    let ClassState::Ours(class_then) = class_then else { panic!("{class_then:?}") };
    let token = "token".into();
    begun.progress = Progress::Background(Arc::new(Pending { claim: waits, class: class_then, token, ..pending() }));
    let changes = [
        (ClaimState::Absent, ClassState::Missing),
        (begun.claim.clone(), ClassState::Missing),
        (begun.claim.clone(), ClassState::Unmanaged),
        (begun.claim.clone(), ClassState::Ours(class_now)),
    ];
    for (claim, class) in changes {
        let facts = Facts { claim, class, ..begun.clone() };
        events.push(event(failed(ProvisionVerdict::Retry), &facts, Thresholds::default()));
    }
    let addition = |event: EventDraft| {
        let (_, text) = row(event);
        ("Additions".to_owned(), text.strip_prefix("MESSAGE ").unwrap_or_else(|| panic!("{text}")).to_owned())
    };
    let hint = with_log_hint(MESSAGE).replacen("MESSAGE ", "", 1);
    events.into_iter().flatten().map(addition).chain([("Additions".to_owned(), hint)]).collect()
}

#[test]
fn the_page_has_a_row_for_each_message() {
    compare_with_page("events.md", rows_of_outcomes().into_iter().chain(rows_of_additions()).collect());
}
