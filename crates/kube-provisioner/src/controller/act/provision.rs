//! Calls the author's `provision` and hands what it made to be saved.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Work;
use tokio::time::{Instant, sleep};

use super::lock::{Carrier, Lock, Past};
use super::places::Place;
use super::{Actor, Breakage, Outcome};
use crate::controller::decide::{Decision, Refusal, Rest, decide};
use crate::controller::duty::Duty;
use crate::controller::entry;
use crate::controller::erased::{Parsed, UntypedRequest};
use crate::controller::facts::{ClaimFacts, ClaimState, ClassState, Facts, Pending, Progress, UnsavedVolume};
use crate::controller::key::Key;
use crate::controller::persistent_volume::{self, Order};
use crate::controller::tell::SLOW;
use crate::controller::watched::Meta;
use crate::error::{ProvisionError, Verdict};
use crate::volume::Volume;

/// For how long what the API server has said of the journal's holder is taken for true.
const FRESH: Duration = Duration::from_millis(200);

/// What the author's code has answered.
struct Answer<'a> {
    volume: Result<Result<Volume, ProvisionError>, Breakage>,
    asked: Instant,
    /// Saving is work too.
    _place: Place<'a>,
}

impl Actor {
    pub(super) async fn provision(&self, facts: &Facts, work: &Work<Key>, duty: &Duty) -> Outcome {
        let Some(pending) = pending(facts) else { return Outcome::Rested(Rest::NothingHere) };
        let parameters = match &pending.class.parameters {
            Ok(parameters) => parameters.clone(),
            Err(problems) => return Outcome::Refused(Refusal::Parameters(problems.clone())),
        };
        let class = pending.class.name();
        let lanes = match self.enter(work, Some(class)) {
            Ok(lanes) => lanes,
            Err(lane) => return Outcome::LaneFull(lane),
        };
        let Some(object) = &pending.claim.object else { return self.confirm(facts, work.key()).await };
        let claim: PersistentVolumeClaim = match serde_json::from_str(object) {
            Ok(claim) => claim,
            Err(error) => return Outcome::Refused(Refusal::Request(error.to_string())),
        };
        let (name, claim) = (work.key().to_string(), Arc::new(claim));
        let bytes = pending.claim.facts.request.clone().unwrap_or_default();
        let lock = match self.alone(facts, &pending, work.key(), duty).await {
            Ok(lock) => lock,
            Err(outcome) => return outcome,
        };
        let (mandate, _call) = self.mandate(duty, lock.as_ref());
        let request = UntypedRequest {
            name: name.clone(),
            bytes,
            claim: claim.clone(),
            class: pending.class.object.clone(),
            selected_node: pending.claim.facts.selected_node.as_deref().map(str::to_owned),
            mandate,
        };
        let answer = self.while_locked(lock, self.ask(request, parameters, &pending, work.key(), duty)).await;
        drop(lanes);
        let Answer { volume, asked, _place } = match answer {
            Some(Ok(answer)) => answer,
            Some(Err(outcome)) => return outcome,
            None => return Outcome::ProvisionBroke(Breakage::CutOff),
        };
        let volume = match volume {
            Ok(Ok(volume)) => volume,
            Ok(Err(error)) => return self.not_provisioned(&error, &pending, work.key(), duty).await,
            Err(breakage) => return Outcome::ProvisionBroke(breakage),
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
        self.save(work.key(), unsaved, asked).await
    }

    /// Makes sure that nobody else is at it.
    async fn alone<'a>(
        &'a self,
        facts: &Facts,
        pending: &'a Pending,
        key: &Key,
        duty: &Duty,
    ) -> Result<Option<Lock<'a>>, Outcome> {
        if self.locks.is_none() {
            return Ok(None);
        }
        let known = match &facts.claim {
            ClaimState::Waiting(claim) => Some((claim.resource_version.to_string(), claim.lock.clone())),
            _ => None,
        };
        // A claim that is not known has no lock that would tell.
        let past = known.as_ref().map_or(Past::Some, |(_, lock)| Past::of(lock.as_deref(), self.locks.as_ref()));
        self.alone_with(key, past, duty).await?;
        let known = match facts.claim {
            ClaimState::Absent => self.unknown_claim(&pending.claim.facts).await?,
            _ => known,
        };
        let ClaimFacts { namespace, name, uid, .. } = &pending.claim.facts;
        let Some((version, record)) = known else { return Ok(None) };
        self.lock(key, Carrier::Claim { namespace, name, uid }, &version, record.as_deref()).await
    }

    /// Version and lock of a claim that is not known here, where it is not gone: the watch may be behind.
    async fn unknown_claim(&self, claim: &ClaimFacts) -> Result<Option<(String, Option<Box<str>>)>, Outcome> {
        match self.read_claim(&claim.namespace, &claim.name).await {
            Ok(live) if live.metadata().uid.as_deref() == Some(&*claim.uid) => {
                let Meta { resource_version, annotations, .. } = live.metadata();
                Ok(Some((resource_version.clone().unwrap_or_default(), annotations.lock.clone())))
            }
            Ok(_) | Err(CallError::NotFound) => Ok(None),
            Err(error) => Err(Outcome::CallFailed { doing: "reading the claim", error }),
        }
    }

    /// Calls the author's code, once that is recorded and there is a place for it.
    async fn ask(
        &self,
        request: UntypedRequest,
        parameters: Parsed,
        pending: &Arc<Pending>,
        key: &Key,
        duty: &Duty,
    ) -> Result<Answer<'_>, Outcome> {
        let entry = entry::write(pending, key).ok_or(Outcome::Changed)?;
        self.record(entry, duty).await.map_err(Outcome::NotJournaled)?;
        let place = self.places.call(Some(pending.class.name())).await;
        self.fence_since(FRESH, duty).await.map_err(Outcome::NotJournaled)?;
        let mandate = request.mandate.clone();
        {
            let mut world = self.world();
            // All that took its time.
            if !mandate.holds() || !self.is_still_wanted(pending, &world.facts(key)) {
                return Err(Outcome::Changed);
            }
            // Whoever is asked now may be at work even if this call is cut off.
            world.set_progress(key, Progress::Background(pending.clone()));
        }
        let asked = Instant::now();
        let call = self.guarded(self.limits.provision, &mandate, self.backend.provision(request, parameters));
        let volume = self.watched(&pending.claim.facts, call).await;
        Ok(Answer { volume, asked, _place: place.for_work() })
    }

    /// Whether the same would be asked of the author's code now.
    fn is_still_wanted(&self, then: &Pending, facts: &Facts) -> bool {
        let same = |now: Arc<Pending>| {
            now.claim.fingerprint == then.claim.fingerprint && now.class.fingerprint == then.class.fingerprint
        };
        matches!(decide(facts, &self.rules), Decision::Provision) && pending(facts).is_some_and(same)
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
    async fn not_provisioned(&self, error: &ProvisionError, pending: &Pending, key: &Key, duty: &Duty) -> Outcome {
        let verdict = error.verdict();
        if verdict != Verdict::InProgress {
            self.world().set_progress(key, Progress::None);
        }
        let mut rescheduled = false;
        if let (Verdict::Reschedule, Some(node)) = (verdict, &pending.claim.facts.selected_node) {
            rescheduled = true;
            if let Err(outcome) = self.reschedule(&pending.claim.facts, node, key, duty).await {
                return outcome;
            }
        }
        let message = error.to_string();
        Outcome::NotProvisioned { verdict, message, retry_after: error.retry_after(), rescheduled }
    }

    /// Lets the scheduler choose another node, whose replica may begin at once: nothing of this attempt is left by then.
    async fn reschedule(&self, claim: &ClaimFacts, node: &str, key: &Key, duty: &Duty) -> Result<(), Outcome> {
        duty.journal.remove(&key.to_string());
        self.fence(duty).await.map_err(Outcome::NotJournaled)?;
        let answer = self.unselect_node(claim, node).await;
        let mut world = self.world();
        let answer = match answer {
            Ok(Some(claim)) => {
                world.saw_claim(claim);
                return Ok(());
            }
            answer => answer,
        };
        // What is known of the claim is out of date, and the watch may be behind.
        world.confirm_first(key);
        match answer {
            Ok(_) | Err(CallError::NotFound) => Ok(()),
            Err(error) => Err(Outcome::CallFailed { doing: "asking the scheduler for another node", error }),
        }
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
        world.confirmed(key);
        world.saw_claim(live);
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
