//! Maps the provisioner's errors to the codes that a sidecar understands. It repeats a call after each code except
//! `InvalidArgument`, `AlreadyExists`, `Unimplemented` and `OutOfRange`.

use driver_rpc::{Code, Status};
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;

use crate::error::{DeleteError, DeleteVerdict, ProvisionError, ProvisionVerdict};

pub(super) fn invalid(text: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, text)
}

pub(super) fn exists(text: impl Into<String>) -> Status {
    Status::new(Code::AlreadyExists, text)
}

/// The status if a user has to act first.
pub(super) fn precondition(text: impl Into<String>) -> Status {
    Status::new(Code::FailedPrecondition, text)
}

/// The status of a failed creation. The sidecar and the controller copy its text into objects of tenants, so the log
/// has the rest of the error. `name` is the bucket or the account.
pub(super) fn not_created(error: &ProvisionError, name: &str) -> Status {
    let code = match error.verdict() {
        ProvisionVerdict::Invalid => Code::InvalidArgument,
        ProvisionVerdict::AlreadyExists => Code::AlreadyExists,
        ProvisionVerdict::Ignored => Code::FailedPrecondition,
        ProvisionVerdict::InProgress => Code::Aborted,
        _ => Code::Unavailable,
    };
    Status::new(code, error.event_text(&name))
}

/// The status of a failed removal, like [`not_created`].
pub(super) fn not_removed(error: &DeleteError, name: &str) -> Status {
    let code = match error.verdict() {
        DeleteVerdict::InUse | DeleteVerdict::Ignored => Code::FailedPrecondition,
        DeleteVerdict::InProgress => Code::Aborted,
        _ => Code::Unavailable,
    };
    Status::new(code, error.event_text(&name))
}

/// The status if the provisioner crashed. The log has the text of the panic.
pub(super) fn crashed(method: &str) -> Status {
    let text = format!(
        "the provisioner's code crashed in `{method}`; please report this to its authors, with the provisioner's log"
    );
    Status::new(Code::Internal, text)
}

pub(super) fn aborted(method: &str, aborted: CallAborted) -> Status {
    match aborted {
        CallAborted::Panicked(_) => crashed(method),
        CallAborted::TimedOut(limit) => {
            Status::new(Code::DeadlineExceeded, format!("`{method}` has not ended within {} s", limit.as_secs()))
        }
        CallAborted::Fenced => Status::new(Code::Unavailable, "the driver ends"),
    }
}

/// The status if a request to the API server failed.
pub(super) fn not_answered(doing: &str, error: &CallError) -> Status {
    Status::new(Code::Unavailable, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omits_details_for_administrators() {
        let error = ProvisionError::retry("10.0.0.7 refuses the connection").with_user_text("the store is unreachable");
        let status = not_created(&error, "photos");
        assert!(status.message().starts_with("the store is unreachable"), "{}", status.message());
        assert!(!status.message().contains("10.0.0.7"), "{}", status.message());
    }
}
