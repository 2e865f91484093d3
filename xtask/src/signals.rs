//! Ctrl-C and its relatives.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Does the work, unless SIGINT, SIGTERM or SIGHUP comes first. Then the work is dropped, which ends every program that
/// it started, and the exit code is the shell's for that signal.
pub(crate) async fn unless_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (name, code) = tokio::select! {
        result = work => return result,
        _ = interrupt.recv() => ("interrupted", 130),
        _ = terminate.recv() => ("terminated", 143),
        _ = hang_up.recv() => ("the terminal is gone", 129),
    };
    eprintln!("{name}: everything that was started is stopped");
    Ok(ExitCode::from(code))
}
