//! Carries out one decision: the only place that calls the author's code or writes to the API server.

mod delete;
mod lock;
mod objects;
mod places;
mod provision;
mod save;

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use provisioner_runtime::call::CallError;
use provisioner_runtime::journal::{Entry, JournalError};
use provisioner_runtime::queue::{Lane, Permit, Work};
use provisioner_runtime::watch::WatchHealth;

use self::lock::Lock;
pub(crate) use self::lock::Locks;
pub(crate) use self::places::{ATTEMPTS_PER_CALL, Places};

use super::decide::{Decision, Refusal, Rest, Rules, decide};
use super::duty::Duty;
use super::erased::Backend;
use super::facts::Facts;
use super::key::Key;
use super::persistent_volume::TemplateError;
use super::safeguards::Safeguard;
use super::tell::Narrator;
use super::world::World;
use crate::error::{DeleteVerdict, Verdict};
use crate::mandate::{Call, Mandate};

/// What came of one decision. What it means for the user and the queue is `report`'s.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing was to be done.
    Rested(Rest),
    /// The claim gets no volume as it is.
    Refused(Refusal),
    /// As many as allowed are at work already.
    LaneFull(Lane),
    /// What was known is out of date; what is known now is in the world.
    Changed,
    /// The asset is made and its volume is saved.
    Provisioned { took: Duration },
    /// Another process is at work for it.
    Locked { by: String, look_again: Duration },
    /// What is to be begun could not be recorded, or this replica may not begin it.
    NotJournaled(JournalError),
    /// The author's `provision` said no. `rescheduled`: the scheduler was asked for another node.
    NotProvisioned { verdict: Verdict, message: String, retry_after: Option<Duration>, rescheduled: bool },
    /// The author's `provision` gave no answer.
    ProvisionBroke(Breakage),
    /// The author's `provision` returned what cannot be a volume.
    BadTemplate(TemplateError),
    /// The asset is made; its volume could not be saved yet.
    NotSaved(CallError),
    /// The asset is made; a volume of somebody else has its name.
    NameTakenMeanwhile,
    /// The asset is gone and its object too, or as good as.
    Deleted { took: Duration },
    /// The author's `delete` said no.
    NotDeleted { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The author's `delete` gave no answer.
    DeleteBroke(Breakage),
    /// Our finalizer was added or removed.
    ProtectionSet,
    /// A call to the API server failed on the way.
    CallFailed { doing: &'static str, error: CallError },
}

/// Why an author's call gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Breakage {
    Panicked(String),
    TimedOut(Duration),
    /// Another replica may be at it.
    CutOff,
}

/// Bounds on work and calls.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// One call of the author's `provision`.
    pub(crate) provision: Duration,
    /// One call of the author's `delete`.
    pub(crate) delete: Duration,
    /// One call to the API server.
    pub(crate) api: Duration,
    /// Calls of the author's code at a time; 0 is unbounded.
    pub(crate) per_backend: usize,
    /// Calls of the author's code at a time for one class; 0 is unbounded.
    pub(crate) per_class: usize,
}

pub(crate) struct Actor {
    pub(crate) client: Client,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: Limits,
    pub(crate) world: Arc<Mutex<World>>,
    pub(crate) narrator: Arc<Narrator>,
    /// Where every replica works, and locks what it works on.
    pub(crate) locks: Option<Locks>,
    pub(crate) places: Places,
    /// The watches of the claims and of the volumes.
    pub(crate) claims: WatchHealth,
    pub(crate) volumes: WatchHealth,
}

impl Actor {
    pub(crate) async fn carry_out(&self, decision: Decision, facts: &Facts, work: &Work<Key>, duty: &Duty) -> Outcome {
        match decision {
            Decision::Rest(why) => Outcome::Rested(why),
            Decision::Refuse(refusal) => Outcome::Refused(refusal),
            Decision::Provision => self.provision(facts, work, duty).await,
            Decision::Delete(deletion) => self.delete(deletion, facts, work, duty).await,
            Decision::Confirm => self.at_work(self.confirm(facts, work.key())).await,
            Decision::Save => self.at_work(self.save_again(facts, work.key())).await,
            Decision::FinishDelete => self.at_work(self.finish_delete(facts, work.key())).await,
            Decision::Protect => self.at_work(self.set_protection(facts, work.key(), true)).await,
            Decision::Unprotect => self.at_work(self.set_protection(facts, work.key(), false)).await,
        }
    }

    /// What has nothing to do with the author's code.
    async fn at_work<T>(&self, work: impl Future<Output = T>) -> T {
        let _place = self.places.work().await;
        work.await
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What would be decided now.
    fn decision_now(&self, key: &Key) -> Decision {
        decide(&self.world().facts(key), &self.rules)
    }

    /// Records what is about to begin; without it nothing may begin.
    async fn record(&self, entry: Entry, duty: &Duty) -> Result<(), JournalError> {
        if !self.rules.safeguards.include(Safeguard::Journal) {
            return Ok(());
        }
        self.fenced(duty.journal.record(entry).await)
    }

    /// Makes sure that this process could begin something at most so long ago.
    async fn fence_since(&self, age: Duration, duty: &Duty) -> Result<(), JournalError> {
        self.fenced(duty.journal.fence_since(age).await)
    }

    /// Makes sure that this process may still begin something.
    async fn fence(&self, duty: &Duty) -> Result<(), JournalError> {
        self.fenced(duty.journal.fence().await)
    }

    fn fenced(&self, answer: Result<(), JournalError>) -> Result<(), JournalError> {
        match answer {
            Err(JournalError::Lost(_)) if !self.rules.safeguards.include(Safeguard::Fencing) => Ok(()),
            answer => answer,
        }
    }

    /// What a call of the author's code is given, so that it can ask whether it may still act.
    fn mandate(&self, duty: &Duty, lock: Option<&Lock<'_>>) -> (Mandate, Call) {
        let fenced = self.rules.safeguards.include(Safeguard::Fencing);
        let (valid, lock) = (duty.validity(), lock.map(Lock::validity));
        Mandate::of_call(move || !fenced || (valid() && lock.as_ref().is_none_or(|valid| valid())))
    }

    /// An author's call with a time limit, and its panic as a value. It gets no time once this process may have lost the
    /// right to it.
    async fn guarded<T>(
        &self,
        limit: Duration,
        mandate: &Mandate,
        call: impl Future<Output = T>,
    ) -> Result<T, Breakage> {
        let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
        let call = poll_fn(|context| {
            if !mandate.holds() {
                return Poll::Ready(Err(Breakage::CutOff));
            }
            let answer = ready!(call.as_mut().poll(context));
            Poll::Ready(answer.map_err(|panic| Breakage::Panicked(panic_text(&*panic))))
        });
        tokio::time::timeout(limit, call).await.unwrap_or(Err(Breakage::TimedOut(limit)))
    }

    /// Places for one attempt that calls the author's code, or the lane that is full.
    fn enter(&self, work: &Work<Key>, class: Option<&str>) -> Result<[Permit<Key>; 2], Lane> {
        let lane =
            |name: String, calls: usize| Lane { name: name.into(), limit: calls.saturating_mul(ATTEMPTS_PER_CALL) };
        let backend = lane("backend".to_owned(), self.limits.per_backend);
        let class = lane(format!("class/{}", class.unwrap_or_default()), self.limits.per_class);
        let in_class = work.enter(&class).ok_or(class)?;
        let in_backend = work.enter(&backend).ok_or(backend)?;
        Ok([in_class, in_backend])
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
