//! Whether a call may still act.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the call that this came with may still act: nobody has given it up, and no other replica works in its place.
/// Cheap to clone and to ask, from any thread.
///
/// Code behind an `.await` needs none: it is not polled any more. A blocking thread should ask right before each step that
/// makes or removes something, and so should a request that takes long to prepare: a process that stood still does not
/// know that others went on without it.
///
/// ```
/// # use provisioner_runtime::FencingToken;
/// # fn make(name: &str) {}
/// # async fn provision(token: FencingToken) -> Result<(), String> {
/// let answer = tokio::task::spawn_blocking(move || {
///     if !token.is_valid() {
///         return Err("cut off".to_owned());
///     }
///     make("disk-1");
///     Ok(())
/// });
/// answer.await.map_err(|error| error.to_string())?
/// # }
/// ```
#[derive(Clone)]
pub struct FencingToken {
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
    over: Arc<AtomicBool>,
}

/// Ends a token when it is dropped: nobody waits for the call any more.
#[must_use = "the token ends when this is dropped"]
#[derive(Debug)]
pub struct TokenGuard(Arc<AtomicBool>);

impl FencingToken {
    /// For one call: valid as long as `valid` says so and the guard lives.
    pub fn of_call(valid: impl Fn() -> bool + Send + Sync + 'static) -> (Self, TokenGuard) {
        let token = Self::as_long_as(valid);
        let guard = TokenGuard(token.over.clone());
        (token, guard)
    }

    /// Always valid: for an author's own tests.
    pub fn unlimited() -> Self {
        Self::as_long_as(|| true)
    }

    /// Valid as long as `valid` says so: for an author's own tests.
    pub fn as_long_as(valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { valid: Arc::new(valid), over: Arc::default() }
    }

    /// Whether the call may still act.
    pub fn is_valid(&self) -> bool {
        !self.over.load(Ordering::Acquire) && (self.valid)()
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencingToken").field("valid", &self.is_valid()).finish()
    }
}

impl Drop for TokenGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_with_its_call_and_with_what_it_depends_on() {
        let valid = Arc::new(AtomicBool::new(true));
        let asked = valid.clone();
        let (token, guard) = FencingToken::of_call(move || asked.load(Ordering::Relaxed));
        let thread = token.clone();
        assert!(thread.is_valid());
        valid.store(false, Ordering::Relaxed);
        assert!(!thread.is_valid());
        valid.store(true, Ordering::Relaxed);
        drop(guard);
        assert!(!thread.is_valid());
        assert!(FencingToken::unlimited().is_valid());
    }
}
