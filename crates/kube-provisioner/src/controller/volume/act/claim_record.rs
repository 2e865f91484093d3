//! The claim as the record of its attempt. Our finalizer keeps the claim from the attempt's begin to its end.

use std::sync::Arc;

use provisioner_runtime::Cache;

use super::Actions;
use super::lock::{Lock, LockedObject, NewRecord};
use super::objects::HeldState;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, Facts, Pending, Progress};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Outcome;
use crate::protocol;

impl Actions {
    /// Takes the lock of the attempt's claim. The claim records the attempt from then on. `None` where there are no
    /// locks, and where the claim has its volume. If the claim is gone, the attempt has ended: another process has
    /// removed our finalizer.
    pub(super) async fn lock_claim<'a>(
        &self,
        facts: &Facts,
        pending: &'a Arc<Pending>,
        key: &Key,
    ) -> Result<Option<Lock<'a>>, Outcome> {
        let claim = match &facts.claim {
            ClaimState::Waiting(claim) => claim,
            // The record went with the claim, so another process has ended the attempt.
            ClaimState::Absent if self.locks.is_some() => {
                self.cache().drop_attempt(key);
                return Err(Outcome::Changed);
            }
            _ => return Ok(None),
        };
        let ClaimFacts { namespace, name, uid, .. } = &pending.claim.facts;
        let new_record = claim.held.is_none().then(|| NewRecord {
            finalizers: claim
                .finalizers
                .iter()
                .map(String::as_str)
                .chain([protocol::CLAIM_FINALIZER])
                .map(Into::into)
                .collect(),
            mark: pending.class.mark(),
        });
        let was_held = new_record.is_none();
        let object = LockedObject::Claim { namespace, name, uid, new_record };
        let lock = self.lock(key, object, &claim.resource_version, claim.lock.as_deref()).await?;
        // An earlier holder of the claim may have left something. Only an answer of the author's code ends the attempt.
        if was_held {
            self.cache().set_progress(key, Progress::Background(pending.clone()));
        }
        Ok(lock)
    }

    /// Removes the claim's record if the attempt is over. If the request fails, the next look at the key repeats it.
    pub(super) async fn release_if_over(&self, key: &Key, claim: &ClaimFacts, held: HeldState<'_>) {
        if self.cache().unfinished(key) {
            return;
        }
        if let Err(error) = self.release_claim(claim, held).await {
            tracing::debug!(pv = %key, "our finalizer is not off the claim yet: {error}");
        }
    }

    /// As [`Self::release_if_over`], with the claim's state from the facts.
    pub(super) async fn release_if_over_now(&self, facts: &Facts, key: &Key) {
        if let ClaimState::Waiting(claim) = &facts.claim
            && claim.held.is_some()
        {
            self.release_if_over(key, &claim.facts, held_state(&claim.finalizers, claim.lock.as_deref())).await;
        }
    }

    /// Removes our finalizer from a claim whose attempt has ended. If another process holds the claim's lock, that
    /// process does it.
    pub(super) async fn release_claim_of(&self, facts: &Facts, key: &Key) -> Outcome {
        let (claim, finalizers, lock) = match &facts.claim {
            ClaimState::Waiting(claim) => (&claim.facts, &claim.finalizers, claim.lock.as_deref()),
            ClaimState::Settled { held: Some(held), .. } => (&held.claim, &held.finalizers, held.lock.as_deref()),
            _ => return Outcome::Changed,
        };
        if let Some(locks) = &self.locks
            && let Err(locked) = locks.free(key, lock)
        {
            return locked;
        }
        match self.release_claim(claim, held_state(finalizers, lock)).await {
            Ok(()) => Outcome::ClaimReleased,
            Err(error) => Outcome::CallFailed { doing: "taking our finalizer off the claim", error },
        }
    }
}

/// The last known state of a claim with our finalizer.
fn held_state<'a>(finalizers: &'a [String], lock: Option<&'a str>) -> HeldState<'a> {
    HeldState { finalizers: finalizers.into(), lock: lock.map(Into::into) }
}
