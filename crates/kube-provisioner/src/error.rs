//! The errors that an author's code returns.

mod delete;
mod expand;
mod provision;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use provisioner_runtime::error_chain;

pub use self::delete::{DeleteError, DeleteVerdict};
pub use self::expand::{ExpandError, ExpandVerdict};
pub use self::provision::{ProvisionError, ProvisionVerdict};

type BoxError = Box<dyn Error + Send + Sync>;

/// A failed call of the author's code: the inside of all errors with a verdict.
struct Failure<V> {
    verdict: V,
    retry_after: Option<Duration>,
    source: BoxError,
}

impl<V> Failure<V> {
    fn new(verdict: V, source: impl Into<BoxError>) -> Self {
        Self { verdict, retry_after: None, source: source.into() }
    }
}

impl<V> fmt::Display for Failure<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_chain(&*self.source))
    }
}

impl<V: fmt::Debug> fmt::Debug for Failure<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.verdict)
    }
}

/// The methods and traits that all errors with a verdict have. `?` always means `Retry`.
macro_rules! error_with_verdict {
    ($error:ident, $verdict:ident) => {
        impl $error {
            /// The pause before the next attempt, instead of the controller's own. Verdicts without a retry ignore it.
            #[must_use]
            pub fn after(mut self, pause: Duration) -> Self {
                self.0.retry_after = Some(pause);
                self
            }

            /// What the controller does about the error.
            pub fn verdict(&self) -> $verdict {
                self.0.verdict
            }

            /// What it was made of, for the author's code to recognise an error of its own by `downcast_ref`.
            pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
                &*self.0.source
            }

            /// The pause that the author asked for.
            pub fn retry_after(&self) -> Option<Duration> {
                self.0.retry_after
            }

            fn new(verdict: $verdict, source: impl Into<BoxError>) -> Self {
                Self(Failure::new(verdict, source))
            }
        }

        impl<E: Error + Send + Sync + 'static> From<E> for $error {
            fn from(source: E) -> Self {
                Self::retry(source)
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

use error_with_verdict;

/// Why a provisioner cannot begin yet, or cannot work now. Any error is turned into this type by `?`.
///
/// ```
/// use kube_provisioner::StartError;
///
/// fn check(root: &std::path::Path) -> Result<(), StartError> {
///     match std::fs::metadata(root)?.is_dir() {
///         true => Ok(()),
///         false => Err(StartError::new(format!("{} is no directory", root.display()))),
///     }
/// }
/// assert!(check("/".as_ref()).is_ok());
/// assert!(check("/no/such/folder".as_ref()).is_err());
/// ```
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
        f.write_str(&error_chain(&*self.0))
    }
}

impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
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
        assert_eq!(error.verdict(), ProvisionVerdict::Retry);
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
        assert_eq!(ProvisionError::invalid("x").verdict(), ProvisionVerdict::Invalid);
        assert_eq!(ProvisionError::reschedule("x").verdict(), ProvisionVerdict::Reschedule);
        assert_eq!(ProvisionError::ignored("x").verdict(), ProvisionVerdict::Ignored);
        let slow = ProvisionError::in_progress("x").after(Duration::from_secs(3));
        assert_eq!((slow.verdict(), slow.retry_after()), (ProvisionVerdict::InProgress, Some(Duration::from_secs(3))));
        assert_eq!(DeleteError::in_use("x").verdict(), DeleteVerdict::InUse);
        assert_eq!(DeleteError::ignored("x").verdict(), DeleteVerdict::Ignored);
    }
}
