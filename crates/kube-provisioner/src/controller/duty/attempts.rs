//! What is tried until it succeeds, because nothing may be begun before.

use std::fmt;
use std::time::Duration;

use provisioner_runtime::backoff::Backoff;
use provisioner_runtime::surroundings::Surroundings;
use tokio::time::sleep;

const PAUSES: Backoff = Backoff::exponential(Duration::from_millis(250), Duration::from_secs(15));

/// Attempts at one thing.
pub(super) struct Attempts {
    about: &'static str,
    surroundings: Surroundings,
    failed: u32,
}

impl Attempts {
    pub(super) fn at(about: &'static str, surroundings: Surroundings) -> Self {
        Self { about, surroundings, failed: 0 }
    }

    /// One has failed: the next one may be made when this returns.
    pub(super) async fn failed(&mut self, error: impl fmt::Display) {
        self.failed += 1;
        tracing::warn!("{}: {error}", self.about);
        let chance = self.surroundings.number(&format!("{} {}", self.about, self.failed));
        sleep(PAUSES.delay(self.failed, chance as f64 / u64::MAX as f64)).await;
    }
}
