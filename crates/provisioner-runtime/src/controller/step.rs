//! One step of the work on one key, and the only way to call an author's code.

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
use crate::error_text::{MAX_TEXT, shortened};
use crate::journal::{Entry, JournalError};
use crate::limiter::{Flow, LimiterPermit};
use crate::queue::{Permit, Work};

/// Maximum age of a confirmation of the journal's holder.
const FRESH: Duration = Duration::from_millis(200);

/// Permission to work on one key for one step.
pub struct Step<'a, C: Cache> {
    pub(super) context: &'a Context<C>,
    pub(super) work: &'a Work<C::Key>,
    pub(super) ownership: &'a Ownership,
    pub(super) safeguards: Safeguards,
}

/// The safeguards of the loop. Simulation tests disable one of them to verify that its absence is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Safeguards {
    /// Records an attempt before it begins.
    pub journal: bool,
    /// Keeps a process that has lost the journal from beginning anything.
    pub fencing: bool,
    /// Keeps a process from continuing attempts that a restored journal contains.
    pub restored: bool,
}

impl Default for Safeguards {
    /// Enables all safeguards.
    fn default() -> Self {
        Self { journal: true, fencing: true, restored: true }
    }
}

/// A call of an author's code.
pub struct Call<'a> {
    /// The permit: groups and their tenants share the calls fairly.
    pub permit: CallPermit<'a>,
    /// The time limit of the call.
    pub limit: Duration,
    /// The token with which the call checks whether it may still act.
    pub token: &'a FencingToken,
    /// The record that keeps two processes from beginning the same work.
    pub record: JournalRecord,
}

/// The permit of a call.
pub enum CallPermit<'a> {
    /// Wait for a permit of this flow.
    Of(&'a Flow),
    /// The caller already holds a permit.
    Held(&'a LimiterPermit),
}

/// The record that keeps two processes from beginning the same work.
pub enum JournalRecord {
    /// Recorded in the journal before the call.
    New(Entry),
    /// Recorded elsewhere, such as in the object: a fence is sufficient.
    Exists,
    /// Same as `Exists`, but an earlier call of the attempt was fenced, so a recent confirmation is accepted.
    Continues,
    /// The call changes nothing.
    None,
}

/// The required age of the API server's confirmation that this process holds the journal.
enum Fence {
    Now,
    Since(Duration),
    None,
}

/// The reason why an author's code was not called, or returned no result.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The call could not be recorded, or this process may not begin it.
    #[error("the call cannot be recorded in the journal: {0}")]
    Journal(JournalError),
    /// The final check of the cache refused the call.
    #[error("the call is no longer needed")]
    Unwanted,
    /// The call began but returned no result.
    #[error(transparent)]
    Aborted(CallAborted),
}

/// The reason why an author's call returned no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallAborted {
    /// The call panicked with this text.
    #[error("the call panicked: {0}")]
    Panicked(String),
    /// The call took longer than this.
    #[error("the call took longer than {0:?}")]
    TimedOut(Duration),
    /// The token became invalid: another process may have taken over.
    #[error("another process may have taken over")]
    Fenced,
}

impl<'a, C: Cache> Step<'a, C> {
    /// Returns the key.
    pub fn key(&self) -> &'a C::Key {
        self.work.key()
    }

    /// Returns the queue's work item of this step.
    pub fn work(&self) -> &'a Work<C::Key> {
        self.work
    }

    /// Returns a permit for an attempt of this flow. If it returns `None`, the key must [wait for
    /// one](crate::queue::Next::AwaitPermit).
    pub fn enter(&self, flow: &Flow) -> Option<Permit<C::Key>> {
        self.work.enter(flow)
    }

    /// Waits for a permit for a call of this flow.
    pub async fn call_permit(&self, flow: &Flow) -> LimiterPermit {
        self.context.calls().acquire(flow).await
    }

    /// Returns a token that is valid while no other process can work on this key and the guard lives.
    pub fn token(&self) -> (FencingToken, TokenGuard) {
        let (fenced, valid) = (self.safeguards.fencing, self.ownership.validity());
        FencingToken::of_call(move || !fenced || valid())
    }

    /// Removes the key's entry with one of the next journal writes. Call it when the work has left nothing behind.
    pub fn remove_entry(&self) {
        self.ownership.journal.remove(&self.key().to_string());
    }

    /// Makes sure that this process may still begin work, and that earlier removals of entries are stored.
    ///
    /// # Errors
    /// Fails if another process holds the journal, or if it cannot be read.
    pub async fn fence(&self) -> Result<(), JournalError> {
        self.fenced(self.ownership.journal.fence().await)
    }

    /// Calls an author's code. Before that, it records or fences the call, waits for a permit of its flow, and checks
    /// the cache once more with `wanted`. The call has a deadline, its panic is an error, and it is not polled once the
    /// token is invalid.
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
                    self.fenced(self.ownership.journal.record(entry).await).map_err(Refused::Journal)?;
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
            Fence::Since(age) => {
                self.fenced(self.ownership.journal.fence_since(age).await).map_err(Refused::Journal)?;
            }
            Fence::Now => self.fence().await.map_err(Refused::Journal)?,
            Fence::None => {}
        }
        // The cache may have changed in the meantime.
        if !wanted(&mut self.context.cache()) {
            return Err(Refused::Unwanted);
        }
        guarded(limit, token, async { run().await }).await.map_err(Refused::Aborted)
    }

    /// Fails if this process no longer owns the journal.
    fn fenced(&self, answer: Result<(), JournalError>) -> Result<(), JournalError> {
        match answer {
            Err(JournalError::Lost(_)) if !self.safeguards.fencing => Ok(()),
            answer => answer,
        }
    }
}

/// Runs a call of an author's code with a deadline. A panic becomes an error.
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
/// Fails if the code panicked.
pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panic_text(&*panic))
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned());
    shortened(text, MAX_TEXT)
}
