//! Calls the author's `provision` and hands what it made to be saved.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Work;
use provisioner_runtime::watch::Event;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep};

use super::lock::{Carrier, Lock, Past};
use super::{Actor, Breakage, Outcome};
use crate::controller::decide::{Refusal, Rest};
use crate::controller::duty::Duty;
use crate::controller::entry;
use crate::controller::erased::UntypedRequest;
use crate::controller::facts::{
    ClaimFacts, ClaimState, ClassState, Facts, Pending, Progress, UnsavedVolume, WaitingClaim,
};
use crate::controller::key::Key;
use crate::controller::persistent_volume::{self, Order};
use crate::controller::tell::SLOW;
use crate::error::{ProvisionError, Verdict};

/// For how long what the journal's commit says of the holder is taken for true.
const FRESH: Duration = Duration::from_millis(200);

/// What a call of the author's code needs for as long as it runs.
struct Start<'a> {
    lock: Option<Lock<'a>>,
    _place: Option<SemaphorePermit<'a>>,
}

impl Actor {
    pub(super) async fn provision(&self, facts: &Facts, work: &Work<Key>, duty: &Duty) -> Outcome {
        let Some(pending) = pending(facts) else { return Outcome::Rested(Rest::NothingHere) };
        let parameters = match &pending.class.parameters {
            Ok(parameters) => parameters.clone(),
            Err(problems) => return Outcome::Refused(Refusal::Parameters(problems.clone())),
        };
        let lanes = match self.enter(work, Some(pending.class.name())) {
            Ok(places) => places,
            Err(lane) => return Outcome::LaneFull(lane),
        };
        let Some(object) = &pending.claim.object else { return self.confirm(facts, work.key()).await };
        let claim: PersistentVolumeClaim = match serde_json::from_str(object) {
            Ok(claim) => claim,
            Err(error) => return Outcome::Refused(Refusal::Request(error.to_string())),
        };
        let (name, claim) = (work.key().to_string(), Arc::new(claim));
        let bytes = pending.claim.facts.request.clone().unwrap_or_default();
        let Start { lock, _place } = match self.begin(facts, &pending, work.key(), duty).await {
            Ok(start) => start,
            Err(outcome) => return outcome,
        };
        let (mandate, _call) = self.mandate(duty, lock.as_ref());
        let started = Instant::now();
        let request = UntypedRequest {
            name: name.clone(),
            bytes,
            claim: claim.clone(),
            class: pending.class.object.clone(),
            selected_node: pending.claim.facts.selected_node.as_deref().map(str::to_owned),
            mandate: mandate.clone(),
        };
        // Whoever is asked now may be at work even if this call is cut off.
        self.world().set_progress(work.key(), Progress::Background(pending.clone()));
        let call = self.guarded(self.limits.provision, &mandate, self.backend.provision(request, parameters));
        let call = self.while_locked(lock, self.watched(&pending.claim.facts, call));
        let answer = call.await;
        // Saving costs the backend nothing.
        drop(lanes);
        let volume = match answer {
            Some(Ok(Ok(volume))) => volume,
            Some(Ok(Err(error))) => return self.not_provisioned(&error, &pending, work.key()).await,
            Some(Err(breakage)) => return Outcome::ProvisionBroke(breakage),
            None => return Outcome::ProvisionBroke(Breakage::CutOff),
        };
        let finalizer = self.rules.finalizer && pending.class.object.reclaim_policy.as_deref() != Some("Retain");
        let (class, identity) = (&pending.class.object, Some(&*self.rules.identity));
        let order = Order { name: &name, bytes, claim: &claim, class, finalizer, identity };
        let object = match persistent_volume::build(&order, volume) {
            Ok(object) => object,
            Err(error) => return Outcome::BadTemplate(error),
        };
        let body = match serde_json::to_vec(&object) {
            Ok(body) => body,
            Err(error) => return Outcome::NotSaved(CallError::Other(error.to_string())),
        };
        let unsaved = UnsavedVolume { name, pending, body };
        self.save(work.key(), unsaved, started).await
    }

    /// All that comes before the author's code is called: nobody else is at it, it is recorded, and there is a place for it.
    async fn begin<'a>(
        &'a self,
        facts: &'a Facts,
        pending: &Pending,
        key: &Key,
        duty: &Duty,
    ) -> Result<Start<'a>, Outcome> {
        let past = match &facts.claim {
            ClaimState::Waiting(claim) => Past::of(claim.lock.as_deref(), self.locks.as_ref()),
            // A claim that is gone has no lock that would tell.
            _ => Past::Some,
        };
        self.alone_with(key, past, duty).await?;
        let lock = self.lock_claim(facts, key).await?;
        let entry = entry::write(pending, key).ok_or(Outcome::Changed)?;
        self.record(entry, duty).await.map_err(Outcome::NotJournaled)?;
        let recorded = Instant::now();
        let _place = self.place().await;
        if recorded.elapsed() > FRESH {
            self.fence(duty).await.map_err(Outcome::NotJournaled)?;
        }
        Ok(Start { lock, _place })
    }

    /// A claim that is gone has no lock; its entry is in the journal of one process.
    async fn lock_claim<'a>(&self, facts: &'a Facts, key: &Key) -> Result<Option<Lock<'a>>, Outcome> {
        let ClaimState::Waiting(claim) = &facts.claim else { return Ok(None) };
        let WaitingClaim { facts: ClaimFacts { namespace, name, uid, .. }, resource_version: version, lock, .. } =
            &**claim;
        self.lock(key, Carrier::Claim { namespace, name, uid, version, record: lock.as_deref() }).await
    }

    /// A call that tells the claim's user when it takes its time.
    async fn watched<T>(&self, claim: &ClaimFacts, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => return answer,
            () = sleep(SLOW) => self.narrator.slow(claim),
        }
        call.await
    }

    /// A final answer ends what was remembered; `InProgress` keeps it.
    async fn not_provisioned(&self, error: &ProvisionError, pending: &Pending, key: &Key) -> Outcome {
        let verdict = error.verdict();
        if verdict != Verdict::InProgress {
            self.world().set_progress(key, Progress::None);
        }
        let claim = &pending.claim.facts;
        let rescheduled = match &claim.selected_node {
            Some(node) if verdict == Verdict::Reschedule => match self.unselect_node(claim, node).await {
                Ok(_) | Err(CallError::NotFound) => true,
                Err(error) => return Outcome::CallFailed { doing: "asking the scheduler for another node", error },
            },
            _ => false,
        };
        let message = error.to_string();
        Outcome::NotProvisioned { verdict, message, retry_after: error.retry_after(), rescheduled }
    }

    /// Reads the claim itself: the watch may not have told yet that it has a volume.
    pub(super) async fn confirm(&self, facts: &Facts, key: &Key) -> Outcome {
        let ClaimState::Waiting(claim) = &facts.claim else { return Outcome::Changed };
        let live = match self.read_claim(&claim.facts.namespace, &claim.facts.name).await {
            Ok(live) if live.metadata().uid.as_deref() == Some(&*claim.facts.uid) => live,
            // The watch will tell, and what it tells of another claim of that name.
            Ok(_) | Err(CallError::NotFound) => return Outcome::Rested(Rest::ClaimGoes),
            Err(error) => return Outcome::CallFailed { doing: "reading the claim again", error },
        };
        let mut world = self.world();
        world.set_progress(key, Progress::None);
        world.claim_event(Event::Applied(live));
        Outcome::Changed
    }
}

/// The claim and class as they were when work on them began, or as they are now. A class that was made anew since may
/// lead the author's code somewhere else, away from what it has begun.
fn pending(facts: &Facts) -> Option<Arc<Pending>> {
    match (&facts.progress, &facts.claim, &facts.class) {
        (Progress::Background(pending), ..) => Some(pending.clone()),
        (_, ClaimState::Waiting(claim), ClassState::Ours(class)) => {
            Some(Arc::new(Pending { claim: claim.clone(), class: class.clone() }))
        }
        _ => None,
    }
}
