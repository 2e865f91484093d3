//! The demo of buckets is in another build, which has Amazon's clients: they take minutes to build, and nothing else needs them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use testbed::guard::Guard;

use crate::build;
use crate::install::Install;

#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    all: Vec<OsString>,
}

/// Runs the other build with the same arguments.
pub(crate) async fn run(Arguments { all }: Arguments, _: &Install, _: &Guard) -> anyhow::Result<ExitCode> {
    let mut command = tokio::process::Command::from(build::plain_cargo());
    command.args(["run", "--quiet", "--package", "xtask", "--", "demo", "buckets"]).args(all);
    let status = command.status().await.context("cannot run cargo")?;
    Ok(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1)))
}
