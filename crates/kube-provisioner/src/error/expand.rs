//! The error of an author's `expand`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::{BoxError, write_chain};

/// Why a volume's asset was not expanded.
///
/// Any error turned into this type by `?` is tried again with growing pauses. An asset that has the size already is no
/// error: return `Ok(())`. The text reaches the claim's user in an event.
pub struct ExpandError {
    verdict: ExpandVerdict,
    retry_after: Option<Duration>,
    source: BoxError,
}

/// What a failed expansion means for the claim.
///
/// | verdict | the controller | the claim's user sees |
/// |---|---|---|
/// | `Retry` | tries again with growing pauses | `VolumeResizeFailed` |
/// | `InProgress` | asks again until it is done | `Resizing` |
/// | `Infeasible` | marks the claim `ControllerResizeInfeasible` and tries again after a long pause, or when the claim changes | `VolumeResizeFailed` |
/// | `NotMine` | leaves the volume to another instance | nothing |
///
/// After `Infeasible` the user may lower the request again, but not below the size that the volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExpandVerdict {
    /// The call failed and may succeed later.
    Retry,
    /// The backend is working.
    InProgress,
    /// Cannot be done, and the asset has its old size.
    Infeasible,
    /// Another instance's volume.
    NotMine,
    /// The provisioner has no such method.
    #[doc(hidden)]
    Unsupported,
}

impl ExpandError {
    /// The controller tries again with growing pauses. The same as `?`, for texts and boxed errors.
    pub fn retry(source: impl Into<BoxError>) -> Self {
        Self::new(ExpandVerdict::Retry, source)
    }

    /// The backend is working. The controller asks again until it is done.
    pub fn in_progress(source: impl Into<BoxError>) -> Self {
        Self::new(ExpandVerdict::InProgress, source)
    }

    /// The asset cannot have this size and still has its old one. The user may ask for less.
    pub fn infeasible(source: impl Into<BoxError>) -> Self {
        Self::new(ExpandVerdict::Infeasible, source)
    }

    /// Not this instance's volume. The controller leaves it alone, without an event.
    pub fn not_mine(source: impl Into<BoxError>) -> Self {
        Self::new(ExpandVerdict::NotMine, source)
    }

    pub(crate) fn unsupported() -> Self {
        Self::new(ExpandVerdict::Unsupported, "this provisioner cannot expand volumes")
    }

    /// The pause before the next attempt, instead of the controller's own.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What the error means for the claim.
    pub fn verdict(&self) -> ExpandVerdict {
        self.verdict
    }

    /// The pause that the author asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn new(verdict: ExpandVerdict, source: impl Into<BoxError>) -> Self {
        Self { verdict, retry_after: None, source: source.into() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ExpandError {
    fn from(source: E) -> Self {
        Self::retry(source)
    }
}

impl fmt::Display for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &*self.source)
    }
}

impl fmt::Debug for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.verdict)
    }
}
