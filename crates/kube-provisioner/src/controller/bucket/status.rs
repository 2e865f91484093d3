//! Writes the claim's status: the well-known phase, and conditions with reasons. Unchanged values are not written
//! again.

use provisioner_runtime::Cache as _;
use provisioner_runtime::call::CallError;
use provisioner_runtime::stable_hash;
use serde_json::{Value, json};

use super::facts::{ClaimFacts, Delivered, Facts};
use super::key::Key;
use super::messages::{State, UserMessage};
use super::objects::{Objects, TRIES};
use super::outcome::Stopped;

struct Condition {
    kind: &'static str,
    is_true: bool,
    reason: &'static str,
    message: String,
}

pub(super) async fn write_status(objects: &Objects, message: &UserMessage, key: &Key) -> Result<(), CallError> {
    let Some(state) = message.state else { return Ok(()) };
    for _ in 0..TRIES {
        let facts = objects.cache().facts(key);
        let Some(claim) = facts.claim.clone() else { return Ok(()) };
        // Most claims disappear when our finalizer is removed.
        if state == State::Released && claim.finalizers.is_empty() {
            return Ok(());
        }
        let (phase, conditions) = (phase(state, &claim), conditions(state, message, &facts));
        if is_written(&claim, phase, &conditions) {
            return Ok(());
        }
        let now = objects.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conditions: Vec<Value> = conditions.iter().map(|condition| condition.json(&claim, &now)).collect();
        let status = json!({"phase": phase, "conditions": conditions});
        // A write of a custom resource's status only compares the version: with only the uid, a replica whose watch is
        // behind would write the status of a new claim of this name.
        let metadata = json!({"uid": &*claim.uid, "resourceVersion": claim.resource_version.to_string()});
        let patch = json!({"metadata": metadata, "status": status});
        match objects.patch_claim(&claim, patch, Some("status")).await {
            // Other controllers write it at the same time, and the cache has its current version.
            Err(Stopped::Changed) => {}
            Err(Stopped::CallFailed { error, .. }) => {
                // The status may have been written nevertheless.
                objects.cache().mark_status_unknown(key);
                return Err(error);
            }
            // The claim no longer exists.
            _ => return Ok(()),
        }
    }
    Err(CallError::Conflict)
}

/// Returns the phase. Once a claim is bound, it stays bound for programs that wait for that.
fn phase(state: State, claim: &ClaimFacts) -> &'static str {
    match state {
        State::Released => "Released",
        _ if claim.is_bound() => "Bound",
        State::Bound => "Bound",
        State::Pending | State::Deleting => "Pending",
        State::Failed => "Failed",
    }
}

fn conditions(state: State, message: &UserMessage, facts: &Facts) -> Vec<Condition> {
    let is_bound = state == State::Bound;
    let made = facts.record().is_some_and(|record| record.made);
    let part = |kind, is_there: bool, reason| {
        let is_true = is_there || is_bound;
        Condition { kind, is_true, reason: if is_true { reason } else { "NotYet" }, message: String::new() }
    };
    let (reason, text) = message.ready();
    vec![
        Condition { kind: "Ready", is_true: is_bound, reason, message: text.to_owned() },
        part("BucketProvisioned", made, "Provisioned"),
        part("CredentialsReady", made && facts.secret == Delivered::Intact, "Delivered"),
    ]
}

fn is_written(claim: &ClaimFacts, phase: &str, conditions: &[Condition]) -> bool {
    let known = |wanted: &Condition| {
        claim.status.conditions.iter().any(|known| {
            *known.kind == *wanted.kind
                && known.is_true == wanted.is_true
                && *known.reason == *wanted.reason
                && known.message == stable_hash(&wanted.message)
        })
    };
    claim.status.phase.as_deref() == Some(phase) && conditions.iter().all(known)
}

impl Condition {
    fn json(&self, claim: &ClaimFacts, now: &str) -> Value {
        let known = claim.status.conditions.iter().find(|known| *known.kind == *self.kind);
        let since = known.filter(|known| known.is_true == self.is_true && !known.since.is_empty());
        json!({
            "type": self.kind,
            "status": if self.is_true { "True" } else { "False" },
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": since.map_or(now, |known| &known.since),
        })
    }
}
