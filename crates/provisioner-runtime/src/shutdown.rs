//! Signals become a cancellation token.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// The token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with the exit
/// code 143 or 130: for whoever does not want to wait for an orderly end.
///
/// Only for binaries, once, and inside a tokio runtime.
///
/// # Errors
///
/// When the process cannot listen for signals.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut signals =
        Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
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

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
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

    /// 128 and the signal's number, as shells report it.
    fn exit_code(self) -> i32 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// Signals reach a whole process, so the test runs this one in a process of its own.
    #[tokio::test]
    #[ignore = "run by the other test"]
    #[expect(clippy::print_stderr, reason = "the other test reads it")]
    async fn a_process_that_waits_for_signals() {
        let stop = on_signal().unwrap();
        eprintln!("ready");
        stop.cancelled().await;
        eprintln!("cancelled");
        std::future::pending::<()>().await;
    }

    #[test]
    fn the_first_signal_cancels_and_the_second_ends_the_process() {
        for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "shutdown::tests::a_process_that_waits_for_signals"])
                .args(["--ignored", "--nocapture"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let kill = || Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
            wait_for(&mut lines, "ready");
            assert!(kill().success());
            wait_for(&mut lines, "cancelled");
            assert!(kill().success());
            assert_eq!(child.wait().unwrap().code(), Some(code));
        }
    }

    fn wait_for(lines: &mut impl Iterator<Item = io::Result<String>>, text: &str) {
        assert!(lines.any(|line| line.unwrap().contains(text)), "{text}");
    }
}
