//! The time of day and randomness, from the machine or simulated.

use std::hash::{BuildHasher, RandomState};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::backoff::Random;
use crate::name::fingerprint;

/// The source of the time of day and of randomness.
///
/// The default is the machine. A [`simulated`](Self::simulated) environment is reproducible: with the same seed, under
/// tokio's paused clock and on one thread, a controller does the same things in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment(Option<Simulated>);

#[derive(Clone, Copy, Debug)]
struct Simulated {
    seed: u64,
    epoch: Timestamp,
    start: Instant,
}

impl Environment {
    /// Creates an environment that derives all randomness from `seed`. The time of day is `epoch` plus the time on
    /// tokio's clock since this call.
    pub fn simulated(seed: u64, epoch: Timestamp) -> Self {
        Self(Some(Simulated { seed, epoch, start: Instant::now() }))
    }

    /// Returns the time of day.
    pub fn now(&self) -> Timestamp {
        let Some(simulated) = self.0 else { return Timestamp::now() };
        let elapsed = SignedDuration::try_from(simulated.start.elapsed()).ok();
        // The calendar ends in the year 9999.
        elapsed.and_then(|elapsed| simulated.epoch.checked_add(elapsed).ok()).unwrap_or(Timestamp::MAX)
    }

    /// Returns a random number. In a simulation, it is the same for the same seed and `purpose`.
    pub fn number(&self, purpose: &str) -> u64 {
        match self.0 {
            None => RandomState::new().hash_one(0),
            Some(simulated) => fingerprint(&(simulated.seed, purpose)),
        }
    }

    /// Returns a generator for one purpose.
    pub(crate) fn random(&self, purpose: &str) -> Random {
        Random::new(self.number(purpose))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_environments_are_reproducible() {
        let epoch = Timestamp::UNIX_EPOCH;
        let (one, same, other) =
            (Environment::simulated(1, epoch), Environment::simulated(1, epoch), Environment::simulated(2, epoch));
        assert_eq!(one.number("a"), same.number("a"));
        assert_ne!(one.number("a"), one.number("b"));
        assert_ne!(one.number("a"), other.number("a"));

        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(one.now().as_millisecond(), 1500);
    }

    #[test]
    fn real_environments_are_random() {
        let real = Environment::default();
        assert_ne!(real.number("a"), real.number("a"));
        assert_ne!(real.random("a").next(), real.random("a").next());
        assert!(real.now() > Timestamp::UNIX_EPOCH);
    }
}
