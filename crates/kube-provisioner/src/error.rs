//! The errors that an author's code returns.

mod expand;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use self::expand::{ExpandError, ExpandVerdict};

type BoxError = Box<dyn Error + Send + Sync>;

/// Why a volume was not provisioned, and what that means for the claim.
///
/// Any error turned into this type by `?` means [`Verdict::Retry`]: something may have been left behind, so the attempt is
/// remembered until it has ended. Where nothing was made yet, say so by [`nothing_left`](Self::nothing_left). The text reaches the claim's
/// user in an event, so it should say what is wrong and what to do about it.
///
/// ```
/// use kube_provisioner::{ProvisionError, Verdict};
///
/// fn quota(free: u64, wanted: u64) -> Result<(), ProvisionError> {
///     let text = std::fs::read_to_string("/proc/self/comm")?; // an io error: tried again
///     if text.is_empty() || wanted > free {
///         return Err(ProvisionError::nothing_left("the pool is full; free some space or add a disk"));
///     }
///     Ok(())
/// }
/// assert_eq!(quota(1, 2).unwrap_err().verdict(), Verdict::NothingLeft);
/// ```
pub struct ProvisionError {
    verdict: Verdict,
    retry_after: Option<Duration>,
    source: BoxError,
}

/// What a failed attempt means for the claim.
///
/// | verdict | the controller | the claim's user sees |
/// |---|---|---|
/// | `Retry` | tries again with growing pauses; when the claim goes, [cleans up] or drives the attempt to its end | `ProvisioningFailed` |
/// | `NothingLeft` | tries again with growing pauses while the claim exists | `ProvisioningFailed` |
/// | `InProgress` | asks again until there is another answer; when the claim goes as for `Retry` | `Provisioning` |
/// | `Reschedule` | asks the scheduler for another node; without a selected node the same as `NothingLeft` | `ProvisioningFailed` |
/// | `Invalid` | waits until the claim or its class changes | `ProvisioningFailed` |
/// | `NotMine` | leaves the claim to another provisioner | nothing |
///
/// `NothingLeft`, `Reschedule`, `Invalid` and `NotMine` end the attempt: the author says that no call of it has left anything
/// in the backend. Only `Retry` counts as if something may be there.
///
/// [cleans up]: crate::Provisioner::clean_up
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Another call may succeed; something may have been left behind.
    Retry,
    /// Nothing was left behind; another attempt may succeed.
    NothingLeft,
    /// The backend may still be working, or may have made something that only another call finds.
    InProgress,
    /// Cannot be done on the selected node, and nothing was left behind there.
    Reschedule,
    /// Cannot be done with this claim and this class, however often it is tried. Nothing was left behind.
    Invalid,
    /// The claim belongs to another provisioner. Nothing was left behind.
    NotMine,
}

impl ProvisionError {
    /// The controller tries again with growing pauses. Something may have been left behind. The same as `?`, for texts
    /// and boxed errors.
    pub fn retry(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Retry, source)
    }

    /// The controller tries again with growing pauses. Neither this call nor an earlier one has left anything in the
    /// backend.
    pub fn nothing_left(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::NothingLeft, source)
    }

    /// The backend is still working. The controller asks again until it is done, whatever happens to the claim.
    pub fn in_progress(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::InProgress, source)
    }

    /// Not possible on the selected node. The controller asks the scheduler for another one.
    pub fn reschedule(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Reschedule, source)
    }

    /// Not possible with this claim and class. The controller tries again when one of them changes.
    pub fn invalid(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::Invalid, source)
    }

    /// Not this provisioner's claim. The controller leaves it alone, without an event.
    pub fn not_mine(source: impl Into<BoxError>) -> Self {
        Self::new(Verdict::NotMine, source)
    }

    /// The pause before the next attempt, instead of the controller's own. For `Retry`, `NothingLeft` and `InProgress`.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What the error means for the claim.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The pause that the author asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn new(verdict: Verdict, source: impl Into<BoxError>) -> Self {
        Self { verdict, retry_after: None, source: source.into() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for ProvisionError {
    fn from(source: E) -> Self {
        Self::retry(source)
    }
}

impl fmt::Display for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &*self.source)
    }
}

impl fmt::Debug for ProvisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.verdict)
    }
}

/// Why a volume's asset was not deleted.
///
/// Any error turned into this type by `?` is tried again with growing pauses. An asset that is
/// already gone is no error: return `Ok(())`.
pub struct DeleteError {
    verdict: DeleteVerdict,
    retry_after: Option<Duration>,
    source: BoxError,
}

/// What a failed deletion means for the volume.
///
/// | verdict | the controller | the volume's events say |
/// |---|---|---|
/// | `Retry` | tries again with growing pauses | `VolumeFailedDelete` (Warning) |
/// | `InUse` | tries again with growing pauses | `VolumeDelete` (Normal) |
/// | `InProgress` | asks again until it is done | `VolumeDelete` (Normal) |
/// | `NotMine` | leaves the volume to another instance | nothing |
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
    NotMine,
    /// The provisioner has no such method.
    #[doc(hidden)]
    Unsupported,
}

impl DeleteError {
    /// The controller tries again with growing pauses. The same as `?`, for texts and boxed errors.
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
    pub fn not_mine(source: impl Into<BoxError>) -> Self {
        Self::new(DeleteVerdict::NotMine, source)
    }

    /// The pause before the next attempt, instead of the controller's own.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What the error means for the volume.
    pub fn verdict(&self) -> DeleteVerdict {
        self.verdict
    }

    /// The pause that the author asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    fn new(verdict: DeleteVerdict, source: impl Into<BoxError>) -> Self {
        Self { verdict, retry_after: None, source: source.into() }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for DeleteError {
    fn from(source: E) -> Self {
        Self::retry(source)
    }
}

impl fmt::Display for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &*self.source)
    }
}

impl fmt::Debug for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.verdict)
    }
}

/// Why a provisioner cannot begin yet, or cannot work now. Any error is turned into this type by `?`.
pub struct StartError(BoxError);

impl StartError {
    /// From a text or a boxed error.
    pub fn new(source: impl Into<BoxError>) -> Self {
        Self(source.into())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for StartError {
    fn from(source: E) -> Self {
        Self::new(source)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &*self.0)
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Writes an error with its causes, but no cause whose text the error already has.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &(dyn Error + 'static)) -> fmt::Result {
    let mut said = error.to_string();
    f.write_str(&said)?;
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            write!(f, ": {text}")?;
            said = text;
        }
        cause = error.source();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot make the directory")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn question_mark_means_retry_and_the_causes_are_told() {
        let attempt = || -> Result<(), ProvisionError> { Err(Outer(std::io::Error::other("disk full")))? };
        let error = attempt().unwrap_err();
        assert_eq!(error.verdict(), Verdict::Retry);
        assert_eq!(error.to_string(), "cannot make the directory: disk full");
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Repeats(#[source] std::io::Error);
        let error = DeleteError::from(Repeats(std::io::Error::other("inner")));
        assert_eq!(error.to_string(), "outer: inner");
    }

    #[test]
    fn every_constructor_has_its_verdict() {
        assert_eq!(ProvisionError::invalid("x").verdict(), Verdict::Invalid);
        assert_eq!(ProvisionError::reschedule("x").verdict(), Verdict::Reschedule);
        assert_eq!(ProvisionError::not_mine("x").verdict(), Verdict::NotMine);
        let slow = ProvisionError::in_progress("x").after(Duration::from_secs(3));
        assert_eq!((slow.verdict(), slow.retry_after()), (Verdict::InProgress, Some(Duration::from_secs(3))));
        assert_eq!(DeleteError::in_use("x").verdict(), DeleteVerdict::InUse);
        assert_eq!(DeleteError::not_mine("x").verdict(), DeleteVerdict::NotMine);
    }
}
