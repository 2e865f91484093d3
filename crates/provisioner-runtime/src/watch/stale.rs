//! Detection of stale watches: a response of the API server contained a version that the watch does not deliver.
//!
//! A connection that was cut silently looks like one that has nothing to deliver. It is abandoned only when the server
//! would have sent a bookmark. A response that is newer than the watch reveals the difference sooner.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::notify::Notifier;

/// Maximum time that a watch may deliver nothing while it lags behind a response. Doubled after each connection that
/// did not help.
const PATIENCE: Duration = Duration::from_secs(5);

/// With this many doublings, the time exceeds the longest silence of a watch.
const MAX_DOUBLINGS: u32 = 4;

/// The version that the watch has to reach.
#[derive(Debug, Default)]
pub(super) struct Expected {
    version: AtomicU64,
    /// Number of connections abandoned for this version.
    given_up: AtomicU32,
    changed: Notifier,
}

impl Expected {
    /// Records that the watch has to deliver this version.
    pub(super) fn raise(&self, version: u64) {
        if self.version.fetch_max(version, Ordering::Relaxed) < version {
            self.given_up.store(0, Ordering::Relaxed);
            self.changed.notify();
        }
    }

    /// Forgets the version, because everything was listed and the server's versions may have restarted.
    pub(super) fn forget(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// Returns when a version is expected and nothing is delivered for a while.
    pub(super) async fn stale(&self, position: impl Fn() -> u64) {
        let mut changed = self.changed.follow();
        let is_behind = |position: u64| position < self.version.load(Ordering::Relaxed);
        loop {
            let before = position();
            if !is_behind(before) {
                changed.changed().await;
                continue;
            }
            let given_up = self.given_up.load(Ordering::Relaxed);
            sleep(PATIENCE * (1 << given_up.min(MAX_DOUBLINGS))).await;
            // A watch that delivers anything works, and will catch up.
            if position() == before && is_behind(before) {
                self.given_up.store(given_up + 1, Ordering::Relaxed);
                return;
            }
        }
    }
}
