//! One call of the author's code for a claim. The attempt is recorded first. The call is fenced, has a time limit, and
//! is made only if the rules still decide on it immediately before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::controller::{Call, CallAborted, CallPermit, FencingToken, JournalRecord, guarded};
use provisioner_runtime::limiter::{Flow, Purpose};
use provisioner_runtime::{Cache, CallError, Permit};
use tokio::time::Instant;

use super::{Actions, CallFailure, Step, answered, typed};
use crate::controller::shared::calls::watched;
use crate::controller::shared::class_parameters::{BadParameters, ClassParameters, Parsed};
use crate::controller::volume::author_view;
use crate::controller::volume::backend::UntypedRequest;
use crate::controller::volume::cache::VolumeCache;
use crate::controller::volume::decide::decide;
use crate::controller::volume::decision::{Decision, NoAction, Refusal};
use crate::controller::volume::events::about_claim;
use crate::controller::volume::facts::{ClaimFacts, ClaimState, ClassState, Facts, Pending, Progress};
use crate::controller::volume::journal_entry;
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{MissingInput, Stopped};
use crate::controller::volume::report::still_provisioning;
use crate::prepared::Prepared;
use crate::secrets::Secrets;

/// The attempt that a call of the author's code belongs to.
pub(super) struct Attempt<'a> {
    pub(super) decision: Decision,
    pub(super) pending: Arc<Pending>,
    /// An earlier call of the attempt may have left something.
    pub(super) resumed: bool,
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) parameters: ClassParameters,
    pub(super) step: &'a Step<'a>,
    pub(super) flow: Flow,
    /// Bounds the number of concurrent attempts.
    pub(super) permit: Permit<Key>,
}

pub(super) struct Answer<T, E> {
    pub(super) value: Result<T, CallFailure<E>>,
    /// The attempt as it is recorded.
    pub(super) pending: Arc<Pending>,
    /// Held until the volume is saved, which is part of the attempt.
    pub(super) permit: Permit<Key>,
}

impl Actions {
    /// Begins an attempt, or continues one.
    pub(super) fn attempt<'a>(
        &self,
        decision: Decision,
        claim: Option<Arc<PersistentVolumeClaim>>,
        facts: &Facts,
        step: &'a Step<'a>,
    ) -> Result<Attempt<'a>, Stopped> {
        let Some(pending) = pending(facts, || self.token(step.key())) else {
            return Err(Stopped::NoAction(NoAction::Unrelated));
        };
        let by_templates = self.rules.capabilities.class_templates && facts.attempt().is_none();
        let pending = if by_templates { as_named_by_class(&pending)? } else { pending };
        let parameters = self.parameters_of(&pending)?;
        let claim = match claim.filter(|_| !by_templates) {
            Some(claim) => claim,
            None => Arc::new(typed(&pending.claim)?.ok_or(Stopped::WatchBehind)?),
        };
        let purpose = if decision == Decision::CleanUp { Purpose::Remove } else { Purpose::Create };
        let flow = pending.flow(purpose);
        let permit = step.enter(&flow).ok_or_else(|| Stopped::AwaitsPermit(flow.clone()))?;
        let resumed = facts.attempt().is_some();
        Ok(Attempt { decision, pending, resumed, claim, parameters, step, flow, permit })
    }

    /// Records the attempt, waits for the flow's permit and calls the author's code.
    pub(super) async fn call_backend<'b, T, E>(
        &'b self,
        attempt: Attempt<'_>,
        limit: Duration,
        call: impl FnOnce(UntypedRequest) -> BoxFuture<'b, Result<T, E>>,
    ) -> Result<Answer<T, E>, Stopped> {
        let Attempt { decision, pending, resumed, claim, parameters, step, flow, permit } = attempt;
        let (fencing_token, _guard) = step.token();
        let (waiting, key) = (pending.claim.clone(), step.key());
        let facts = &waiting.facts;
        if !resumed && self.rules.volume_names.can_coincide() {
            self.check_name_is_free(facts, key).await?;
        }
        let node_labels = match self.node_labels(facts.selected_node.as_deref(), &decision).await {
            Err(Stopped::NotReady(MissingInput::Node(node))) if !resumed => {
                return Err(self.request_other_node(facts, node, false, step).await);
            }
            labels => labels?,
        };
        let secrets = self.secrets_for(&parameters.secrets, facts, key).await?;
        let request = self.request_of(&pending, claim, parameters.parsed, key, &fencing_token);
        let mut request = UntypedRequest { node_labels, secrets, resumed, ..request };
        let pending = if resumed { pending } else { self.prepare(&pending, request.clone(), step).await? };
        request.prepared = pending.prepared.clone();
        let record = JournalRecord::New(journal_entry::write(&pending, key).ok_or(Stopped::Changed)?);
        let step_call = Call { permit: CallPermit::Of(&flow), limit, token: &fencing_token, record };
        let wanted = |cache: &mut VolumeCache| {
            if !fencing_token.is_valid() || !self.is_still_wanted(&decision, &pending, &cache.facts(key)) {
                return false;
            }
            // From here on, the backend may be working, even if this call is interrupted.
            cache.set_progress(key, Progress::Background(pending.clone()));
            true
        };
        let slow = || about_claim(still_provisioning(&self.rules.names.own, facts), facts);
        let value =
            answered(step.call(step_call, wanted, || watched(self.runtime.events(), slow, call(request))).await);
        Ok(Answer { value, pending, permit })
    }

    /// Reads volume and claim from the API server before an asset is created under a name that other claims can have:
    /// the watch may be behind, so it may not show another claim's volume or a change of this claim yet.
    async fn check_name_is_free(&self, claim: &ClaimFacts, key: &Key) -> Result<(), Stopped> {
        match self.read_volume(&key.to_string()).await {
            Err(CallError::NotFound) => {}
            Ok(_) => return Err(Stopped::WatchBehind),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        }
        match self.read_claim(&claim.namespace, &claim.name).await {
            Ok(live) if live.metadata().uid.as_deref() != Some(&*claim.uid) => Err(Stopped::WatchBehind),
            Ok(live) if live.fields.as_ref().is_ok_and(|live| live.bound_to().is_none()) => Ok(()),
            Ok(live) => {
                self.cache().observe_claim(live);
                Err(Stopped::Changed)
            }
            Err(CallError::NotFound) => Err(Stopped::WatchBehind),
            Err(error) => Err(Stopped::CallFailed { doing: "reading the claim again", error }),
        }
    }

    /// Calls the author's `prepare` for an attempt that is about to begin.
    async fn prepare(
        &self,
        pending: &Pending,
        request: UntypedRequest,
        step: &Step<'_>,
    ) -> Result<Arc<Pending>, Stopped> {
        let token = request.fencing_token.clone();
        let call = async { self.backend.prepare(request).await };
        match guarded(self.limits.provision, &token, call).await {
            Ok(Ok(prepared)) => Ok(Arc::new(Pending { prepared, ..pending.clone() })),
            Ok(Err(error)) => Err(self.refused(&error, pending, step).await),
            Err(aborted) => Err(Stopped::ProvisionAborted { method: "prepare", aborted }),
        }
    }

    /// Returns the parameters of an attempt's class. A panic of the provisioner's code while it parses them does not
    /// end the attempt.
    pub(super) fn parameters_of(&self, pending: &Pending) -> Result<ClassParameters, Stopped> {
        let parameters = match &pending.class.parameters {
            Ok(parameters) => Ok(parameters.clone()),
            Err(_) => pending.class.read_again((&*self.backend, &self.rules.capabilities)).parameters,
        };
        parameters.map_err(|bad| match bad {
            BadParameters::Invalid(problems) => Stopped::Refused(Refusal::Parameters(problems)),
            BadParameters::Crashed(panic) => {
                Stopped::ProvisionAborted { method: "Parameters::deserialize", aborted: CallAborted::Panicked(panic) }
            }
        })
    }

    /// Returns a request of an attempt, without Secrets and node labels.
    pub(super) fn request_of(
        &self,
        pending: &Pending,
        claim: Arc<PersistentVolumeClaim>,
        parameters: Parsed,
        key: &Key,
        fencing_token: &FencingToken,
    ) -> UntypedRequest {
        let facts = &pending.claim.facts;
        UntypedRequest {
            name: key.to_string(),
            bytes: facts.request.clone().unwrap_or_default(),
            parameters: Arc::new(parameters),
            claim,
            claim_seen: pending.claim.seen,
            class: pending.class.object.clone(),
            selected_node: facts.selected_node.as_deref().map(str::to_owned),
            node_labels: BTreeMap::new(),
            secrets: Secrets::default(),
            cluster_id: self.rules.cluster_id.to_string(),
            idempotency_token: pending.token.to_string(),
            prepared: pending.prepared.clone(),
            resumed: true,
            fencing_token: fencing_token.clone(),
        }
    }

    /// Returns whether the rules still decide to make the same call.
    fn is_still_wanted(&self, decision: &Decision, then: &Pending, facts: &Facts) -> bool {
        let same = |now: Arc<Pending>| {
            now.claim.fingerprint == then.claim.fingerprint && now.class.fingerprint == then.class.fingerprint
        };
        decide(facts, &self.rules) == *decision && pending(facts, || then.token.clone()).is_some_and(same)
    }

    fn token(&self, key: &Key) -> Arc<str> {
        format!("{:016x}", self.runtime.environment().number(&format!("token {key}"))).into()
    }
}

/// Returns the attempt with only those annotations of its claim that the class names.
fn as_named_by_class(pending: &Pending) -> Result<Arc<Pending>, Stopped> {
    let Pending { claim, class, .. } = pending;
    let text = claim.object.as_deref().ok_or(Stopped::WatchBehind)?;
    let text = author_view::of_class(text, class.object.parameters.as_ref().unwrap_or(&BTreeMap::new()));
    let text = text.map_err(|error| Stopped::Refused(Refusal::Request(error.to_string())))?;
    Ok(Arc::new(Pending { claim: Arc::new(claim.with_object(Some(text))), ..pending.clone() }))
}

/// Returns the claim and the class as they were when the attempt began, or the current ones for a new attempt. With a
/// recreated class, the author's code may not find what the attempt has created.
fn pending(facts: &Facts, token: impl FnOnce() -> Arc<str>) -> Option<Arc<Pending>> {
    match (&facts.progress, &facts.claim, &facts.class) {
        (Progress::Background(pending), ..) => Some(pending.clone()),
        (_, ClaimState::Waiting(claim), ClassState::Ours(class)) => {
            let (claim, class) = (claim.clone(), class.clone());
            Some(Arc::new(Pending {
                claim,
                class,
                token: token(),
                prepared: Prepared::default(),
                begun: Instant::now(),
                taken_over: false,
            }))
        }
        _ => None,
    }
}
