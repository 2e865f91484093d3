//! `cargo xtask sim`

use std::process::ExitCode;

use e2e::guard::{Guard, Running};

use crate::build;

/// Builds the simulation to be fast, and runs it.
pub(crate) async fn run(arguments: &[String], guard: &Guard) -> anyhow::Result<ExitCode> {
    let mut command = build::command(guard, build::cargo());
    command.args(["run", "--quiet", "--profile", "sim", "--package", "simulation", "--"]).args(arguments);
    let status = Running::start(command)?.ended().await?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
