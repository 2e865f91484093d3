//! Maps a driver's errors to verdicts about the claim.
//!
//! The codes that the specification lists for CreateVolume show if a volume may have been created:
//! <https://github.com/container-storage-interface/spec/blob/master/spec.md#createvolume-errors>.

use std::time::Duration;

use driver_rpc::{Code, Error};
use kube_provisioner::{DeleteError, ProvisionError};

/// The pause after a deletion that could not reach the driver. No watch shows when the driver is back.
const UNREACHABLE: Duration = Duration::from_secs(30);

/// The state of the volume after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// The driver was not called.
    NotCalled,
    /// The driver may still be working.
    InProgress,
    /// A volume may exist.
    Unknown,
    /// The call was rejected before it created a volume or looked for the volume of an earlier call.
    NothingNew,
    /// No volume exists. A driver returns an existing volume even if it has no space for another one.
    Nothing,
}

pub(crate) fn leftover(error: &Error) -> Leftover {
    let status = match error {
        Error::Status(status) => status,
        Error::Unreachable { .. } => return Leftover::NotCalled,
        Error::TimedOut(_) => return Leftover::InProgress,
        _ => return Leftover::Unknown,
    };
    match status.code() {
        Code::DeadlineExceeded | Code::Aborted => Leftover::InProgress,
        Code::OutOfRange | Code::ResourceExhausted => Leftover::Nothing,
        Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Leftover::NothingNew,
        _ => Leftover::Unknown,
    }
}

/// Returns the verdict about a failed CreateVolume. A request that the driver calls invalid is repeated after
/// `longest`. `resumed` means that an earlier call may have created the volume. Users read `hint` after the error.
pub(crate) fn of_create(error: Error, hint: Option<String>, resumed: bool, longest: Duration) -> ProvisionError {
    let (left, is_invalid) = (leftover(&error), error.code() == Code::InvalidArgument);
    let cause: Box<dyn std::error::Error + Send + Sync> = match hint {
        Some(hint) => format!("{error} ({hint})").into(),
        None => error.into(),
    };
    let verdict = match left {
        Leftover::NotCalled => ProvisionError::no_change(cause),
        Leftover::InProgress => ProvisionError::in_progress(cause),
        Leftover::Unknown => ProvisionError::retry(cause),
        Leftover::NothingNew if resumed => ProvisionError::retry(cause),
        Leftover::NothingNew | Leftover::Nothing => ProvisionError::nothing_left(cause),
    };
    if is_invalid { verdict.after(longest) } else { verdict }
}

/// Returns the verdict about a failed DeleteVolume.
pub(crate) fn of_delete(error: Error) -> DeleteError {
    match leftover(&error) {
        Leftover::InProgress => DeleteError::in_progress(error),
        Leftover::NotCalled => DeleteError::retry(error).after(UNREACHABLE),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use driver_rpc::Status;
    use kube_provisioner::{DeleteVerdict, ProvisionVerdict};

    use super::*;

    #[test]
    fn maps_each_code_to_a_verdict() {
        let verdicts = (1..=16).map(|number| {
            let code = Code::from_i32(number);
            let verdict = |resumed| {
                of_create(Error::Status(Status::new(code, "no")), None, resumed, Duration::from_secs(300)).verdict()
            };
            (code, verdict(false), verdict(true))
        });
        use ProvisionVerdict::{InProgress, NothingLeft, Retry};
        let expected = [
            (Code::Cancelled, Retry, Retry),
            (Code::Unknown, Retry, Retry),
            (Code::InvalidArgument, NothingLeft, Retry),
            (Code::DeadlineExceeded, InProgress, InProgress),
            (Code::NotFound, NothingLeft, Retry),
            (Code::AlreadyExists, Retry, Retry),
            (Code::PermissionDenied, NothingLeft, Retry),
            (Code::ResourceExhausted, NothingLeft, NothingLeft),
            (Code::FailedPrecondition, Retry, Retry),
            (Code::Aborted, InProgress, InProgress),
            (Code::OutOfRange, NothingLeft, NothingLeft),
            (Code::Unimplemented, NothingLeft, Retry),
            (Code::Internal, Retry, Retry),
            (Code::Unavailable, Retry, Retry),
            (Code::DataLoss, Retry, Retry),
            (Code::Unauthenticated, NothingLeft, Retry),
        ];
        assert_eq!(verdicts.collect::<Vec<_>>(), expected);
        let invalid = Error::Status(Status::invalid_argument("no"));
        let verdict = of_create(invalid, None, false, Duration::from_secs(300));
        assert_eq!(verdict.retry_after(), Some(Duration::from_secs(300)));
    }

    #[test]
    fn maps_calls_without_a_response_to_verdicts() {
        let reason = String::new();
        for (error, verdict) in [
            (Error::Unreachable { address: String::new(), reason }, ProvisionVerdict::NoChange),
            (Error::TimedOut(Duration::from_secs(10)), ProvisionVerdict::InProgress),
            (Error::Interrupted(String::new()), ProvisionVerdict::Retry),
            // The driver answered, so the volume exists.
            (Error::TooLarge { limit: 4 << 20 }, ProvisionVerdict::Retry),
        ] {
            assert_eq!(of_create(error.clone(), None, false, Duration::ZERO).verdict(), verdict, "{error}");
        }
        let unreachable = Error::Unreachable { address: String::new(), reason: String::new() };
        let unreachable = of_delete(unreachable);
        assert_eq!((unreachable.verdict(), unreachable.retry_after()), (DeleteVerdict::Retry, Some(UNREACHABLE)));
        assert_eq!(of_delete(Error::Interrupted(String::new())).verdict(), DeleteVerdict::Retry);
    }
}
