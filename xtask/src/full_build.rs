//! Commands that need the feature `full`: they run in a second build of this program.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::build;

/// Runs this program's own command line in the full build.
pub(crate) async fn run() -> anyhow::Result<ExitCode> {
    let mut command = tokio::process::Command::from(build::plain_cargo());
    command.args(["run", "--quiet", "--package", "xtask", "--"]).args(std::env::args_os().skip(1));
    let status = command.status().await.context("cannot run cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1)))
}
