//! Servers that all tests of a process share.

use std::sync::OnceLock;

use anyhow::anyhow;

use crate::cargo;
use crate::guard::Guard;

/// A server, or the reason why it did not start.
pub(crate) type Shared<T> = OnceLock<Result<T, String>>;

/// Returns the server of this process, which the first caller starts. It ends with the process, however the process
/// ends.
pub(crate) fn shared<T: Send + Sync>(
    server: &'static Shared<T>,
    start: impl AsyncFnOnce(&Guard) -> anyhow::Result<T> + Send,
) -> anyhow::Result<&'static T> {
    let start = || {
        let guard = Guard::new(cargo::binary("xtask")?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(start(&guard))
    };
    // Blocks another thread, because the test's thread already has a runtime.
    let start = || std::thread::scope(|scope| scope.spawn(start).join());
    let start = || start().map_err(|_| anyhow!("the start panicked")).flatten().map_err(|error| format!("{error:#}"));
    server.get_or_init(start).as_ref().map_err(|error| anyhow!("{error}"))
}
