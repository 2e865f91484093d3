//! A check that takes its time: a question to a backend, which nobody can make more frequent by asking `/readyz`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// How long an answer counts.
const FRESH: Duration = Duration::from_secs(5);

/// How long an answer may take. A kubelet waits one second by default, and gets the answer with its next question.
const LIMIT: Duration = Duration::from_secs(5);

type Ask = dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync;

/// An answer, and when it came.
type Answered = (Instant, Result<String, String>);

/// A check with a time limit, whose answer counts for a while.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) name: String,
    ask: Arc<Ask>,
    /// The last answer. Who asks meanwhile waits for the same one.
    last: Arc<Mutex<Option<Answered>>>,
}

impl Probe {
    pub(super) fn new(name: String, ask: Arc<Ask>) -> Self {
        Self { name, ask, last: Arc::default() }
    }

    /// Runs in a task of its own: who hangs up early does not make the next one begin again.
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
