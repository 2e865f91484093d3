//! State shared by the parts of one controller.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kube::Client;

use super::cache::Cache;
use crate::call::{CallError, call};
use crate::environment::Environment;
use crate::events::EventRecorder;
use crate::limiter::Limiter;
use crate::throttle::ApiLimiter;

/// Time limit of one request to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// State shared by the parts of one controller; clones share it.
pub struct Context<C> {
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    client: Client,
    environment: Environment,
    cache: Mutex<C>,
    events: EventRecorder,
    /// Calls of the author's code, by flow.
    calls: Limiter,
    /// Requests about objects. Calls and requests do not wait for each other.
    api: ApiLimiter,
}

impl<C: Cache> Context<C> {
    pub(super) fn new(
        client: Client,
        environment: Environment,
        cache: C,
        events: EventRecorder,
        calls: Limiter,
        requests: usize,
    ) -> Self {
        let api = ApiLimiter::new(requests, environment);
        Self { shared: Arc::new(Shared { client, environment, cache: Mutex::new(cache), events, calls, api }) }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns the clock and randomness.
    pub fn environment(&self) -> Environment {
        self.shared.environment
    }

    /// Locks the cache. Do nothing slow while the lock is held.
    pub fn cache(&self) -> MutexGuard<'_, C> {
        crate::sync::lock(&self.shared.cache)
    }

    /// Returns the recorder of events for users.
    pub fn events(&self) -> &EventRecorder {
        &self.shared.events
    }

    /// Sends one request within the limit of [`LoopOptions::requests`](super::LoopOptions::requests), with a deadline
    /// of 30 s.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn request<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        let _permit = self.shared.api.enter().await;
        let answer = call(API_TIMEOUT, request).await;
        if let Err(error) = &answer {
            self.shared.api.observe(error);
        }
        answer
    }

    pub(super) fn calls(&self) -> &Limiter {
        &self.shared.calls
    }

    /// Returns true if requests keep the API server busy.
    pub(super) fn is_busy(&self) -> bool {
        self.shared.api.is_busy()
    }
}

impl<C> Clone for Context<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C> std::fmt::Debug for Context<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").finish_non_exhaustive()
    }
}
