//! Waiting for a condition.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::{Duration, Instant};

use anyhow::bail;

/// Checks again after each pause until there is an answer. After `patience` it fails with the last observation.
pub(crate) async fn until<T>(
    patience: Duration,
    pause: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<ControlFlow<T, String>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match look().await? {
            Break(found) => return Ok(found),
            Continue(seen) if Instant::now() > deadline => bail!("{seen} after {} s", patience.as_secs()),
            Continue(_) => tokio::time::sleep(pause).await,
        }
    }
}

/// Waits until a count of work grows by at most `most` in a second.
pub(crate) async fn until_rest(
    what: &str,
    most: u64,
    mut count: impl AsyncFnMut() -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(600);
    const PAUSE: Duration = Duration::from_secs(1);
    let mut before = count().await?;
    tokio::time::sleep(PAUSE).await;
    until(PATIENCE, PAUSE, async || {
        let now = count().await?;
        let grown = now - std::mem::replace(&mut before, now);
        let seen = || format!("the machine does not become idle: {grown} {what} in {PAUSE:?}");
        Ok(if grown <= most { Break(()) } else { Continue(seen()) })
    })
    .await
}
