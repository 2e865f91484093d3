//! The table from an outcome to its name in metrics and logs, and when the key runs again.

use provisioner_runtime::queue::Next;

use super::decision::Refusal;
use super::outcome::Outcome;
use crate::controller::shared::limits::{REMIND, Thresholds, after_call, is_last, retry, secret_missing};
use crate::controller::shared::metrics::aborted_label;
use crate::error::{DeleteVerdict, ProvisionVerdict};

/// When the key runs again.
pub(crate) fn next(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> Next {
    let next = match outcome {
        Outcome::NoAction | Outcome::NotServed(_) => Next::Done,
        Outcome::AwaitsPermit(flow) => Next::AwaitPermit(flow.clone()),
        Outcome::Changed => Next::Again,
        // Work on another key ends these, and the watch shows it.
        Outcome::Refused(Refusal::NotOwned { .. } | Refusal::InUse { .. }) | Outcome::NotOwned { .. } => Next::Retry,
        Outcome::Refused(_) | Outcome::BadConfig { .. } => REMIND,
        Outcome::SecretMissing { .. } => retry(secret_missing(attempt)),
        Outcome::BadRecord(_) | Outcome::ClassGone | Outcome::SecretName(_) => Next::Retry,
        // A rotation may be asked for by now, or old keys wait for their end.
        Outcome::Provisioned { .. }
        | Outcome::Configured
        | Outcome::Restored
        | Outcome::KeyReplaced
        | Outcome::Adopted
        | Outcome::Rotated
        | Outcome::Retired => Next::Again,
        Outcome::Rests { after } => Next::Wait(Some(*after)),
        Outcome::NotFenced(_) => Next::Retry,
        Outcome::NotProvisioned { verdict, retry_after, .. } => match verdict {
            ProvisionVerdict::Ignored => Next::AwaitChange,
            ProvisionVerdict::Invalid => REMIND,
            ProvisionVerdict::InProgress => Next::Wait(*retry_after),
            _ => retry(*retry_after),
        },
        Outcome::NotRotated { retry_after, .. } | Outcome::NotRetired { retry_after, .. } => retry(*retry_after),
        Outcome::ProvisionAborted { .. } | Outcome::RotationAborted { .. } | Outcome::ReleaseAborted { .. } => {
            Next::Retry
        }
        Outcome::Released { .. } | Outcome::ClaimReleased => Next::Done,
        Outcome::NotReleased { verdict, retry_after, .. } => match verdict {
            DeleteVerdict::Ignored => Next::AwaitChange,
            DeleteVerdict::InProgress => Next::Wait(*retry_after),
            _ => retry(*retry_after),
        },
        Outcome::CallFailed { error, .. } => after_call(error, attempt),
    };
    if gives_up(outcome, attempt, thresholds) { Next::AwaitChange } else { next }
}

/// Whether this was the last attempt until something changes. Only a failure that the author's code reports counts.
pub(crate) fn gives_up(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> bool {
    let threshold = match outcome {
        Outcome::NotProvisioned { verdict, .. } => match verdict {
            ProvisionVerdict::Ignored | ProvisionVerdict::Invalid | ProvisionVerdict::InProgress => 0,
            _ => thresholds.provision,
        },
        Outcome::NotReleased { verdict, .. } => match verdict {
            DeleteVerdict::Ignored | DeleteVerdict::InProgress => 0,
            _ => thresholds.delete,
        },
        _ => 0,
    };
    is_last(attempt, threshold)
}

/// The outcome's name in metrics and logs; `None` where nothing was done.
pub(crate) fn label(outcome: &Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::NoAction
        | Outcome::NotServed(_)
        | Outcome::AwaitsPermit(_)
        | Outcome::Changed
        | Outcome::Rests { .. } => return None,
        Outcome::Refused(_)
        | Outcome::BadConfig { .. }
        | Outcome::BadRecord(_)
        | Outcome::ClassGone
        | Outcome::NotOwned { .. } => "refused",
        Outcome::Provisioned { .. }
        | Outcome::Configured
        | Outcome::Restored
        | Outcome::KeyReplaced
        | Outcome::Adopted
        | Outcome::Rotated
        | Outcome::Retired
        | Outcome::Released { .. }
        | Outcome::ClaimReleased => "success",
        Outcome::NotFenced(_) => "lost",
        Outcome::SecretMissing { .. } | Outcome::SecretName(_) => "not_ready",
        Outcome::NotProvisioned { verdict: ProvisionVerdict::InProgress, .. }
        | Outcome::NotReleased { verdict: DeleteVerdict::InProgress, .. } => "in_progress",
        Outcome::NotProvisioned { verdict: ProvisionVerdict::Invalid, .. } => "invalid",
        Outcome::NotProvisioned { verdict: ProvisionVerdict::Ignored, .. } => "ignored",
        Outcome::NotReleased { verdict: DeleteVerdict::InUse, .. } => "in_use",
        Outcome::NotProvisioned { .. }
        | Outcome::NotRotated { .. }
        | Outcome::NotRetired { .. }
        | Outcome::NotReleased { .. } => "failed",
        Outcome::ProvisionAborted { aborted, .. }
        | Outcome::RotationAborted { aborted, .. }
        | Outcome::ReleaseAborted { aborted, .. } => aborted_label(aborted),
        Outcome::CallFailed { .. } => "api_error",
    })
}
