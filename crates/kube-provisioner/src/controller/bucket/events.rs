//! Events and log lines.

use objectbucket_api::API_VERSION;
use provisioner_runtime::events::{Event, ObjectRef};

use super::facts::{ClaimFacts, Facts};
use super::messages::{
    Severity, UserMessage, has_unused_prefix, provisioned_with_warning, provisioner_paused, removed_unknown_keys,
    still_provisioning,
};
use super::outcome::Operation;
use crate::controller::shared::events::{build, claim_ref, object_ref};

pub(super) fn slow(provisioner: &str, claim: &ClaimFacts) -> Event {
    about_claim(&still_provisioning(provisioner, &claim.name().to_string()), Operation::Provision, claim)
}

pub(super) fn warned(text: &str, claim: &ClaimFacts) -> Event {
    about_claim(&provisioned_with_warning(text), Operation::Provision, claim)
}

pub(super) fn unused_prefix(bucket: &str, claim: &ClaimFacts) -> Event {
    about_claim(&has_unused_prefix(bucket), Operation::Provision, claim)
}

pub(super) fn unknown_keys(ids: &[String], claim: &ClaimFacts) -> Event {
    about_claim(&removed_unknown_keys(ids), Operation::Retire, claim)
}

pub(super) fn blocked(claim: &ClaimFacts) -> Event {
    let operation = if claim.deleting { Operation::Delete } else { Operation::Provision };
    about_claim(&provisioner_paused(claim.deleting), operation, claim)
}

/// Adds the object to the event: the claim, or the ObjectBucket of a claim that no longer exists.
pub(super) fn to_event(message: &UserMessage, operation: Operation, facts: &Facts) -> Option<Event> {
    if message.severity == Severity::Silent {
        return None;
    }
    if let Some(claim) = &facts.claim {
        return Some(about_claim(message, operation, claim));
    }
    let bucket = facts.bucket()?;
    Some(about(message, operation, object_ref((API_VERSION, "ObjectBucket"), &bucket.name, &bucket.uid)))
}

fn about_claim(message: &UserMessage, operation: Operation, claim: &ClaimFacts) -> Event {
    let object = claim_ref((API_VERSION, "ObjectBucketClaim"), [&claim.namespace, &claim.name, &claim.uid]);
    about(message, operation, object)
}

fn about(message: &UserMessage, operation: Operation, object: ObjectRef) -> Event {
    let is_warning = message.severity == Severity::Warning;
    build(object, is_warning, message.reason, operation.action(), message.text.clone())
}

pub(super) fn log(message: Option<&UserMessage>, facts: &Facts, attempt: u32, outcome: &'static str) {
    let claim = facts.claim_name();
    let (namespace, name) = claim.as_ref().map(|claim| (&*claim.namespace, &*claim.name)).unzip();
    let class = facts.class_name();
    match message {
        Some(UserMessage { severity: Severity::Warning, text, .. }) => {
            tracing::warn!(
                obc.namespace = namespace,
                obc.name = name,
                storage_class = class,
                attempt,
                outcome,
                "{text}"
            );
        }
        Some(UserMessage { text, .. }) => {
            tracing::info!(obc.namespace = namespace, obc.name = name, storage_class = class, outcome, "{text}");
        }
        None => tracing::debug!(obc.namespace = namespace, obc.name = name, attempt, outcome, "nothing to report"),
    }
}
