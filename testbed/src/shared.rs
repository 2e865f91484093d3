//! Servers that all tests of a process share.

use std::sync::OnceLock;

use anyhow::anyhow;

use crate::cargo;
use crate::guard::Guard;

/// A server, or why it did not start.
pub(crate) type Shared<T> = OnceLock<Result<T, String>>;

/// Returns the server of this process, which the first caller starts. It ends with the process, whatever ends that.
pub(crate) fn shared<T: Send + Sync>(
    server: &'static Shared<T>,
    start: impl AsyncFnOnce(&Guard) -> anyhow::Result<T> + Send,
) -> anyhow::Result<&'static T> {
    let start = || {
        let guard = Guard::new(cargo::binary("xtask")?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(start(&guard))
    };
    // A test blocks a thread of its own, but that thread has a runtime already.
    let start = || std::thread::scope(|scope| scope.spawn(start).join());
    let start = || start().map_err(|_| anyhow!("the start panicked")).flatten().map_err(|error| format!("{error:#}"));
    server.get_or_init(start).as_ref().map_err(|error| anyhow!("{error}"))
}
