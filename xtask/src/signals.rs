//! Ctrl-C and its relatives.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Does the work, unless SIGINT, SIGTERM or SIGHUP comes first. Then the work is dropped, which ends every program that
/// it started, and the exit code is the shell's for that signal.
pub(crate) async fn unless_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let (name, code) = tokio::select! {
        result = work => return result,
        signal = any() => signal?,
    };
    eprintln!("{name}: everything that was started is stopped");
    Ok(ExitCode::from(code))
}

/// Waits for one, and says which, with the shell's exit code for it.
pub(crate) async fn any() -> anyhow::Result<(&'static str, u8)> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => ("interrupted", 130),
        _ = terminate.recv() => ("terminated", 143),
        _ = hang_up.recv() => ("the terminal is gone", 129),
    })
}
