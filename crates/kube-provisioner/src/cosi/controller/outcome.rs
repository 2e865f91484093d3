//! The outcome of a decision. `report` translates it for users, metrics and the queue.

use driver_rpc::Status;
use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::limiter::Flow;

use super::decide::{Decision, Facts, Refusal};

/// The outcome of one decision.
pub(super) type Outcome = Result<Done, Stopped>;

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    NoAction,
    Provisioned {
        bucket: String,
    },
    /// The bucket exists that a Bucket names.
    Found {
        bucket: String,
    },
    Deleted {
        bucket: String,
    },
    /// The Bucket may go, and its bucket stays.
    Released,
    Granted,
    /// A Secret was written again.
    Restored,
    Revoked,
}

/// Why the decision was not carried out.
#[derive(Debug)]
pub(super) enum Stopped {
    /// As many attempts as allowed are under way.
    AwaitsPermit(Flow),
    /// Somebody else has written the object meanwhile, and it is read again.
    Changed,
    /// Nothing is done until something changes.
    Refused(Refusal),
    /// This process may not begin anything.
    NotFenced(JournalError),
    /// The driver's error.
    Failed(Status),
    /// The driver gave no answer.
    Aborted(CallAborted),
    /// A request to the API server failed.
    CallFailed { doing: &'static str, error: CallError },
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

    /// Its name in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Delete => "delete",
            Self::Grant => "grant",
            Self::Revoke => "revoke",
        }
    }

    /// The `action` of its events.
    pub(super) fn action(self) -> &'static str {
        match self {
            Self::Provision => "Provision",
            Self::Delete => "Delete",
            Self::Grant => "Grant",
            Self::Revoke => "Revoke",
        }
    }

    /// The reason of the events of its failures.
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
