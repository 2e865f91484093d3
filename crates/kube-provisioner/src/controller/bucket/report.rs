//! Maps an outcome to its name in metrics and logs, and to the time of the key's next run.

use provisioner_runtime::queue::Next;

use super::decision::Refusal;
use super::outcome::{Done, Outcome, Stopped};
use crate::controller::shared::limits::{MAX_PAUSE_WITHOUT_CALL, REMIND, Thresholds, after_call, is_last, retry};
use crate::controller::shared::metrics::aborted_label;
use crate::error::{DeleteVerdict, ProvisionVerdict};

/// Returns when the key runs again.
pub(crate) fn next(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> Next {
    let stopped = match outcome {
        Ok(done) => return next_of(done),
        Err(_) if gives_up(outcome, attempt, thresholds) => return Next::AwaitChange,
        Err(stopped) => stopped,
    };
    match stopped {
        Stopped::ClaimGone | Stopped::NotServed(_) => Next::Done,
        Stopped::AwaitsPermit(flow) => Next::AwaitPermit(flow.clone()),
        Stopped::Changed => Next::Again,
        // Work on another key ends these states, and the watch shows it.
        Stopped::Refused(Refusal::NotOwned { .. } | Refusal::InUse { .. }) | Stopped::NotOwned { .. } => Next::Retry,
        Stopped::Refused(_) | Stopped::BadConfig { .. } => REMIND,
        Stopped::SecretMissing { .. } => Next::Wait(None),
        Stopped::BadRecord(_) | Stopped::ClassGone | Stopped::SecretName(_) | Stopped::NotFenced(_) => Next::Retry,
        Stopped::NotProvisioned { verdict, retry_after, .. } => match verdict {
            ProvisionVerdict::Ignored => Next::AwaitChange,
            ProvisionVerdict::Invalid => REMIND,
            ProvisionVerdict::InProgress => Next::Wait(*retry_after),
            ProvisionVerdict::NoChange => {
                retry_after.map_or(Next::RetryWithin(MAX_PAUSE_WITHOUT_CALL), Next::RetryAfter)
            }
            _ => retry(*retry_after),
        },
        Stopped::NotRotated { retry_after, .. } | Stopped::NotRetired { retry_after, .. } => retry(*retry_after),
        Stopped::ProvisionAborted { .. } | Stopped::RotationAborted { .. } | Stopped::ReleaseAborted { .. } => {
            Next::Retry
        }
        Stopped::NotReleased { verdict, retry_after, .. } => match verdict {
            DeleteVerdict::Ignored => Next::AwaitChange,
            DeleteVerdict::InProgress => Next::Wait(*retry_after),
            _ => retry(*retry_after),
        },
        Stopped::CallFailed { error, .. } => after_call(error, attempt),
    }
}

fn next_of(done: &Done) -> Next {
    match done {
        Done::Nothing | Done::Released { .. } | Done::ClaimReleased => Next::Done,
        Done::CheckAgain { after } => Next::Wait(Some(*after)),
        // A rotation may have been requested in the meantime, or old keys are due for removal later.
        Done::Provisioned { .. }
        | Done::Configured
        | Done::Restored
        | Done::KeyReplaced
        | Done::Adopted
        | Done::Rotated
        | Done::Retired => Next::Again,
    }
}

/// Returns true if this was the last attempt until something changes. Only a failure reported by the provisioner
/// counts.
pub(crate) fn gives_up(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> bool {
    let threshold = match outcome {
        Err(Stopped::NotProvisioned { verdict, .. }) => match verdict {
            ProvisionVerdict::Ignored | ProvisionVerdict::Invalid | ProvisionVerdict::InProgress => 0,
            _ => thresholds.provision,
        },
        Err(Stopped::NotReleased { verdict, .. }) => match verdict {
            DeleteVerdict::Ignored | DeleteVerdict::InProgress | DeleteVerdict::InUse => 0,
            _ => thresholds.delete,
        },
        _ => 0,
    };
    is_last(attempt, threshold)
}

/// Returns the outcome's name in metrics and logs; `None` if nothing was done.
pub(crate) fn label(outcome: &Outcome) -> Option<&'static str> {
    let stopped = match outcome {
        Ok(Done::Nothing | Done::CheckAgain { .. }) => return None,
        Ok(_) => return Some("success"),
        Err(stopped) => stopped,
    };
    Some(match stopped {
        Stopped::ClaimGone | Stopped::NotServed(_) | Stopped::AwaitsPermit(_) | Stopped::Changed => return None,
        Stopped::Refused(_)
        | Stopped::BadConfig { .. }
        | Stopped::BadRecord(_)
        | Stopped::ClassGone
        | Stopped::NotOwned { .. } => "refused",
        Stopped::NotFenced(_) => "lost",
        Stopped::SecretMissing { .. } | Stopped::SecretName(_) => "not_ready",
        Stopped::NotProvisioned { verdict: ProvisionVerdict::InProgress, .. }
        | Stopped::NotReleased { verdict: DeleteVerdict::InProgress, .. } => "in_progress",
        Stopped::NotProvisioned { verdict: ProvisionVerdict::Invalid, .. } => "invalid",
        Stopped::NotProvisioned { verdict: ProvisionVerdict::Ignored, .. } => "ignored",
        Stopped::NotReleased { verdict: DeleteVerdict::InUse, .. } => "in_use",
        Stopped::NotProvisioned { .. }
        | Stopped::NotRotated { .. }
        | Stopped::NotRetired { .. }
        | Stopped::NotReleased { .. } => "failed",
        Stopped::ProvisionAborted { aborted, .. }
        | Stopped::RotationAborted { aborted, .. }
        | Stopped::ReleaseAborted { aborted, .. } => aborted_label(aborted),
        Stopped::CallFailed { .. } => "api_error",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_an_unasked_backend_within_a_minute() {
        let failed = |verdict| Err(Stopped::NotProvisioned { verdict, message: String::new(), retry_after: None });
        let next = |verdict| next(&failed(verdict), 9, Thresholds::default());
        assert_eq!(next(ProvisionVerdict::NoChange), Next::RetryWithin(MAX_PAUSE_WITHOUT_CALL));
        assert_eq!(next(ProvisionVerdict::Retry), Next::Retry);
    }

    #[test]
    fn does_not_give_up_a_bucket_that_is_in_use() {
        let failed = |verdict| Err(Stopped::NotReleased { verdict, message: String::new(), retry_after: None });
        let thresholds = Thresholds { delete: 1, ..Thresholds::default() };
        let next = |verdict| next(&failed(verdict), 9, thresholds);
        assert_eq!(next(DeleteVerdict::InUse), Next::Retry);
        assert_eq!(next(DeleteVerdict::Retry), Next::AwaitChange);
    }
}
