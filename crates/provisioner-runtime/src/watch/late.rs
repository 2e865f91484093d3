//! What a watch is late with: the API server has shown it in an answer, and the watch has not told of it.
//!
//! A connection that was cut without a word looks like one that has nothing to tell, and is given up only when the server
//! would have ended it. An answer that is newer than the watch tells the two apart sooner.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::news::News;

/// How far a watch that works may be behind the answers.
pub(super) const LATE: Duration = Duration::from_secs(5);

/// How far the watch has to get.
#[derive(Debug, Default)]
pub(super) struct Expected {
    version: AtomicU64,
    news: News,
}

impl Expected {
    /// The watch has to tell of this version.
    pub(super) fn raise(&self, version: u64) {
        self.version.fetch_max(version, Ordering::Relaxed);
        self.news.tell();
    }

    /// All was listed, and the server's numbers may have begun anew.
    pub(super) fn forget(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// Returns when what was expected has not been told for [`LATE`].
    pub(super) async fn late(&self, position: impl Fn() -> u64) {
        let mut news = self.news.follow();
        loop {
            let wanted = self.version.load(Ordering::Relaxed);
            if position() >= wanted {
                news.changed().await;
                continue;
            }
            sleep(LATE).await;
            let forgotten = self.version.load(Ordering::Relaxed) < wanted;
            if !forgotten && position() < wanted {
                return;
            }
        }
    }
}
