//! The errors that a provisioner returns.

mod delete;
mod expand;
mod provision;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use provisioner_runtime::{MAX_TEXT, error_chain, shortened};

pub use self::delete::{DeleteError, DeleteVerdict};
pub use self::expand::{ExpandError, ExpandVerdict};
pub use self::provision::{ProvisionError, ProvisionVerdict};

type BoxError = Box<dyn Error + Send + Sync>;

/// A failed call of the provisioner: the content of all errors with a verdict.
struct Failure<V> {
    verdict: V,
    retry_after: Option<Duration>,
    source: BoxError,
    user_text: Option<String>,
}

impl<V> Failure<V> {
    fn new(verdict: V, source: impl Into<BoxError>) -> Self {
        Self { verdict, retry_after: None, source: source.into(), user_text: None }
    }

    fn user_text(&self) -> String {
        let own = || shortened(self.source.to_string(), MAX_TEXT);
        self.user_text.clone().unwrap_or_else(own)
    }

    fn event_text(&self, about: &dyn fmt::Display) -> String {
        let (full, user_text) = (self.to_string(), self.user_text());
        if full == user_text {
            return user_text;
        }
        tracing::warn!(%about, "{full}");
        with_log_hint(&user_text)
    }
}

/// Adds a hint that the provisioner's log contains more than the event.
pub(crate) fn with_log_hint(text: &str) -> String {
    format!("{text} (for the administrator: the provisioner's log has the details)")
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

/// Defines the constructors of an error with a verdict, and what all such errors share. `?` always means `Retry`.
macro_rules! error_with_verdict {
    ($error:ident, $verdict:ident; $($(#[$doc:meta])+ $constructor:ident: $variant:ident,)+) => {
        impl $error {
            $($(#[$doc])+
            pub fn $constructor(source: impl Into<BoxError>) -> Self {
                Self::new($verdict::$variant, source)
            })+

            /// Sets the pause before the next attempt, instead of the controller's own back-off. Verdicts without a
            /// retry ignore it. Zero, which backends send in `Retry-After`, selects the back-off.
            #[must_use]
            pub fn after(mut self, pause: Duration) -> Self {
                self.0.retry_after = Some(pause).filter(|pause| !pause.is_zero());
                self
            }

            /// Sets the message that the claim's user reads in events. Use it if the error itself contains details that
            /// only an administrator may see, such as the paths of a node. The log contains the error itself.
            #[must_use]
            pub fn with_user_text(mut self, text: impl Into<String>) -> Self {
                self.0.user_text = Some(text.into());
                self
            }

            /// Returns the message that the claim's user reads in events: the one that was set, or else the error's own
            /// message without its sources. `Display` adds the sources.
            pub fn user_text(&self) -> String {
                self.0.user_text()
            }

            /// Returns the text of an event on the claim, and logs the rest of the error.
            pub(crate) fn event_text(&self, about: &dyn fmt::Display) -> String {
                self.0.event_text(about)
            }

            /// Returns the verdict, which determines what the controller does about the error.
            pub fn verdict(&self) -> $verdict {
                self.0.verdict
            }

            /// Returns the error that this one was created from, so that the provisioner can recognise its own errors
            /// with `downcast_ref`.
            pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
                &*self.0.source
            }

            /// Returns the pause that the provisioner requested.
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

/// The reason why a provisioner cannot start yet, or cannot work now. `?` converts any error into this type.
///
/// ```
/// use kube_provisioner::StartError;
///
/// fn check(root: &std::path::Path) -> Result<(), StartError> {
///     match std::fs::metadata(root)?.is_dir() {
///         true => Ok(()),
///         false => Err(StartError::new(format!("{} is not a directory", root.display()))),
///     }
/// }
/// assert!(check("/".as_ref()).is_ok());
/// assert!(check("/no/such/folder".as_ref()).is_err());
/// ```
pub struct StartError(BoxError);

impl StartError {
    /// Creates an error from a string or a boxed error.
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
    fn question_mark_means_retry_and_keeps_causes() {
        let attempt = || -> Result<(), ProvisionError> { Err(Outer(std::io::Error::other("disk full")))? };
        let error = attempt().unwrap_err();
        assert_eq!(error.verdict(), ProvisionVerdict::Retry);
        assert_eq!(error.to_string(), "cannot make the directory: disk full");
    }

    #[test]
    fn display_does_not_repeat_a_cause() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Repeats(#[source] std::io::Error);
        let error = DeleteError::from(Repeats(std::io::Error::other("inner")));
        assert_eq!(error.to_string(), "outer: inner");
    }

    #[test]
    fn user_text_omits_sources_and_replaced_messages() {
        let error = ProvisionError::from(Outer(std::io::Error::other("/srv/disk: full")));
        assert_eq!(error.user_text(), "cannot make the directory");
        let error = error.with_user_text("there is no room");
        assert_eq!(
            (&*error.user_text(), &*error.to_string()),
            ("there is no room", "cannot make the directory: /srv/disk: full")
        );
        assert_eq!(ProvisionError::before_changes(error).user_text(), "there is no room");
    }

    #[test]
    fn constructors_set_their_verdict() {
        assert_eq!(ProvisionError::invalid("x").verdict(), ProvisionVerdict::Invalid);
        assert_eq!(ProvisionError::reschedule("x").verdict(), ProvisionVerdict::Reschedule);
        assert_eq!(ProvisionError::ignored("x").verdict(), ProvisionVerdict::Ignored);
        let slow = ProvisionError::in_progress("x").after(Duration::from_secs(3));
        assert_eq!((slow.verdict(), slow.retry_after()), (ProvisionVerdict::InProgress, Some(Duration::from_secs(3))));
        // Otherwise the controller would call again without any pause.
        assert_eq!(slow.after(Duration::ZERO).retry_after(), None);
        assert_eq!(DeleteError::in_use("x").verdict(), DeleteVerdict::InUse);
        assert_eq!(DeleteError::ignored("x").verdict(), DeleteVerdict::Ignored);
    }
}
