//! The table from an outcome to its name in metrics and logs, and when the key is looked at again.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::queue::Next;

use super::decide::Refusal;
use super::outcome::Outcome;
use crate::error::{DeleteVerdict, Verdict};

/// How often an operation is tried before it waits for a change. 0 is without limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Thresholds {
    pub(crate) provision: u32,
    pub(crate) delete: u32,
}

/// When the key is looked at again.
pub(crate) fn next(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> Next {
    let next = match outcome {
        Outcome::NoAction => Next::Done,
        Outcome::AwaitsPermit(class) => Next::AwaitPermit(class.clone()),
        Outcome::Changed => Next::Again,
        // Others of our own work end these, and the watch tells.
        Outcome::Refused(Refusal::NotOwned { .. }) | Outcome::NotOwned { .. } => Next::Retry,
        Outcome::Refused(_) | Outcome::BadConfig(_) => Next::AwaitChange,
        Outcome::BadRecord(_) | Outcome::ClassGone | Outcome::SecretMissing { .. } | Outcome::SecretName(_) => {
            Next::Retry
        }
        // A rotation may be asked for by now, or old keys wait for their end.
        Outcome::Provisioned { .. }
        | Outcome::Configured
        | Outcome::Restored
        | Outcome::Adopted
        | Outcome::Rotated
        | Outcome::Retired => Next::Again,
        Outcome::RetiresLater { after } => Next::Wait(Some(*after)),
        Outcome::NotFenced(_) => Next::Retry,
        Outcome::NotProvisioned { verdict, retry_after, .. } => match verdict {
            Verdict::NotMine | Verdict::Invalid => Next::AwaitChange,
            Verdict::InProgress => Next::Wait(*retry_after),
            _ => retry(*retry_after),
        },
        Outcome::NotRotated { retry_after, .. } | Outcome::NotRetired { retry_after, .. } => retry(*retry_after),
        Outcome::Broke { .. } | Outcome::RotationBroke { .. } | Outcome::ReleaseBroke { .. } => Next::Retry,
        Outcome::Released { .. } | Outcome::ClaimReleased => Next::Done,
        Outcome::NotReleased { verdict, retry_after, .. } => match verdict {
            DeleteVerdict::NotMine => Next::AwaitChange,
            DeleteVerdict::InProgress => Next::Wait(*retry_after),
            _ => retry(*retry_after),
        },
        Outcome::CallFailed { error: CallError::TooManyRequests { retry_after, .. }, .. } => Next::Wait(*retry_after),
        Outcome::CallFailed { .. } => Next::Retry,
    };
    if gives_up(outcome, attempt, thresholds) { Next::AwaitChange } else { next }
}

/// Whether this was the last attempt until something changes. Only a failure that the author's code tells counts.
pub(crate) fn gives_up(outcome: &Outcome, attempt: u32, thresholds: Thresholds) -> bool {
    let threshold = match outcome {
        Outcome::NotProvisioned { verdict, .. } => match verdict {
            Verdict::NotMine | Verdict::Invalid | Verdict::InProgress => 0,
            _ => thresholds.provision,
        },
        Outcome::NotReleased { verdict, .. } => match verdict {
            DeleteVerdict::NotMine | DeleteVerdict::InProgress => 0,
            _ => thresholds.delete,
        },
        _ => 0,
    };
    threshold > 0 && attempt > threshold
}

fn retry(after: Option<Duration>) -> Next {
    after.map_or(Next::Retry, Next::RetryAfter)
}

/// What was done and what came of it, for metrics and logs; `None` where nothing was.
pub(crate) fn label(outcome: &Outcome) -> Option<(&'static str, &'static str)> {
    Some(match outcome {
        Outcome::NoAction | Outcome::AwaitsPermit(_) | Outcome::Changed | Outcome::RetiresLater { .. } => {
            return None;
        }
        Outcome::Refused(_)
        | Outcome::BadConfig(_)
        | Outcome::BadRecord(_)
        | Outcome::ClassGone
        | Outcome::NotOwned { .. } => ("provision", "refused"),
        Outcome::Provisioned { .. } => ("provision", "success"),
        Outcome::Configured => ("configure", "success"),
        Outcome::Restored => ("restore", "success"),
        Outcome::Adopted => ("adopt", "success"),
        Outcome::Rotated => ("rotate", "success"),
        Outcome::Retired => ("retire", "success"),
        Outcome::NotFenced(_) => ("provision", "lost"),
        Outcome::SecretMissing { .. } | Outcome::SecretName(_) => ("provision", "not ready"),
        Outcome::NotProvisioned { verdict: Verdict::InProgress, .. } => ("provision", "in progress"),
        Outcome::NotProvisioned { verdict: Verdict::Invalid, .. } => ("provision", "invalid"),
        Outcome::NotProvisioned { verdict: Verdict::NotMine, .. } => ("provision", "ignored"),
        Outcome::NotProvisioned { .. } => ("provision", "failed"),
        Outcome::Broke { .. } => ("provision", "no answer"),
        Outcome::NotRotated { .. } => ("rotate", "failed"),
        Outcome::NotRetired { .. } => ("retire", "failed"),
        Outcome::RotationBroke { method, .. } => (method, "no answer"),
        Outcome::Released { .. } | Outcome::ClaimReleased => ("delete", "success"),
        Outcome::NotReleased { verdict: DeleteVerdict::InProgress, .. } => ("delete", "in progress"),
        Outcome::NotReleased { verdict: DeleteVerdict::InUse, .. } => ("delete", "in use"),
        Outcome::NotReleased { .. } => ("delete", "failed"),
        Outcome::ReleaseBroke { .. } => ("delete", "no answer"),
        Outcome::CallFailed { .. } => ("provision", "api error"),
    })
}
