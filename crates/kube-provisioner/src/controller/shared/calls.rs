//! The common parts of calls to the provisioner.

use std::pin::pin;
use std::time::Duration;

use provisioner_runtime::controller::{CallAborted, FencingToken, Refused, catch_panic, guarded};
use provisioner_runtime::events::{Event, EventRecorder};
use provisioner_runtime::journal::JournalError;
use tokio::time::sleep;

use crate::error::StartError;

/// The duration after which a call emits a separate event.
const SLOW: Duration = Duration::from_secs(2);

/// A panic of the provisioner's code where it must not panic.
#[derive(Debug)]
pub(crate) struct Crashed {
    pub(crate) method: &'static str,
    pub(crate) panic: String,
}

/// Returns the provisioner's capabilities, and other values needed before the start.
pub(crate) fn capabilities<T>(ask: impl FnOnce() -> T) -> Result<T, Crashed> {
    catch_panic(ask).map_err(|panic| Crashed { method: "capabilities", panic })
}

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

/// The reason why a call to the provisioner failed.
pub(crate) enum CallFailure<S, E> {
    /// The call was not made.
    Stopped(S),
    /// The provisioner gave no answer.
    Aborted(CallAborted),
    /// The provisioner returned this error.
    Returned(E),
}

impl<S, E> From<S> for CallFailure<S, E> {
    fn from(stopped: S) -> Self {
        Self::Stopped(stopped)
    }
}

impl<S, E> CallFailure<S, E> {
    /// Returns the answer to a call, or the reason for the operation to stop if the call was not made.
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

    /// Returns the reason for the operation to stop.
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
