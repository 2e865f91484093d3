//! Delays before the next attempt.
//!
//! The delay after failed attempt *n*, counted from 1, is
//!
//! ```text
//! full(n)  = min(initial × factor^(n − 1), max)
//! delay(n) = full(n) × (1 − jitter × r),   r random in [0, 1)
//! ```
//!
//! | rule | factor | jitter |
//! |---|---|---|
//! | [`Backoff::exponential`] | 2 | 0.1: a delay is 90 to 100 % of `full` |
//! | [`Backoff::fixed`] | 1 | 0 |
//!
//! Jitter only shortens, so `max` bounds every delay. An `initial` above `max` counts as `max`.

use std::time::Duration;

/// A rule for the delay after each failed attempt.
///
/// ```
/// # use std::time::Duration;
/// # use provisioner_runtime::Backoff;
/// let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(300));
/// assert_eq!(backoff.delay(1, 0.0), Duration::from_secs(1));
/// assert_eq!(backoff.delay(4, 0.0), Duration::from_secs(8));
/// assert_eq!(backoff.delay(99, 0.0), Duration::from_secs(300));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    factor: f64,
    jitter: f64,
}

impl Backoff {
    /// Creates a rule that starts with `initial` and doubles up to `max`, each delay shortened by up to 10 % at random.
    pub const fn exponential(initial: Duration, max: Duration) -> Self {
        Self { initial, max, factor: 2.0, jitter: 0.1 }
    }

    /// Creates a rule with the same delay after every attempt, without jitter.
    pub const fn fixed(delay: Duration) -> Self {
        Self { initial: delay, max: delay, factor: 1.0, jitter: 0.0 }
    }

    /// Shortens each delay by up to this fraction, chosen at random: 0 disables jitter, 1 allows any shorter delay.
    ///
    /// Values are clamped to the range 0 to 1.
    pub const fn with_jitter(self, jitter: f64) -> Self {
        Self { jitter: share(jitter), ..self }
    }

    /// Limits the delay to `max` in addition to the existing maximum.
    pub fn with_max(self, max: Duration) -> Self {
        Self { max: self.max.min(max), ..self }
    }

    /// Returns the delay after the attempt with this number; the first attempt is 1.
    ///
    /// `random` is from 0 to 1; 0 subtracts nothing, 1 subtracts the full jitter. Attempt 0 counts as the first.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let doublings = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        // A maximum below the initial delay takes precedence; infinity and values that exceed a Duration become the
        // maximum.
        let seconds = self.initial.as_secs_f64() * self.factor.powi(doublings);
        let full = match doublings {
            0 => self.initial,
            _ => Duration::try_from_secs_f64(seconds).unwrap_or(self.max),
        }
        .min(self.max);
        match self.jitter * share(random) {
            0.0 => full,
            cut => full.mul_f64(1.0 - cut).min(full),
        }
    }
}

/// A small generator for jitter (SplitMix64): fast, and reproducible for a given seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, from 0 (inclusive) to 1 (exclusive).
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // Keep the 53 bits that an f64 holds exactly.
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Clamps `value` to the range 0 to 1; NaN counts as 0.
const fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn doubles_up_to_the_maximum() {
        let backoff = Backoff::exponential(SECOND, 10 * SECOND);
        let delays: Vec<u64> = (1..=6).map(|n| backoff.delay(n, 0.0).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn attempt_zero_counts_as_the_first() {
        assert_eq!(Backoff::exponential(SECOND, 10 * SECOND).delay(0, 0.0), SECOND);
    }

    #[test]
    fn fixed_neither_grows_nor_jitters() {
        let backoff = Backoff::fixed(3 * SECOND);
        assert_eq!(backoff.delay(1, 1.0), 3 * SECOND);
        assert_eq!(backoff.delay(u32::MAX, 0.5), 3 * SECOND);
    }

    #[test]
    fn jitter_shortens_by_its_share() {
        let backoff = Backoff::fixed(10 * SECOND).with_jitter(0.5);
        assert_eq!(backoff.delay(1, 0.0), 10 * SECOND);
        assert_eq!(backoff.delay(1, 1.0), 5 * SECOND);
    }

    #[test]
    fn equal_seeds_yield_equal_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    proptest! {
        #[test]
        fn delay_respects_the_maximum_and_jitter_only_shortens(
            initial in any::<u64>(),
            max in any::<u64>(),
            attempt in any::<u32>(),
            jitter in any::<f64>(),
            random in any::<f64>(),
        ) {
            let (initial, max) = (Duration::from_millis(initial), Duration::from_millis(max));
            let backoff = Backoff::exponential(initial, max).with_jitter(jitter);
            let full = backoff.with_jitter(0.0).delay(attempt, random);
            prop_assert!(full <= max);
            prop_assert!(backoff.delay(attempt, random) <= full);
        }

        #[test]
        fn random_numbers_stay_below_one(seed in any::<u64>()) {
            let number = Random::new(seed).next();
            prop_assert!((0.0..1.0).contains(&number));
        }
    }
}
