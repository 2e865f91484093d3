//! A limit on this process's concurrent requests to the API server, and a pause while the server is busy.
//!
//! ```
//! # use std::time::Duration;
//! # use provisioner_runtime::{ApiLimiter, CallError, Environment, call};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let limiter = ApiLimiter::new(32, Environment::default());
//! let permit = limiter.enter().await;
//! let answer: Result<(), CallError> = call(Duration::from_secs(30), async { Ok(()) }).await;
//! drop(permit);
//! if let Err(error) = &answer {
//!     limiter.observe(error);
//! }
//! # }
//! ```

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Random;
use crate::call::CallError;
use crate::environment::Environment;

/// The pause if a busy server does not specify one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, whatever the server asks for.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Requests that waited for the end of a pause start within this time after it.
const SPREAD: Duration = Duration::from_secs(1);

/// Limits concurrent requests, and starts none while the API server asks for a pause.
///
/// Requests for Leases, journals, events and watches must not wait behind other work, so they bypass it.
pub struct ApiLimiter {
    requests: usize,
    permits: Semaphore,
    state: Mutex<State>,
}

struct State {
    paused_until: Option<Instant>,
    random: Random,
}

/// Permission to send one request, returned on drop.
#[derive(Debug)]
#[must_use = "the permit is returned when it is dropped"]
pub struct ApiPermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

impl ApiLimiter {
    /// Creates a limiter for at most this many concurrent requests; 0 counts as 1.
    pub fn new(requests: usize, environment: Environment) -> Self {
        let state = State { paused_until: None, random: environment.random("api limiter") };
        let requests = requests.clamp(1, Semaphore::MAX_PERMITS);
        Self { requests, permits: Semaphore::new(requests), state: Mutex::new(state) }
    }

    /// Waits for a permit and for the end of a pause.
    pub async fn enter(&self) -> ApiPermit<'_> {
        // The semaphore is never closed.
        let permit = ApiPermit { _permit: self.permits.acquire().await.ok() };
        while let Some(start) = self.next_start() {
            sleep_until(start).await;
        }
        permit
    }

    /// Returns true if more than an eighth of the requests are in progress, or during a pause.
    pub fn is_busy(&self) -> bool {
        let in_progress = self.requests - self.permits.available_permits();
        in_progress > self.requests / 8 || crate::sync::lock(&self.state).pause_end().is_some()
    }

    /// Observes a failed request. If the server was too busy, all requests pause for as long as it asks, plus a random
    /// extra of up to half that time.
    pub fn observe(&self, error: &CallError) {
        let CallError::TooManyRequests { retry_after, .. } = error else { return };
        let mut state = crate::sync::lock(&self.state);
        let pause = retry_after.unwrap_or(PAUSE).min(MAX_PAUSE).mul_f64(1.0 + state.random.next() / 2.0);
        let until = Instant::now() + pause.min(MAX_PAUSE);
        state.paused_until = Some(state.paused_until.map_or(until, |before| before.max(until)));
    }

    /// Returns when to check again, during a pause.
    fn next_start(&self) -> Option<Instant> {
        let mut state = crate::sync::lock(&self.state);
        let until = state.pause_end()?;
        Some(until + SPREAD.mul_f64(state.random.next()))
    }
}

impl State {
    fn pause_end(&self) -> Option<Instant> {
        self.paused_until.filter(|until| *until > Instant::now())
    }
}

impl fmt::Debug for ApiLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiLimiter").field("free", &self.permits.available_permits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::join_all;
    use k8s_openapi::jiff::Timestamp;
    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn busy(retry_after: Option<u64>) -> CallError {
        CallError::TooManyRequests { retry_after: retry_after.map(Duration::from_secs), message: String::new() }
    }

    fn limiter(requests: usize) -> ApiLimiter {
        ApiLimiter::new(requests, Environment::simulated(7, Timestamp::UNIX_EPOCH))
    }

    /// Returns how long a request has to wait from now.
    async fn wait(limiter: &ApiLimiter) -> Duration {
        let start = Instant::now();
        let _permit = limiter.enter().await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn limits_concurrent_requests() {
        let limiter = limiter(2);
        let first = limiter.enter().await;
        let _second = limiter.enter().await;
        assert!(limiter.enter().now_or_never().is_none());
        drop(first);
        assert!(limiter.enter().now_or_never().is_some());
        assert!(self::limiter(0).enter().now_or_never().is_some());
    }

    #[tokio::test]
    async fn is_busy_above_an_eighth_of_the_requests() {
        let limiter = limiter(32);
        let _four = join_all([(); 4].map(|()| limiter.enter())).await;
        assert!(!limiter.is_busy());
        let _fifth = limiter.enter().await;
        assert!(limiter.is_busy());
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_at_least_as_long_as_a_busy_server_asks() {
        for (asked, least, most) in [(Some(10), 10, 16), (None, 1, 3), (Some(50), 50, 61), (Some(u64::MAX), 60, 61)] {
            for _ in 0..20 {
                let limiter = limiter(1);
                limiter.observe(&busy(asked));
                assert!(limiter.is_busy());
                let waited = wait(&limiter).await;
                assert!((least * SECOND..=most * SECOND).contains(&waited), "{waited:?} for {asked:?}");
                assert_eq!(wait(&limiter).await, Duration::ZERO);
                assert!(!limiter.is_busy());
            }
        }
        let limiter = limiter(1);
        limiter.observe(&CallError::Unavailable(String::new()));
        assert_eq!(wait(&limiter).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn pause_can_be_extended_but_not_shortened() {
        let limiter = limiter(1);
        limiter.observe(&busy(Some(20)));
        limiter.observe(&busy(Some(1)));
        let prolongs = async {
            sleep(10 * SECOND).await;
            limiter.observe(&busy(Some(40)));
        };
        let (waited, ()) = tokio::join!(wait(&limiter), prolongs);
        assert!(waited >= 50 * SECOND, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn spreads_requests_after_a_pause() {
        let limiter = limiter(100);
        limiter.observe(&busy(Some(1)));
        let mut waits = join_all((0..100).map(|_| wait(&limiter))).await;
        waits.sort_unstable();
        waits.dedup();
        assert!(waits.len() > 90, "{waits:?}");
        assert!(waits[99.min(waits.len() - 1)] - waits[0] > SECOND / 2);
        advance(SECOND).await;
        assert_eq!(wait(&limiter).await, Duration::ZERO);
    }
}
