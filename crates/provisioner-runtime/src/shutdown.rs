//! Signals as a cancellation token.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with exit code 143 or 130,
/// for users who do not want to wait.
///
/// For binaries only: call it once, inside a tokio runtime.
///
/// # Errors
///
/// Fails if the process cannot listen for signals.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut signals = Signals::listen()?;
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        let kind = signals.next().await;
        info!("{} received, stopping; a second signal stops at once", kind.name());
        cancelled.cancel();
        std::process::exit(signals.next().await.exit_code());
    });
    Ok(stop)
}

/// Returns when SIGTERM or SIGINT is received. Use it for work that precedes [`on_signal`], because the first process
/// of a container receives only signals that it listens for.
///
/// # Errors
///
/// Fails if the process cannot listen for signals.
pub async fn received() -> io::Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> Kind {
        tokio::select! {
            _ = self.terminate.recv() => Kind::Terminate,
            _ = self.interrupt.recv() => Kind::Interrupt,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Interrupt,
    Terminate,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// Returns 128 plus the signal's number, as shells report it.
    fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}
