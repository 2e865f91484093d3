//! Ctrl-C and similar signals.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Runs the work until it completes, or SIGINT, SIGTERM or SIGHUP arrives. A signal drops the work, which ends every
/// program that it started; the exit code is then the shell's for that signal.
pub(crate) async fn unless_interrupted(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    let (name, code) = tokio::select! {
        result = work => return result,
        signal = any() => signal?,
    };
    eprintln!("{name}: stopping all started processes");
    Ok(ExitCode::from(code))
}

/// Waits for a signal, and returns its name with the shell's exit code for it.
pub(crate) async fn any() -> anyhow::Result<(&'static str, u8)> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    Ok(tokio::select! {
        _ = interrupt.recv() => ("interrupted", 130),
        _ = terminate.recv() => ("terminated", 143),
        _ = hang_up.recv() => ("the terminal is closed", 129),
    })
}
