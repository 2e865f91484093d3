//! One step of the work on one key, and the one way to call an author's code.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::timeout;

use super::cache::Cache;
use super::context::Context;
use super::fencing::{FencingToken, TokenGuard};
use super::shards::Ownership;
use crate::explain::{LONGEST_TEXT, shortened};
use crate::journal::{Entry, JournalError};
use crate::limiter::{Flow, LimiterPermit};
use crate::queue::{Permit, Work};

/// For how long a confirmation of the journal's holder counts.
const FRESH: Duration = Duration::from_millis(200);

/// The right to work on one key, for one step.
pub struct Step<'a, C: Cache> {
    pub(super) context: &'a Context<C>,
    pub(super) work: &'a Work<C::Key>,
    pub(super) ownership: &'a Ownership,
    pub(super) safeguards: Safeguards,
}

/// The safeguards of the loop. Tests of a simulation leave one out to see that this is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Safeguards {
    /// An attempt is recorded before it begins.
    pub journal: bool,
    /// A process that has lost the journal begins nothing any more.
    pub fencing: bool,
    /// Nothing is done about what a restored journal has recorded.
    pub restored: bool,
}

impl Default for Safeguards {
    /// All of them.
    fn default() -> Self {
        Self { journal: true, fencing: true, restored: true }
    }
}

/// A call of an author's code.
pub struct Call<'a> {
    /// The permit: groups and their tenants share the calls fairly.
    pub permit: CallPermit<'a>,
    /// How long the call may take.
    pub limit: Duration,
    /// The token by which the call checks whether it may still act.
    pub token: &'a FencingToken,
    /// What stops two processes from beginning the same.
    pub record: JournalRecord,
}

/// The permit of a call.
pub enum CallPermit<'a> {
    /// Wait for one of this flow.
    Of(&'a Flow),
    /// The caller holds one.
    Held(&'a LimiterPermit),
}

/// What stops two processes from beginning the same.
pub enum JournalRecord {
    /// Recorded in the journal before the call.
    New(Entry),
    /// Recorded elsewhere, such as in the object: only a fence is needed.
    Exists,
    /// The same, and an earlier call of the attempt was fenced: a recent confirmation counts.
    Continues,
    /// The call changes nothing.
    None,
}

/// How recently the API server must have confirmed that the journal is ours.
enum Fence {
    Now,
    Since(Duration),
    None,
}

/// Why an author's code was not called, or gave no answer.
#[derive(Debug)]
pub enum Refused {
    /// It could not be recorded, or this process may not begin it.
    Journal(JournalError),
    /// The last check of the cache refused it.
    Unwanted,
    /// It was called, and gave no answer.
    Aborted(CallAborted),
}

/// Why an author's call gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum CallAborted {
    /// It crashed with this text.
    Panicked(String),
    /// It took longer than this.
    TimedOut(Duration),
    /// The token became invalid: another process may have taken over.
    Fenced,
}

impl<'a, C: Cache> Step<'a, C> {
    /// The key.
    pub fn key(&self) -> &'a C::Key {
        self.work.key()
    }

    /// The queue's work item of this step.
    pub fn work(&self) -> &'a Work<C::Key> {
        self.work
    }

    /// A permit for an attempt of this flow, or `None`: then the key [waits for one](crate::queue::Next::AwaitPermit).
    pub fn enter(&self, flow: &Flow) -> Option<Permit<C::Key>> {
        self.work.enter(flow)
    }

    /// Waits for the permit of a call of this flow.
    pub async fn call_permit(&self, flow: &Flow) -> LimiterPermit {
        self.context.calls().acquire(flow).await
    }

    /// A token that is valid while nobody else can work on this key and the guard lives.
    pub fn token(&self) -> (FencingToken, TokenGuard) {
        let (fenced, valid) = (self.safeguards.fencing, self.ownership.validity());
        FencingToken::of_call(move || !fenced || valid())
    }

    /// Removes the key's entry with one of the next writes of the journal: the work has left nothing.
    pub fn remove_entry(&self) {
        self.ownership.remove(&self.key().to_string());
    }

    /// Makes sure that this process may still begin something, and that removed entries are stored.
    ///
    /// # Errors
    /// When another process has the journal, or it cannot be read.
    pub async fn fence(&self) -> Result<(), JournalError> {
        self.fenced(self.ownership.fence().await)
    }

    /// Calls an author's code. Before, the call is recorded or fenced, waits for a permit of its flow, and `wanted` checks
    /// the cache once more. The call has a deadline, its panic is an error, and it is not polled once the token is invalid.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn call<T, F: Future<Output = T>>(
        &self,
        call: Call<'_>,
        wanted: impl FnOnce(&mut C) -> bool,
        run: impl FnOnce() -> F,
    ) -> Result<T, Refused> {
        let Call { permit, limit, token, record } = call;
        let fence = match record {
            JournalRecord::New(entry) => {
                if self.safeguards.journal {
                    self.fenced(self.ownership.record(entry).await).map_err(Refused::Journal)?;
                }
                Fence::Since(FRESH)
            }
            JournalRecord::Exists => Fence::Now,
            JournalRecord::Continues => Fence::Since(FRESH),
            JournalRecord::None => Fence::None,
        };
        let _permit = match permit {
            CallPermit::Of(flow) => Some(self.call_permit(flow).await),
            CallPermit::Held(_) => None,
        };
        match fence {
            Fence::Since(age) => self.fenced(self.ownership.fence_since(age).await).map_err(Refused::Journal)?,
            Fence::Now => self.fence().await.map_err(Refused::Journal)?,
            Fence::None => {}
        }
        // The cache may have changed meanwhile.
        if !wanted(&mut self.context.cache()) {
            return Err(Refused::Unwanted);
        }
        guarded(limit, token, async { run().await }).await.map_err(Refused::Aborted)
    }

    /// Who has lost the journal begins nothing.
    fn fenced(&self, answer: Result<(), JournalError>) -> Result<(), JournalError> {
        match answer {
            Err(JournalError::Lost(_)) if !self.safeguards.fencing => Ok(()),
            answer => answer,
        }
    }
}

/// Runs a call of an author's code with a deadline. A panic is an error.
///
/// # Errors
/// See [`CallAborted`].
pub async fn guarded<T>(
    limit: Duration,
    token: &FencingToken,
    call: impl Future<Output = T>,
) -> Result<T, CallAborted> {
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    let call = poll_fn(|context| {
        if !token.is_valid() {
            return Poll::Ready(Err(CallAborted::Fenced));
        }
        let answer = ready!(call.as_mut().poll(context));
        Poll::Ready(answer.map_err(|panic| CallAborted::Panicked(panic_text(&*panic))))
    });
    timeout(limit, call).await.unwrap_or(Err(CallAborted::TimedOut(limit)))
}

/// Runs an author's code; returns its result, or the text of its panic.
///
/// # Errors
/// When it panicked.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panic_text(&*panic))
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned());
    shortened(text, LONGEST_TEXT)
}
