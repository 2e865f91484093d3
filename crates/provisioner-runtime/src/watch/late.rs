//! What a watch is late with: the API server has shown it in an answer, and the watch has not told of it.
//!
//! A connection that was cut without a word looks like one that has nothing to tell, and is given up only when the server
//! would have ended it. An answer that is newer than the watch tells the two apart sooner.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::news::News;

/// How long a watch that works may say nothing while it is behind the answers. Twice as long each time it was in vain.
const LATE: Duration = Duration::from_secs(5);

/// Longer than a watch lasts anyway.
const MOST_DOUBLINGS: u32 = 4;

/// How far the watch has to get.
#[derive(Debug, Default)]
pub(super) struct Expected {
    version: AtomicU64,
    /// How many connections were given up for it.
    given_up: AtomicU32,
    news: News,
}

impl Expected {
    /// The watch has to tell of this version.
    pub(super) fn raise(&self, version: u64) {
        if self.version.fetch_max(version, Ordering::Relaxed) < version {
            self.given_up.store(0, Ordering::Relaxed);
            self.news.tell();
        }
    }

    /// All was listed, and the server's numbers may have begun anew.
    pub(super) fn forget(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// Returns when nothing at all was told for a while although something is expected.
    pub(super) async fn late(&self, position: impl Fn() -> u64) {
        let mut news = self.news.follow();
        let is_behind = |position: u64| position < self.version.load(Ordering::Relaxed);
        loop {
            let before = position();
            if !is_behind(before) {
                news.changed().await;
                continue;
            }
            let given_up = self.given_up.load(Ordering::Relaxed);
            sleep(LATE * (1 << given_up.min(MOST_DOUBLINGS))).await;
            // One that tells anything works, and will get there.
            if position() == before && is_behind(before) {
                self.given_up.store(given_up + 1, Ordering::Relaxed);
                return;
            }
        }
    }
}
