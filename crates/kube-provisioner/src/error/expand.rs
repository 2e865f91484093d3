//! The error of `expand`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{BoxError, Failure, error_with_verdict};

/// The reason why a volume's asset was not expanded.
///
/// The controller retries with back-off after any error that `?` converted into this type. If the asset already has the
/// requested size, return `Ok(())` instead of an error. The claim's user reads the message in an event.
///
/// ```
/// use kube_provisioner::{ExpandError, ExpandVerdict};
///
/// fn check(bytes: u64) -> Result<(), ExpandError> {
///     match bytes {
///         0..=0x100_0000_0000 => Ok(()),
///         _ => Err(ExpandError::infeasible("an export has at most 1Ti; ask for less")),
///     }
/// }
/// assert_eq!(check(1 << 41).unwrap_err().verdict(), ExpandVerdict::Infeasible);
/// ```
pub struct ExpandError(Failure<ExpandVerdict>);

error_with_verdict! {
    ExpandError, ExpandVerdict;

    /// The controller retries with back-off. Same as `?`, for strings and boxed errors.
    retry: Retry,
    /// The backend is still working. The controller calls again until it is done.
    in_progress: InProgress,
    /// The asset cannot have this size and still has its old one. The user may request less.
    infeasible: Infeasible,
    /// The volume belongs to another instance. The controller leaves it alone, without an event.
    ignored: Ignored,
}

/// The meaning of a failed expansion for the claim.
///
/// | verdict | the controller | the claim's user sees |
/// |---|---|---|
/// | `Retry` | retries with back-off | `VolumeResizeFailed` |
/// | `InProgress` | calls again until it is done | `Resizing` |
/// | `Infeasible` | marks the claim `ControllerResizeInfeasible` and tries again after a long pause, or when the claim changes | `VolumeResizeFailed` |
/// | `Ignored` | leaves the volume to another instance | nothing |
///
/// After `Infeasible` the user may lower the request again, but not below the volume's current size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpandVerdict {
    /// The call failed and may succeed later.
    Retry,
    /// The backend is still working.
    InProgress,
    /// The expansion is impossible, and the asset still has its old size.
    Infeasible,
    /// The volume belongs to another instance.
    Ignored,
    /// The provisioner does not implement the method.
    #[doc(hidden)]
    Unsupported,
}

impl ExpandError {
    pub(crate) fn unsupported() -> Self {
        Self::new(ExpandVerdict::Unsupported, "this provisioner cannot expand volumes")
    }
}
