//! What this process has created a moment ago, for backends that are eventually consistent.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What this process has created a moment ago.
///
/// Some backends may not show a new object for some seconds, IAM of AWS and of Google among them. An author who asks such a
/// backend before removing something must not believe its "not found" yet, or the object leaks.
///
/// ```
/// use std::time::Duration;
/// use kube_provisioner::bucket::RecentlyCreated;
///
/// let recent = RecentlyCreated::within(Duration::from_secs(60));
/// recent.created("user-1");
/// assert!(recent.has("user-1"));
/// recent.removed("user-1");
/// assert!(!recent.has("user-1"));
/// ```
#[derive(Debug)]
pub struct RecentlyCreated {
    window: Duration,
    since: Mutex<HashMap<String, Instant>>,
}

impl RecentlyCreated {
    /// A backend that shows a new object after `window` at the latest.
    pub fn within(window: Duration) -> Self {
        Self { window, since: Mutex::default() }
    }

    /// Records an object by its name.
    pub fn created(&self, name: &str) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|_, created| created.elapsed() < self.window);
        since.insert(name.to_owned(), Instant::now());
    }

    /// Forgets an object that was removed.
    pub fn removed(&self, name: &str) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Whether the backend may not show the object yet.
    pub fn has(&self, name: &str) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get(name).is_some_and(|created| created.elapsed() < self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_is_recent_for_some_time() {
        let window = Duration::from_secs(30);
        let recent = RecentlyCreated::within(window);
        recent.created("photos");
        assert!(recent.has("photos") && !recent.has("videos"));
        tokio::time::advance(window).await;
        assert!(!recent.has("photos"));
        recent.created("photos");
        recent.removed("photos");
        assert!(!recent.has("photos"));
    }
}
