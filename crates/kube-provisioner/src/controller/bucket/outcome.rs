//! The outcome of a decision. `report` says what it means for users, metrics and the queue.

use std::time::Duration;

use provisioner_runtime::call::CallError;
use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::journal::JournalError;
use provisioner_runtime::limiter::Flow;

use super::decision::{Decision, Ending, Reason, Refusal};
use super::facts::Facts;
use crate::error::{DeleteVerdict, ProvisionVerdict};

/// What a decision was about, as metrics and events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Provision,
    Configure,
    Restore,
    Adopt,
    Rotate,
    Retire,
    Delete,
    WriteStatus,
}

impl Operation {
    pub(crate) fn of(decision: &Decision, facts: &Facts) -> Self {
        match decision {
            Decision::NoAction(_) | Decision::Refuse(_) if facts.is_ending() => Self::Delete,
            Decision::NoAction(_) | Decision::Refuse(_) | Decision::Attempt(Reason::New) => Self::Provision,
            Decision::Attempt(Reason::Config) => Self::Configure,
            Decision::Attempt(Reason::Secret) | Decision::Restore => Self::Restore,
            Decision::Adopt => Self::Adopt,
            Decision::Rotate => Self::Rotate,
            Decision::Retire => Self::Retire,
            Decision::Release(_) | Decision::ReleaseClaim => Self::Delete,
        }
    }

    /// Its name in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Provision => "provision",
            Self::Configure => "configure",
            Self::Restore => "restore",
            Self::Adopt => "adopt",
            Self::Rotate => "rotate",
            Self::Retire => "retire",
            Self::Delete => "delete",
            Self::WriteStatus => "write_status",
        }
    }

    /// The `action` of its events.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Provision => "Provision",
            Self::Configure => "Configure",
            Self::Restore => "Restore",
            Self::Adopt => "Adopt",
            Self::Rotate => "Rotate",
            Self::Retire => "Retire",
            Self::Delete => "Delete",
            Self::WriteStatus => "WriteStatus",
        }
    }

    /// Whether the bucket can be used whatever comes of it, so that the status stays as it is.
    pub(crate) fn is_beside_use(self) -> bool {
        matches!(self, Self::Rotate | Self::Retire | Self::WriteStatus)
    }
}

/// Why nobody works on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    NoClass,
    ClassOfAnother,
}

/// The outcome of one decision.
pub(crate) type Outcome = Result<Done, Stopped>;

/// What was done.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nothing was to be done.
    Nothing,
    /// The claim can be used. After this time its keys are looked at again.
    Rests { after: Duration },
    /// The bucket is there, and all that its user needs.
    Provisioned { bucket: String },
    /// A changed `additionalConfig` is applied.
    Configured,
    /// The Secret or the ConfigMap was written again.
    Restored,
    /// The Secret has another key, since the backend does not show the former one again.
    KeyReplaced,
    /// What another provisioner has made is ours from now on.
    Adopted,
    /// The user has another key.
    Rotated,
    /// The keys before it are removed.
    Retired,
    /// Everything that the claim had is gone, or as its class wants it.
    Released { ending: Ending, bucket: String },
    /// The claim had nothing, and is let go.
    ClaimReleased,
}

/// Why the decision was not carried out.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The facts were out of date. The cache has the current ones.
    Changed,
    /// The claim is gone, and its key runs again if something is left to do.
    ClaimGone,
    /// As many attempts as allowed are under way for this namespace, in this class or altogether.
    AwaitsPermit(Flow),
    /// The claim gets nothing until something changes.
    Refused(Refusal),
    /// The claim's class does not exist, or it is another provisioner's, and nobody has begun to work on the claim for some time.
    NotServed(NotServed),
    /// The claim's `additionalConfig` is not what the author can use.
    BadConfig {
        problem: String,
        /// All keys that exist, if one of the claim does not.
        known: Vec<String>,
    },
    /// What is written down of the class cannot be used any more.
    BadRecord(String),
    /// Nothing is written down of the class, and it is gone.
    ClassGone,
    /// This process may not begin anything.
    NotFenced(JournalError),
    /// A Secret that the class names does not exist.
    SecretMissing { namespace: String, name: String },
    /// The class's parameters do not give the name of a Secret.
    SecretName(String),
    /// The author's code returned an error.
    NotProvisioned { verdict: ProvisionVerdict, message: String, retry_after: Option<Duration> },
    /// It gave no answer.
    ProvisionAborted { method: &'static str, aborted: CallAborted },
    /// It returned an error when it was to make another key.
    NotRotated { message: String, retry_after: Option<Duration> },
    /// It returned an error when it was to remove keys.
    NotRetired { message: String, retry_after: Option<Duration> },
    /// It gave no answer when it was to make or remove keys.
    RotationAborted { method: &'static str, aborted: CallAborted },
    /// The object with the name of the claim's Secret or ConfigMap is not the claim's.
    NotOwned { kind: &'static str, name: String },
    /// The author's code did not remove what the claim had.
    NotReleased { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// It gave no answer.
    ReleaseAborted { method: &'static str, aborted: CallAborted },
    /// A call to the API server failed on the way.
    CallFailed { doing: &'static str, error: CallError },
}
