//! `cargo xtask sim`

use std::process::ExitCode;

use testbed::guard::{Guard, Running};
use testbed::progress;

use crate::build::{self, Profile};

/// Builds the simulation with optimizations, and runs it. It prints its own progress.
pub(crate) async fn run(arguments: &[String], guard: &Guard) -> anyhow::Result<ExitCode> {
    let program = build::program(Profile::Sim, "simulation", &[], guard, &progress::terminal()).await?;
    let mut command = build::command(guard, program);
    command.args(arguments);
    let status = Running::start(command)?.ended().await?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
