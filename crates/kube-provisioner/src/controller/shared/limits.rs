//! How long calls of the author's code may take, how often they are tried, and when a key runs again.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Next;

use crate::options::Options;

/// Time limits of calls of the author's code.
#[derive(Clone, Debug)]
pub(crate) struct CallLimits {
    /// One call of a method that creates something.
    pub(crate) provision: Duration,
    /// One call of another method.
    pub(crate) delete: Duration,
}

/// How often an operation is tried before it waits for a change. 0 is without limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thresholds {
    pub(crate) provision: u32,
    pub(crate) delete: u32,
}

impl CallLimits {
    pub(crate) fn of(options: &Options) -> Self {
        Self { provision: options.provision_timeout, delete: options.delete_timeout }
    }
}

impl Thresholds {
    pub(crate) fn of(options: &Options) -> Self {
        Self { provision: options.failed_provision_threshold, delete: options.failed_delete_threshold }
    }
}

/// Whether this was the last attempt until something changes.
pub(crate) fn is_last(attempt: u32, threshold: u32) -> bool {
    threshold > 0 && attempt > threshold
}

/// When a key runs again after an error of the author's code.
pub(crate) fn retry(after: Option<Duration>) -> Next {
    after.map_or(Next::Retry, Next::RetryAfter)
}

/// The pause after the API server has refused a write, and how many such pauses follow one another before they grow.
const REFUSED: Duration = Duration::from_secs(10);
const REFUSED_ALIKE: u32 = 6;
const LONGEST_REFUSED: Duration = Duration::from_secs(60);

/// Returns when a key runs again after an error of the API server in this attempt, which may be a refusal by a quota, a policy or a
/// missing permission. No watch shows when these change, so the pauses are long at first and stay short later.
pub(crate) fn after_refusal(error: &CallError, attempt: u32) -> Next {
    match error {
        CallError::Forbidden(_)
        | CallError::Invalid(_)
        | CallError::NamespaceTerminating(_)
        | CallError::NoNamespace(_) => {
            let doublings = attempt.saturating_sub(REFUSED_ALIKE).min(3);
            Next::RetryAfter((REFUSED * (1 << doublings)).min(LONGEST_REFUSED))
        }
        _ => after_call(error),
    }
}

/// When a key runs again after an error of the API server. A request of the server to slow down is no failure of the key.
pub(crate) fn after_call(error: &CallError) -> Next {
    match error {
        CallError::TooManyRequests { retry_after, .. } => Next::Wait(*retry_after),
        _ => Next::Retry,
    }
}
