//! The simulated server's time: a fixed date plus the time that tokio's clock, paused or not, has measured since.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The simulated server's clock.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    epoch: Timestamp,
    start: Instant,
}

impl SimClock {
    /// 2030-01-01T00:00:00Z, the default start.
    pub const EPOCH: Timestamp = Timestamp::constant(1_893_456_000, 0);

    /// Creates a clock that shows `epoch` now.
    pub fn new(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        // The clock stops at the latest representable time.
        SignedDuration::try_from(self.start.elapsed())
            .ok()
            .and_then(|elapsed| self.epoch.checked_add(elapsed).ok())
            .unwrap_or(Timestamp::MAX)
    }

    /// Returns the time since the clock was created.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Now as `metav1.Time`: whole seconds, `2030-01-01T00:00:00Z`.
    pub fn seconds(&self) -> String {
        seconds(self.now())
    }
}

/// Returns a time as `metav1.Time`. Fractions of a second are truncated, as in the server.
pub(crate) fn seconds(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    format!("{whole:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_tokio() {
        let clock = SimClock::new(SimClock::EPOCH);
        assert_eq!(clock.seconds(), "2030-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_millis(61_999)).await;
        assert_eq!(clock.seconds(), "2030-01-01T00:01:01Z");
    }
}
