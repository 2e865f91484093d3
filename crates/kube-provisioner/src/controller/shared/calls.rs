//! What is common to calls of the author's code.

use std::pin::pin;
use std::time::Duration;

use provisioner_runtime::controller::{CallAborted, FencingToken, Refused, catch_panic, guarded};
use provisioner_runtime::events::{Event, EventRecorder};
use provisioner_runtime::journal::JournalError;
use tokio::time::sleep;

use crate::error::StartError;

/// A call that takes longer than this has an event of its own.
const SLOW: Duration = Duration::from_secs(2);

/// The author's code has crashed where it must not.
#[derive(Debug)]
pub(crate) struct Crashed {
    pub(crate) method: &'static str,
    pub(crate) panic: String,
}

/// Asks the author's code for its capabilities, and for what else is needed before the start.
pub(crate) fn capabilities<T>(ask: impl FnOnce() -> T) -> Result<T, Crashed> {
    catch_panic(ask).map_err(|panic| Crashed { method: "capabilities", panic })
}

/// Calls the author's `start`.
pub(crate) async fn start_backend(
    limit: Duration,
    call: impl Future<Output = Result<(), StartError>>,
) -> Result<(), String> {
    match guarded(limit, &FencingToken::unlimited(), call).await {
        Ok(started) => started.map_err(|error| error.to_string()),
        Err(CallAborted::Panicked(panic)) => Err(format!("its code crashed: {panic}")),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
    }
}

/// Why a call of the author's code has not done what it was to do.
pub(crate) enum CallFailure<S, E> {
    /// It was not made.
    Stopped(S),
    /// The author's code gave no answer.
    Aborted(CallAborted),
    /// The author's code returned this.
    Returned(E),
}

impl<S, E> From<S> for CallFailure<S, E> {
    fn from(stopped: S) -> Self {
        Self::Stopped(stopped)
    }
}

impl<S, E> CallFailure<S, E> {
    /// The answer to a call, with what it means for the operation that it was not made.
    pub(crate) fn of<T>(
        call: Result<Result<T, E>, Refused>,
        unwanted: S,
        not_recorded: impl FnOnce(JournalError) -> S,
    ) -> Result<T, Self> {
        match call {
            Ok(answer) => answer.map_err(Self::Returned),
            Err(Refused::Aborted(aborted)) => Err(Self::Aborted(aborted)),
            Err(Refused::Unwanted) => Err(Self::Stopped(unwanted)),
            Err(Refused::Journal(error)) => Err(Self::Stopped(not_recorded(error))),
        }
    }

    /// What this means for the operation.
    pub(crate) fn stop(self, returned: impl FnOnce(E) -> S, aborted: impl FnOnce(CallAborted) -> S) -> S {
        match self {
            Self::Stopped(stopped) => stopped,
            Self::Returned(error) => returned(error),
            Self::Aborted(reason) => aborted(reason),
        }
    }
}

/// Runs a call, and sends this event if the call is slow.
pub(crate) async fn watched<T>(
    events: &EventRecorder,
    slow: impl FnOnce() -> Event,
    call: impl Future<Output = T>,
) -> T {
    let mut call = pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => return answer,
        () = sleep(SLOW) => events.record(slow()),
    }
    call.await
}
