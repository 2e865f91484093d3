//! The error of `provision`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{BoxError, Failure, error_with_verdict};

/// The reason why a volume was not provisioned, and its meaning for the claim.
///
/// `?` converts any error into this type with [`ProvisionVerdict::Retry`]: something may be left in the backend, so the
/// controller remembers the attempt until it has ended. If neither this call nor an earlier one has created anything,
/// use [`nothing_left`](Self::nothing_left); if only this call is known to have changed nothing, use
/// [`no_change`](Self::no_change). The claim's user reads the message in an event, so it should say what is wrong, who
/// has to act, and what to do. The error's sources only appear in the log.
///
/// ```
/// use kube_provisioner::{ProvisionError, ProvisionVerdict};
///
/// fn quota(free: u64, wanted: u64) -> Result<(), ProvisionError> {
///     let text = std::fs::read_to_string("/proc/self/comm")?; // an io error: tried again
///     if text.is_empty() || wanted > free {
///         // An earlier call may have created the volume, which now fills the pool.
///         return Err(ProvisionError::no_change("the pool is full; free some space or add a disk"));
///     }
///     Ok(())
/// }
/// assert_eq!(quota(1, 2).unwrap_err().verdict(), ProvisionVerdict::NoChange);
/// ```
pub struct ProvisionError(Failure<ProvisionVerdict>);

error_with_verdict! {
    ProvisionError, ProvisionVerdict;

    /// The controller retries with back-off. Something may have been left behind. Same as `?`, for strings
    /// and boxed errors.
    retry: Retry,
    /// The controller retries with back-off. Neither this call nor an earlier one has left anything in the
    /// backend.
    nothing_left: NothingLeft,
    /// The controller retries with back-off, and within a minute. This call has asked the backend for no change, for
    /// example because a Secret is missing: leftovers of earlier calls, if any, are unchanged.
    no_change: NoChange,
    /// The controller retries with back-off. The request contradicts an existing asset of this name in the backend,
    /// such as a bucket in another region. This call has not changed that asset.
    already_exists: AlreadyExists,
    /// The backend is still working. The controller calls again until it is done; if the claim is deleted, it continues
    /// as for `retry`.
    in_progress: InProgress,
    /// Impossible on the selected node. The controller asks the scheduler for another one.
    reschedule: Reschedule,
    /// Impossible with this claim and class. The controller tries again when one of them changes, and every 45 minutes
    /// to renew the event.
    invalid: Invalid,
    /// The claim belongs to another provisioner. The controller leaves it alone, without an event.
    ignored: Ignored,
}

/// The meaning of a failed attempt for the claim.
///
/// | verdict | the controller | the claim's user sees |
/// |---|---|---|
/// | `Retry` | retries with back-off; when the claim is deleted, [cleans up] or calls `provision` until it ends | `ProvisioningFailed` |
/// | `NothingLeft` | retries with back-off while the claim exists | `ProvisioningFailed` |
/// | `NoChange` | retries within a minute; an earlier attempt continues as for `Retry` | `ProvisioningFailed` |
/// | `AlreadyExists` | as for `NoChange`, with back-off; a COSI driver answers `AlreadyExists` | `ProvisioningFailed` |
/// | `InProgress` | calls again until the result changes; when the claim is deleted, as for `Retry` | `Provisioning` |
/// | `Reschedule` | asks the scheduler for another node; without a selected node the same as `NothingLeft` | `ProvisioningFailed` |
/// | `Invalid` | tries again when the claim or its class changes, and every 45 minutes | `ProvisioningFailed` |
/// | `Ignored` | leaves the claim to another provisioner | nothing |
///
/// `NothingLeft`, `Reschedule`, `Invalid` and `Ignored` end the attempt: the provisioner guarantees that none of its
/// calls has left anything in the backend. `Retry` and `InProgress` mean that something may be left.
///
/// [cleans up]: crate::Provisioner::clean_up
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProvisionVerdict {
    /// Another call may succeed; something may have been left behind.
    Retry,
    /// Nothing was left behind; another attempt may succeed.
    NothingLeft,
    /// The call has not asked the backend to change anything: leftovers of earlier calls, if any, are unchanged.
    NoChange,
    /// The backend has an asset of this name that contradicts the request, and the call has not changed it.
    AlreadyExists,
    /// The backend may still be working, or may have created something that only another call can find.
    InProgress,
    /// Impossible on the selected node, and nothing was left behind there.
    Reschedule,
    /// Impossible with this claim and this class, even if repeated. Nothing was left behind.
    Invalid,
    /// The claim belongs to another provisioner. Nothing was left behind.
    Ignored,
}

impl ProvisionVerdict {
    /// Returns true if this call or an earlier one may have left something in the backend.
    pub(crate) fn may_be_left(self) -> bool {
        matches!(self, Self::Retry | Self::InProgress | Self::NoChange | Self::AlreadyExists)
    }
}

impl ProvisionError {
    /// Converts an error of a call that has only read from the backend so far: a retry becomes
    /// [`no_change`](Self::no_change). If no earlier call asked the backend for anything, the attempt ends, and the
    /// next one uses the class as it is then.
    ///
    /// ```
    /// # use kube_provisioner::{ProvisionError, ProvisionVerdict};
    /// # fn look() -> Result<Option<u64>, std::io::Error> { Err(std::io::Error::other("no route to host")) }
    /// # fn create() -> Result<u64, ProvisionError> {
    /// let found = look().map_err(ProvisionError::before_changes)?;
    /// # Ok(found.unwrap_or_default())
    /// # }
    /// assert_eq!(create().unwrap_err().verdict(), ProvisionVerdict::NoChange);
    /// ```
    pub fn before_changes(error: impl Into<Self>) -> Self {
        let Self(failure) = error.into();
        let verdict = match failure.verdict {
            ProvisionVerdict::Retry => ProvisionVerdict::NoChange,
            verdict => verdict,
        };
        Self(Failure { verdict, ..failure })
    }
}
