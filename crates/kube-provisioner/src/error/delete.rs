//! The error of an author's `delete`, `clean_up` and `should_delete`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{BoxError, Failure, error_with_verdict};

/// Why a volume's asset was not deleted.
///
/// Any error turned into this type by `?` is retried with back-off. An asset that is
/// already gone is no error: return `Ok(())`.
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

error_with_verdict!(DeleteError, DeleteVerdict);

/// What a failed deletion means for the volume.
///
/// | verdict | the controller | the volume's events say |
/// |---|---|---|
/// | `Retry` | retries with back-off | `VolumeFailedDelete` (Warning) |
/// | `InUse` | retries with back-off | `VolumeDelete` (Normal) |
/// | `InProgress` | asks again until it is done | `VolumeDelete` (Normal) |
/// | `Ignored` | leaves the volume to another instance | nothing |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeleteVerdict {
    /// The call failed and may succeed later.
    Retry,
    /// The volume is still in use. This is no failure.
    InUse,
    /// The backend is working.
    InProgress,
    /// Another instance's volume.
    Ignored,
    /// The provisioner has no such method.
    #[doc(hidden)]
    Unsupported,
}

impl DeleteError {
    /// The controller retries with back-off. The same as `?`, for texts and boxed errors.
    pub fn retry(source: impl Into<BoxError>) -> Self {
        Self::new(DeleteVerdict::Retry, source)
    }

    /// Still in use. The controller tries again, without a warning.
    pub fn in_use(source: impl Into<BoxError>) -> Self {
        Self::new(DeleteVerdict::InUse, source)
    }

    /// The backend is working. The controller asks again until it is done.
    pub fn in_progress(source: impl Into<BoxError>) -> Self {
        Self::new(DeleteVerdict::InProgress, source)
    }

    pub(crate) fn unsupported() -> Self {
        Self::new(DeleteVerdict::Unsupported, "this provisioner cannot do that")
    }

    /// Not this instance's volume. The controller leaves it alone, without an event.
    pub fn ignored(source: impl Into<BoxError>) -> Self {
        Self::new(DeleteVerdict::Ignored, source)
    }
}
