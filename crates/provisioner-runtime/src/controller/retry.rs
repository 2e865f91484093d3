//! Retries of operations that must succeed before work can begin.

use std::fmt;
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::environment::Environment;

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(250), Duration::from_secs(15));

/// Attempts at one operation.
pub(super) struct Retry {
    about: &'static str,
    environment: Environment,
    failed: u32,
}

impl Retry {
    pub(super) fn new(about: &'static str, environment: Environment) -> Self {
        Self { about, environment, failed: 0 }
    }

    /// Records a failed attempt. Returns when it is time for the next one.
    pub(super) async fn failed(&mut self, error: impl fmt::Display) {
        self.failed += 1;
        tracing::warn!("{}: {error}", self.about);
        let chance = self.environment.number(&format!("{} {}", self.about, self.failed));
        sleep(BACKOFF.delay(self.failed, chance as f64 / u64::MAX as f64)).await;
    }
}
