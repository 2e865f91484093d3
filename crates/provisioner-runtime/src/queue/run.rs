//! The workers of a queue.

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{Queue, Work};

/// Works on the keys of `queue`, at most `concurrency` at once (0 counts as 1), each in its own task.
///
/// A panic fails only the current attempt: it is logged with the key, which is then retried.
///
/// When `stop` is cancelled, the queue is shut down. Returns when the queue is shut down and all running work is done.
/// Dropping the future aborts running work, and its keys count as failed.
pub async fn work<K, F, Fut>(queue: &Queue<K>, concurrency: usize, stop: CancellationToken, handle: F)
where
    K: Clone + Eq + Hash + Debug + Send + Sync + 'static,
    F: Fn(Work<K>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    loop {
        // The results are empty: panics are caught inside the tasks.
        while running.try_join_next().is_some() {}
        let full = running.len() >= concurrency.max(1);
        let work = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = running.join_next(), if full => continue,
            work = queue.next(), if !full => work,
        };
        let Some(work) = work else { break };
        let key = work.key().clone();
        match catch_unwind(AssertUnwindSafe(|| handle(work))) {
            Ok(task) => {
                // Boxed, because a large future would be moved several times on its way into the task.
                running.spawn(AssertUnwindSafe(Box::pin(task)).catch_unwind().map(move |result| {
                    if result.is_err() {
                        report_panic(&key);
                    }
                }));
            }
            Err(_) => report_panic(&key),
        }
    }
    queue.shut_down();
    while running.join_next().await.is_some() {}
}

fn report_panic(key: &impl Debug) {
    error!(?key, "a worker panicked; the key is retried after its back-off");
}
