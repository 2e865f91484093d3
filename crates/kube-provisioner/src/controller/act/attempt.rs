//! One call of the author's code for a claim: recorded before, fenced, bounded, and decided on once more right before it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::queue::{Permit, Work};
use tokio::time::Instant;

use super::lock::Lock;
use super::{Actor, typed};
use crate::controller::decide::{Decision, Refusal, Rest, decide};
use crate::controller::duty::Duty;
use crate::controller::entry;
use crate::controller::erased::UntypedRequest;
use crate::controller::facts::{BadParameters, ClaimState, ClassParameters, ClassState, Facts, Pending, Progress};
use crate::controller::key::Key;
use crate::controller::outcome::{Breakage, Outcome};
use crate::controller::safeguards::Safeguard;
use crate::mandate::{Call, Mandate};

/// For how long what the API server has said of the journal's holder is taken for true.
const FRESH: Duration = Duration::from_millis(200);

/// What the author's code is to be called for.
pub(super) struct Attempt<'a> {
    pub(super) decision: Decision,
    pub(super) pending: Arc<Pending>,
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) parameters: ClassParameters,
    pub(super) key: &'a Key,
    pub(super) duty: &'a Duty,
    /// Bounds how many are under way.
    pub(super) permit: Permit<Key>,
}

/// What the author's code has answered.
pub(super) struct Answer<T> {
    pub(super) value: Result<T, Breakage>,
    /// Saving what was made is a part of the attempt.
    pub(super) permit: Option<Permit<Key>>,
}

impl Actor {
    /// Begins an attempt, or goes on with one.
    pub(super) fn attempt<'a>(
        &self,
        decision: Decision,
        claim: Option<Arc<PersistentVolumeClaim>>,
        facts: &Facts,
        work: &'a Work<Key>,
        duty: &'a Duty,
    ) -> Result<Attempt<'a>, Outcome> {
        let Some(pending) = pending(facts, || self.token(work.key())) else {
            return Err(Outcome::Rested(Rest::NothingHere));
        };
        let parameters = match &pending.class.parameters {
            Ok(parameters) => parameters.clone(),
            // What was begun is not left alone because the author's code crashed once.
            Err(_) => self.parameters_again(&pending)?,
        };
        let claim = match claim {
            Some(claim) => claim,
            None => Arc::new(typed(&pending.claim)?.ok_or(Outcome::Behind)?),
        };
        let class = pending.class.name();
        let permit = work.enter(class).ok_or_else(|| Outcome::AwaitsPermit(class.into()))?;
        Ok(Attempt { decision, pending, claim, parameters, key: work.key(), duty, permit })
    }

    fn parameters_again(&self, pending: &Pending) -> Result<ClassParameters, Outcome> {
        let again = pending.class.read_again((&*self.backend, &self.rules.capabilities));
        again.parameters.map_err(|bad| match bad {
            BadParameters::Wrong(problems) => Outcome::Refused(Refusal::Parameters(problems)),
            BadParameters::Crashed(panic) => {
                Outcome::ProvisionBroke { method: "Parameters::deserialize", breakage: Breakage::Panicked(panic) }
            }
        })
    }

    /// Calls the author's code, once that is recorded and it is this class's turn. The lock is kept meanwhile.
    pub(super) async fn ask<'b, T>(
        &'b self,
        attempt: Attempt<'_>,
        lock: Option<Lock<'_>>,
        limit: Duration,
        call: impl FnOnce(UntypedRequest) -> BoxFuture<'b, T>,
    ) -> Result<Answer<T>, Outcome> {
        let (mandate, _call) = self.mandate(attempt.duty, lock.as_ref());
        let asking = self.ask_locked(attempt, mandate, limit, call);
        match self.while_locked(lock, asking).await {
            Some(answer) => answer,
            None => Ok(Answer { value: Err(Breakage::CutOff), permit: None }),
        }
    }

    async fn ask_locked<'b, T>(
        &'b self,
        attempt: Attempt<'_>,
        mandate: Mandate,
        limit: Duration,
        call: impl FnOnce(UntypedRequest) -> BoxFuture<'b, T>,
    ) -> Result<Answer<T>, Outcome> {
        let Attempt { decision, pending, claim, parameters, key, duty, permit } = attempt;
        let facts = &pending.claim.facts;
        let request = UntypedRequest {
            name: key.to_string(),
            bytes: facts.request.clone().unwrap_or_default(),
            claim,
            class: pending.class.object.clone(),
            selected_node: facts.selected_node.as_deref().map(str::to_owned),
            node_labels: self.node_labels(facts.selected_node.as_deref(), &decision).await?,
            secrets: self.secrets_for(&parameters.secrets, facts, key).await?,
            token: pending.token.to_string(),
            parameters: parameters.parsed,
            mandate: mandate.clone(),
        };
        let entry = entry::write(&pending, key).ok_or(Outcome::Changed)?;
        if self.rules.safeguards.include(Safeguard::Journal) {
            self.fenced(duty.record(entry).await)?;
        }
        let _call_permit = self.calls.acquire(pending.class.name()).await;
        self.fenced(duty.fence_since(FRESH).await)?;
        {
            let mut world = self.world();
            // All that took its time.
            if !mandate.holds() || !self.is_still_wanted(&decision, &pending, &world.facts(key)) {
                return Err(Outcome::Changed);
            }
            // Whoever is asked now may be at work even if this call is cut off.
            world.set_progress(key, Progress::Background(pending.clone()));
        }
        let call = self.guarded(limit, &mandate, async { call(request).await });
        let value = self.watched(facts, call).await;
        Ok(Answer { value, permit: Some(permit) })
    }

    /// Whether the same would be asked of the author's code now.
    fn is_still_wanted(&self, decision: &Decision, then: &Pending, facts: &Facts) -> bool {
        let same = |now: Arc<Pending>| {
            now.claim.fingerprint == then.claim.fingerprint && now.class.fingerprint == then.class.fingerprint
        };
        decide(facts, &self.rules) == *decision && pending(facts, || then.token.clone()).is_some_and(same)
    }

    /// What a call of the author's code is given, so that it can ask whether it may still act.
    pub(super) fn mandate(&self, duty: &Duty, lock: Option<&Lock<'_>>) -> (Mandate, Call) {
        let fenced = self.rules.safeguards.include(Safeguard::Fencing);
        let (valid, lock) = (duty.validity(), lock.map(Lock::validity));
        Mandate::of_call(move || !fenced || (valid() && lock.as_ref().is_none_or(|valid| valid())))
    }

    /// Who has lost the journal begins nothing.
    pub(super) fn fenced(&self, answer: Result<(), JournalError>) -> Result<(), Outcome> {
        match answer {
            Err(JournalError::Lost(_)) if !self.rules.safeguards.include(Safeguard::Fencing) => Ok(()),
            answer => answer.map_err(Outcome::NotJournaled),
        }
    }

    fn token(&self, key: &Key) -> Arc<str> {
        if self.rules.claims_record {
            // The claim must not say what the backend takes for a proof, so it is the same for all of its attempts.
            return format!("{:016x}", entry::hash(key.to_string().as_bytes())).into();
        }
        format!("{:016x}", self.environment.number(&format!("token {key}"))).into()
    }
}

/// The claim and class as they were when the attempt began, or as they are now. A class that was made anew since may
/// lead the author's code somewhere else, away from what it has begun.
fn pending(facts: &Facts, token: impl FnOnce() -> Arc<str>) -> Option<Arc<Pending>> {
    match (&facts.progress, &facts.claim, &facts.class) {
        (Progress::Background(pending), ..) => Some(pending.clone()),
        (_, ClaimState::Waiting(claim), ClassState::Ours(class)) => {
            let (claim, class) = (claim.clone(), class.clone());
            Some(Arc::new(Pending { claim, class, token: token(), begun: Instant::now() }))
        }
        _ => None,
    }
}
