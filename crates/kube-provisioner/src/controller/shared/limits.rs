//! Time limits of calls to the provisioner, numbers of attempts, and the time of a key's next run.

use std::time::Duration;

use provisioner_runtime::{CallError, Next};

use crate::options::Options;

/// Time limits of calls to the provisioner.
#[derive(Clone, Debug)]
pub(crate) struct CallLimits {
    /// One call of a method that creates something.
    pub(crate) provision: Duration,
    /// One call of another method.
    pub(crate) delete: Duration,
}

/// The number of attempts before an operation waits for a change. 0 is unlimited.
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

/// Returns true if this was the last attempt until something changes.
pub(crate) fn is_last(attempt: u32, threshold: u32) -> bool {
    threshold > 0 && attempt > threshold
}

/// Returns when a key runs again after an error of the provisioner.
pub(crate) fn retry(after: Option<Duration>) -> Next {
    after.map_or(Next::Retry, Next::RetryAfter)
}

/// The next run of a key that can only fail until something changes. Its event would expire after an hour, which is the
/// API server's default of `--event-ttl`, and a rejected event would never be seen.
pub(crate) const REMIND: Next = Next::RetryAfter(Duration::from_secs(45 * 60));

/// The longest pause before a repeated attempt that did not ask the backend. No watch shows when the backend can be
/// reached, or a permission is granted.
pub(crate) const MAX_PAUSE_WITHOUT_CALL: Duration = Duration::from_secs(60);

/// The number of attempts before the pauses between them grow.
const FIRST: u32 = 6;

/// Returns the pause after an attempt that the API server has rejected. No watch shows when a quota, a policy or a
/// missing permission changes, so the pause is long at first and stays short later.
fn refused(attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(FIRST).min(3);
    Duration::from_secs(10 << doublings).min(Duration::from_secs(60))
}

/// Returns when a key runs again after an error of the API server in this attempt. The server's request to slow down
/// does not count as a failure of the key.
pub(crate) fn after_call(error: &CallError, attempt: u32) -> Next {
    match error {
        CallError::Forbidden(_)
        | CallError::Invalid(_)
        | CallError::NamespaceTerminating(_)
        | CallError::NoNamespace(_) => Next::RetryAfter(refused(attempt)),
        CallError::TooManyRequests { retry_after, .. } => Next::Wait(*retry_after),
        _ => Next::Retry,
    }
}
