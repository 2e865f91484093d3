//! The error of `delete`, `clean_up` and `should_delete`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{BoxError, Failure, error_with_verdict};

/// The reason why a volume's asset was not deleted.
///
/// The controller retries with back-off after any error that `?` converted into this type. If the asset no longer
/// exists, return `Ok(())` instead of an error.
///
/// ```
/// use kube_provisioner::{DeleteError, DeleteVerdict};
///
/// fn check(snapshots: u32) -> Result<(), DeleteError> {
///     match snapshots {
///         0 => Ok(()),
///         count => Err(DeleteError::in_use(format!("{count} snapshots need this volume; delete them first"))),
///     }
/// }
/// assert_eq!(check(2).unwrap_err().verdict(), DeleteVerdict::InUse);
/// ```
pub struct DeleteError(Failure<DeleteVerdict>);

error_with_verdict! {
    DeleteError, DeleteVerdict;

    /// The controller retries with back-off. Same as `?`, for strings and boxed errors.
    retry: Retry,
    /// The volume is still in use. The controller tries again, without a warning.
    in_use: InUse,
    /// The backend is still working. The controller calls again until it is done.
    in_progress: InProgress,
    /// The volume belongs to another instance. The controller leaves it alone, without an event.
    ignored: Ignored,
}

/// The meaning of a failed deletion for the volume.
///
/// | verdict | the controller | the volume's events say |
/// |---|---|---|
/// | `Retry` | retries with back-off | `VolumeFailedDelete` (Warning) |
/// | `InUse` | retries with back-off | `VolumeDelete` (Normal) |
/// | `InProgress` | calls again until it is done | `VolumeDelete` (Normal) |
/// | `Ignored` | leaves the volume to another instance | nothing |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeleteVerdict {
    /// The call failed and may succeed later.
    Retry,
    /// The volume is still in use, which is not a failure.
    InUse,
    /// The backend is still working.
    InProgress,
    /// The volume belongs to another instance.
    Ignored,
    /// The provisioner does not implement the method.
    #[doc(hidden)]
    Unsupported,
}

impl DeleteError {
    pub(crate) fn unsupported() -> Self {
        Self::new(DeleteVerdict::Unsupported, "this provisioner cannot do that")
    }
}
