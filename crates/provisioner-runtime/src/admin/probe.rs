//! A check that takes some time: a request to a backend, whose rate does not depend on the number of `/readyz`
//! requests.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// The time for which an answer is cached.
const FRESH: Duration = Duration::from_secs(5);

/// Time limit of a check. A kubelet waits one second by default, and gets the answer with its next request.
const LIMIT: Duration = Duration::from_secs(5);

type Ask = dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync;

/// An answer and the time of its arrival.
type CachedResult = (Instant, Result<String, String>);

/// A check with a time limit and a cached answer.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) name: String,
    ask: Arc<Ask>,
    /// The last answer. Requests during a check wait for the same answer.
    last: Arc<Mutex<Option<CachedResult>>>,
}

impl Probe {
    pub(super) fn new(name: String, ask: Arc<Ask>) -> Self {
        Self { name, ask, last: Arc::default() }
    }

    /// Runs the check in its own task: a client that disconnects early does not make the next one start over.
    pub(super) async fn answer(&self) -> Result<String, String> {
        let probe = self.clone();
        let asking = tokio::spawn(async move {
            let mut last = probe.last.lock().await;
            if let Some((at, answer)) = &*last
                && at.elapsed() < FRESH
            {
                return answer.clone();
            }
            let asked = AssertUnwindSafe(async { (probe.ask)().await }).catch_unwind();
            let answer = match timeout(LIMIT, asked).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err("its code crashed".to_owned()),
                Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
            };
            *last = Some((Instant::now(), answer.clone()));
            answer
        });
        asking.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
