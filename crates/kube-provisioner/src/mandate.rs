//! Whether a call may still act.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the call that this came with may still act: it was not given up, and no other replica works in the place of
/// this one. Cheap to clone and to ask, from any thread.
///
/// Code behind an `.await` needs none: it is not polled any more. A blocking thread, or a request to a backend that is
/// prepared for long, should ask right before each step that makes or removes something: a process that stood still does
/// not know that others went on without it.
///
/// ```
/// # use kube_provisioner::*;
/// # fn make(name: &str) {}
/// # async fn provision(request: ProvisionRequest<()>) -> Result<(), ProvisionError> {
/// let mandate = request.mandate.clone();
/// tokio::task::spawn_blocking(move || {
///     if !mandate.holds() {
///         return Err(ProvisionError::retry("cut off"));
///     }
///     make(&request.name);
///     Ok(())
/// })
/// .await?
/// # }
/// ```
#[derive(Clone)]
pub struct Mandate {
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
    over: Arc<AtomicBool>,
}

/// Ends a mandate when it is dropped: nobody waits for the call any more.
#[must_use = "the mandate ends when this is dropped"]
pub(crate) struct Call(Arc<AtomicBool>);

impl Mandate {
    /// For one call, as long as `valid` says so and the second part lives.
    pub(crate) fn of_call(valid: impl Fn() -> bool + Send + Sync + 'static) -> (Self, Call) {
        let mandate = Self::as_long_as(valid);
        let call = Call(mandate.over.clone());
        (mandate, call)
    }

    /// One that holds for ever, for an author's own tests.
    pub fn unlimited() -> Self {
        Self::as_long_as(|| true)
    }

    /// One that holds as long as this says so, for an author's own tests.
    pub fn as_long_as(valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { valid: Arc::new(valid), over: Arc::default() }
    }

    /// Whether the call may still act.
    pub fn holds(&self) -> bool {
        !self.over.load(Ordering::Acquire) && (self.valid)()
    }
}

impl fmt::Debug for Mandate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mandate").field("holds", &self.holds()).finish()
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mandate_ends_with_its_call_and_with_what_it_depends_on() {
        let valid = Arc::new(AtomicBool::new(true));
        let asked = valid.clone();
        let (mandate, call) = Mandate::of_call(move || asked.load(Ordering::Relaxed));
        let thread = mandate.clone();
        assert!(thread.holds());
        valid.store(false, Ordering::Relaxed);
        assert!(!thread.holds());
        valid.store(true, Ordering::Relaxed);
        drop(call);
        assert!(!thread.holds());
        assert!(Mandate::unlimited().holds());
    }
}
