//! The outcome of a decision, which `report` translates for users, metrics and the queue.

use std::time::Duration;

use provisioner_runtime::controller::CallAborted;
use provisioner_runtime::{CallError, Flow, JournalError};

use super::decision::{Decision, Reason, Refusal, ReleaseMode};
use super::facts::Facts;
use crate::error::{DeleteVerdict, ProvisionVerdict};

/// The operation of a decision, as named in metrics and events.
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

    /// Returns its name in metrics.
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

    /// Returns true if the bucket remains usable whatever the outcome, so that the status stays unchanged.
    pub(crate) fn keeps_bucket_usable(self) -> bool {
        matches!(self, Self::Rotate | Self::Retire | Self::WriteStatus)
    }
}

/// The reason why no provisioner works on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    NoClass,
    ForeignClass,
}

pub(crate) type Outcome = Result<Done, Stopped>;

#[derive(Debug)]
pub(crate) enum Done {
    /// There was nothing to do.
    Nothing,
    /// The claim is usable. Its keys are verified again after this time.
    CheckAgain { after: Duration },
    /// The bucket exists, with all that its user needs.
    Provisioned { bucket: String },
    /// A changed `additionalConfig` is applied.
    Configured,
    /// The Secret or the ConfigMap was rewritten.
    Restored,
    /// The Secret has another key, since the backend does not show the former one again.
    KeyReplaced,
    /// Adopted a bucket created by another provisioner.
    Adopted,
    /// The user has another key.
    Rotated,
    /// The former keys were removed.
    Retired,
    /// All assets of the claim were removed, or retained according to its class.
    Released { release_mode: ReleaseMode, bucket: String },
    /// The claim had no assets, and its finalizer was removed.
    ClaimReleased,
}

/// The reason why the decision was not carried out.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The facts were out of date. The cache has the current ones.
    Changed,
    /// The claim no longer exists. Its key runs again if anything is left to do.
    ClaimGone,
    /// The limit of concurrent attempts for this namespace, for this class or in total is reached.
    AwaitsPermit(Flow),
    /// The claim receives nothing until something changes.
    Refused(Refusal),
    /// The claim's class does not exist or names another provisioner, and no provisioner has begun to work on the claim
    /// for some time.
    NotServed(NotServed),
    /// The provisioner rejects the claim's `additionalConfig`.
    BadConfig {
        problem: String,
        /// All existing keys, if the claim has an unknown one.
        known: Vec<String>,
    },
    /// The recorded class parameters are no longer valid.
    BadRecord(String),
    /// The class is not recorded, and no longer exists.
    ClassGone,
    /// This process may not begin any work.
    NotFenced(JournalError),
    /// A Secret that the class names does not exist.
    SecretMissing { namespace: String, name: String },
    /// The class's parameters do not result in the name of a Secret.
    SecretName(String),
    /// The provisioner returned an error.
    NotProvisioned { verdict: ProvisionVerdict, message: String, retry_after: Option<Duration> },
    /// The provisioner gave no answer.
    ProvisionAborted { method: &'static str, aborted: CallAborted },
    /// The provisioner returned an error from `rotate`.
    NotRotated { message: String, retry_after: Option<Duration> },
    /// The provisioner returned an error from `revoke_old_keys`.
    NotRetired { message: String, retry_after: Option<Duration> },
    /// The provisioner gave no answer when it should create or remove keys.
    RotationAborted { method: &'static str, aborted: CallAborted },
    /// The object with the name of the claim's Secret or ConfigMap does not belong to the claim.
    NotOwned { kind: &'static str, name: String },
    /// The provisioner did not remove the claim's assets.
    NotReleased { verdict: DeleteVerdict, message: String, retry_after: Option<Duration> },
    /// The provisioner gave no answer when it should remove assets.
    ReleaseAborted { method: &'static str, aborted: CallAborted },
    /// A call to the API server failed.
    CallFailed { doing: &'static str, error: CallError },
}

impl Stopped {
    pub(crate) fn call_failed(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |error| Self::CallFailed { doing, error }
    }

    /// Like [`Stopped::call_failed`], for a write to one version of an object. The watch shows the version that
    /// replaced it, or the deletion.
    pub(crate) fn write_failed(doing: &'static str) -> impl FnOnce(CallError) -> Self {
        move |error| match error {
            CallError::Conflict | CallError::NotFound => Self::Changed,
            error => Self::CallFailed { doing, error },
        }
    }
}
