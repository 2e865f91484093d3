//! Events and log lines of a report.

use provisioner_runtime::events::{Event, ObjectRef};

use super::facts::{ClaimFacts, Facts, VolumeState};
use super::report::{Case, EventDraft, EventObject, Operation, OutcomeReport};
use crate::controller::shared::events::{build, claim_ref, object_ref};

/// Adds the object to the event, if the object is known.
pub(super) fn to_event(event: EventDraft, case: &Case<'_>) -> Option<Event> {
    match event.object {
        EventObject::Claim => case.facts.claim_at_work().map(|claim| about_claim(event, claim)),
        EventObject::Volume => about_volume(event, case.volume, case.facts),
    }
}

pub(super) fn about_claim(event: EventDraft, claim: &ClaimFacts) -> Event {
    let object = claim_ref(("v1", "PersistentVolumeClaim"), [&claim.namespace, &claim.name, &claim.uid]);
    about(event, object)
}

fn about_volume(event: EventDraft, name: &str, facts: &Facts) -> Option<Event> {
    let uid = match &facts.volume {
        VolumeState::Ours(volume) => &volume.facts.uid,
        VolumeState::Unreadable(volume) => &volume.uid,
        VolumeState::Absent | VolumeState::Unmanaged => return None,
    };
    Some(about(event, object_ref(("v1", "PersistentVolume"), name, uid)))
}

fn about(event: EventDraft, object: ObjectRef) -> Event {
    let action = event.action();
    let EventDraft { warning, reason, text, same_from_all, .. } = event;
    Event { same_from_all, ..build(object, warning, reason, action, text) }
}

pub(super) fn log(report: &OutcomeReport, case: &Case<'_>) {
    let claim = case.facts.claim_at_work();
    let (namespace, name) = claim.map(|claim| (&*claim.namespace, &*claim.name)).unzip();
    let class = claim.and_then(|claim| claim.class.as_deref());
    let (attempt, pv, outcome) = (case.attempt, case.volume, report.label);
    let took_ms = report.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    match &report.event {
        Some(EventDraft { warning: true, text, .. }) => {
            tracing::warn!(
                pvc.namespace = namespace,
                pvc.name = name,
                pv,
                storage_class = class,
                attempt,
                outcome,
                "{text}"
            );
        }
        // Polls of a running operation are frequent, and the event counts them.
        Some(EventDraft { text, .. }) if report.took.is_none() && case.repeats_itself() => {
            tracing::debug!(pvc.namespace = namespace, pvc.name = name, pv, outcome, "{text}");
        }
        Some(EventDraft { text, .. }) => {
            tracing::info!(pvc.namespace = namespace, pvc.name = name, pv, storage_class = class, took_ms, "{text}");
        }
        None if report.operation == Operation::Delete && report.took.is_some() => {
            tracing::info!(pv, took_ms, "deleted");
        }
        None => tracing::debug!(pv, attempt, outcome, "nothing to report"),
    }
}
