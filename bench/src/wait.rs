//! Waiting for a condition.

use std::ops::ControlFlow;
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
            ControlFlow::Break(found) => return Ok(found),
            ControlFlow::Continue(seen) if Instant::now() > deadline => bail!("{seen} after {} s", patience.as_secs()),
            ControlFlow::Continue(_) => tokio::time::sleep(pause).await,
        }
    }
}
