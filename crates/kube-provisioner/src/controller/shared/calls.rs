//! What is common to calls of the author's code.

use std::pin::pin;
use std::time::Duration;

use provisioner_runtime::controller::{CallAborted, FencingToken, catch_panic, guarded};
use provisioner_runtime::events::{Event, EventRecorder};
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
