//! Requests to the API server: so many at a time, and none while it asks to be left alone.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until};

use crate::backoff::Random;
use crate::{CallError, Surroundings};

/// See the module.
#[derive(Debug)]
pub struct ApiLimiter {
    permits: Semaphore,
    pause: Mutex<(Option<Instant>, Random)>,
}

/// One request.
#[derive(Debug)]
pub struct ApiPermit<'a>(#[allow(dead_code)] Option<SemaphorePermit<'a>>);

impl ApiLimiter {
    /// New.
    pub fn new(most: usize, surroundings: Surroundings) -> Self {
        Self { permits: Semaphore::new(most), pause: Mutex::new((None, surroundings.random("throttle"))) }
    }

    /// Waits.
    pub async fn enter(&self) -> ApiPermit<'_> {
        let permit = ApiPermit(self.permits.acquire().await.ok());
        loop {
            let until = crate::lock(&self.pause).0;
            match until {
                Some(until) if until > Instant::now() => sleep_until(until).await,
                _ => return permit,
            }
        }
    }

    /// Full.
    pub fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// Pauses.
    pub fn observe(&self, error: &CallError) {
        if let CallError::TooManyRequests { retry_after, .. } = error {
            let mut pause = crate::lock(&self.pause);
            let wait = retry_after.unwrap_or(Duration::from_secs(1)).mul_f64(1.0 + 0.5 * pause.1.next());
            let until = Instant::now() + wait.min(Duration::from_secs(60));
            pause.0 = Some(pause.0.map_or(until, |known| known.max(until)));
        }
    }
}
