//! A token that shows whether a call may still act.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Shows whether a call may still act: it was not abandoned, and no other replica has taken over its work. Cheap to
/// clone and to check, from any thread.
///
/// Async code does not need it, because it is no longer polled once the token is invalid. A blocking thread should
/// check it right before each step that creates or removes something, and so should a request that takes long to
/// prepare. A process that was suspended does not know that others have taken over.
///
/// ```
/// # use provisioner_runtime::FencingToken;
/// # fn make(name: &str) {}
/// # async fn make_disk(token: FencingToken) -> Result<(), String> {
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

/// Invalidates its token when dropped, because the caller no longer waits for the call.
#[must_use = "the token ends when this is dropped"]
#[derive(Debug)]
pub struct TokenGuard(Arc<AtomicBool>);

impl FencingToken {
    /// Creates a token for one call: valid while `valid` returns true and the guard lives.
    pub fn of_call(valid: impl Fn() -> bool + Send + Sync + 'static) -> (Self, TokenGuard) {
        let token = Self::valid_while(valid);
        let guard = TokenGuard(token.over.clone());
        (token, guard)
    }

    /// Creates a token that is always valid, for an author's tests.
    pub fn unlimited() -> Self {
        Self::valid_while(|| true)
    }

    /// Creates a token that is valid while `valid` returns true, for an author's tests.
    pub fn valid_while(valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { valid: Arc::new(valid), over: Arc::default() }
    }

    /// Returns true if the call may still act.
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
    fn token_is_invalid_once_its_call_or_condition_ends() {
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
