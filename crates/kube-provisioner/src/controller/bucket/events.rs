//! Events and log lines.

use std::time::Duration;

use objectbucket_api::API_VERSION;
use provisioner_runtime::events::{Event, EventKind, ObjectRef};

use super::facts::{ClaimFacts, Facts};
use super::messages::{Severity, Told, made_with_warning, not_now, still_provisioning};

/// A call that takes longer than this has an event of its own.
pub(super) const SLOW: Duration = Duration::from_secs(2);

pub(super) fn slow(provisioner: &str, claim: &ClaimFacts) -> Event {
    about_claim(still_provisioning(provisioner, &claim.name().to_string()), claim)
}

pub(super) fn warned(text: &str, claim: &ClaimFacts) -> Event {
    about_claim(made_with_warning(text), claim)
}

pub(super) fn held_up(claim: &ClaimFacts, problem: &str) -> Event {
    about_claim(not_now(problem), claim)
}

/// The event with its object: the claim, or the ObjectBucket of a claim that is gone.
pub(super) fn to_event(told: Told, facts: &Facts) -> Option<Event> {
    if told.severity == Severity::Silent {
        return None;
    }
    if let Some(claim) = &facts.claim {
        return Some(about_claim(told, claim));
    }
    let bucket = facts.bucket()?;
    let object = ObjectRef {
        api_version: API_VERSION,
        kind: "ObjectBucket",
        namespace: None,
        name: bucket.name.clone(),
        uid: bucket.uid.clone(),
    };
    Some(build(told, object))
}

fn about_claim(told: Told, claim: &ClaimFacts) -> Event {
    let object = ObjectRef {
        api_version: API_VERSION,
        kind: "ObjectBucketClaim",
        namespace: Some(claim.namespace.clone()),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
    };
    build(told, object)
}

fn build(told: Told, object: ObjectRef) -> Event {
    let kind = if told.severity == Severity::Warning { EventKind::Warning } else { EventKind::Normal };
    let action = if told.reason.starts_with("Bucket") { "Delete" } else { "Provision" };
    Event { object, kind, reason: told.reason, action, note: told.text, same_from_all: false }
}

pub(super) fn log(told: Option<&Told>, facts: &Facts, attempt: u32, outcome: &'static str) {
    let claim = facts.claim_name();
    let (namespace, name) = claim.as_ref().map(|claim| (&*claim.namespace, &*claim.name)).unzip();
    let class = facts.class_name();
    match told {
        Some(Told { severity: Severity::Warning, text, .. }) => {
            tracing::warn!(
                obc.namespace = namespace,
                obc.name = name,
                storage_class = class,
                attempt,
                outcome,
                "{text}"
            );
        }
        Some(Told { text, .. }) => {
            tracing::info!(obc.namespace = namespace, obc.name = name, storage_class = class, outcome, "{text}");
        }
        None => tracing::debug!(obc.namespace = namespace, obc.name = name, attempt, outcome, "looked at"),
    }
}
