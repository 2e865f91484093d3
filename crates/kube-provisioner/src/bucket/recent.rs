//! A memory of recently created objects, for backends that are eventually consistent.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The objects that this process has created recently.
///
/// Some backends, such as the IAM services of AWS and Google, may not show a new object for some seconds. A provisioner
/// that looks up an object before it removes something must not trust "not found" during that time, or the object
/// leaks.
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
    /// Creates a memory for a backend that shows a new object after at most `window`.
    pub fn within(window: Duration) -> Self {
        Self { window, since: Mutex::default() }
    }

    /// Records an object by its name.
    pub fn created(&self, name: &str) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|_, created| created.elapsed() < self.window);
        since.insert(name.to_owned(), Instant::now());
    }

    /// Forgets an object that has been removed.
    pub fn removed(&self, name: &str) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns true if the backend may not show the object yet.
    pub fn has(&self, name: &str) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get(name).is_some_and(|created| created.elapsed() < self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn forgets_objects_after_the_window_or_their_removal() {
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
