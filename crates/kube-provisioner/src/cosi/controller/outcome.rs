//! The outcome of a decision, which `report` translates for users, metrics and the queue.

use driver_rpc::Status;
use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, Flow, JournalError};

use super::decide::{Decision, Facts, Refusal};

pub(super) type Outcome = Result<Done, Stopped>;

#[derive(Debug)]
pub(super) enum Done {
    NoAction,
    Provisioned {
        bucket: String,
    },
    /// The bucket that a Bucket names exists.
    AlreadyExists {
        bucket: String,
    },
    Deleted {
        bucket: String,
    },
    /// The Bucket may be deleted, and its bucket is kept.
    Released,
    Granted,
    /// A Secret was rewritten.
    Restored,
    Revoked,
}

/// The reason why a decision was not carried out.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The limit of concurrent attempts is reached.
    AwaitsPermit(Flow),
    /// Another writer has changed the object, which is read again.
    Changed,
    /// Wait until something changes.
    Refused(Refusal),
    /// This process may not begin any work.
    NotFenced(JournalError),
    /// The driver's error.
    Failed(Status),
    /// The driver did not answer.
    Aborted(CallAborted),
    /// A request to the API server failed.
    CallFailed { doing: &'static str, error: CallError },
}

impl Stopped {
    pub(super) fn call_failed(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |error| Self::CallFailed { doing, error }
    }

    /// Like [`Stopped::call_failed`], for a write. If another object has this name now, or another writer has just
    /// changed the object, it is read again.
    pub(super) fn write_failed(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |error| match error {
            CallError::Conflict | CallError::NotFound | CallError::AlreadyExists => Self::Changed,
            error => Self::CallFailed { doing, error },
        }
    }
}

/// The subject of a decision, as metrics and events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Provision,
    Delete,
    Grant,
    Revoke,
}

impl Operation {
    pub(super) fn of(decision: &Decision, facts: &Facts) -> Self {
        let is_deleting = facts.object().is_some_and(|object| object.deleting);
        match (decision, facts) {
            (Decision::Provision, _) => Self::Provision,
            (Decision::Delete | Decision::Release, _) => Self::Delete,
            (Decision::Grant, _) => Self::Grant,
            (Decision::Revoke, _) => Self::Revoke,
            (_, Facts::Access(_)) if is_deleting => Self::Revoke,
            (_, Facts::Access(_)) => Self::Grant,
            (_, _) if is_deleting => Self::Delete,
            (_, _) => Self::Provision,
        }
    }

    /// Returns its name in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Delete => "delete",
            Self::Grant => "grant",
            Self::Revoke => "revoke",
        }
    }

    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Provision => "Provision",
            Self::Delete => "Delete",
            Self::Grant => "Grant",
            Self::Revoke => "Revoke",
        }
    }

    /// Returns the reason of its failure events.
    pub(super) fn failed(self) -> &'static str {
        match self {
            Self::Provision => "ProvisioningFailed",
            Self::Delete => "DeletionFailed",
            Self::Grant => "GrantFailed",
            Self::Revoke => "RevocationFailed",
        }
    }

    pub(super) fn removes(self) -> bool {
        matches!(self, Self::Delete | Self::Revoke)
    }
}
