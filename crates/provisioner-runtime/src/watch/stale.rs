//! Notices a stale watch: the API server has shown something in an answer that the watch does not deliver.
//!
//! A connection that was cut without a word looks like one that has nothing to deliver, and is given up only when the server
//! would have ended it. An answer that is newer than the watch tells the two apart sooner.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::notify::Notifier;

/// How long a watch that works may deliver nothing while it is behind the answers. Doubled each time that it was in vain.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than a watch lasts anyway.
const MOST_DOUBLINGS: u32 = 4;

/// How far the watch has to get.
#[derive(Debug, Default)]
pub(super) struct Expected {
    version: AtomicU64,
    /// How many connections were given up for it.
    given_up: AtomicU32,
    changed: Notifier,
}

impl Expected {
    /// The watch has to deliver this version.
    pub(super) fn raise(&self, version: u64) {
        if self.version.fetch_max(version, Ordering::Relaxed) < version {
            self.given_up.store(0, Ordering::Relaxed);
            self.changed.notify();
        }
    }

    /// All was listed, and the server's numbers may have begun anew.
    pub(super) fn forget(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// Returns when nothing was delivered for a while although something is expected.
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
            sleep(PATIENCE * (1 << given_up.min(MOST_DOUBLINGS))).await;
            // One that delivers anything works, and will get there.
            if position() == before && is_behind(before) {
                self.given_up.store(given_up + 1, Ordering::Relaxed);
                return;
            }
        }
    }
}
