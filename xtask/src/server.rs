//! `cargo xtask ceph`, `nfs` and `s3`: servers that stay

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use clap::Subcommand;
use testbed::dependency::Dependency;
use testbed::guard::Guard;
use testbed::progress::{self, seconds};

use crate::install::Install;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start one that stays until `down`
    Up {
        /// Its port; a free one if none is given
        #[arg(long)]
        port: Option<u16>,

        #[command(flatten)]
        install: Install,
    },
    /// Stop it; what it stored is gone
    Down,
}

/// `name` is that of the command.
pub(crate) async fn run(
    name: &str,
    dependency: &Dependency,
    command: Command,
    guard: &Guard,
) -> anyhow::Result<ExitCode> {
    let (progress, start, what) = (progress::terminal(), Instant::now(), dependency.name);
    let server = dependency.server.as_ref().context("it is no server")?;
    match command {
        Command::Up { port, install } => {
            install.prepare(dependency, &format!("{name} up"), &progress)?;
            let up = (server.up)(port, guard, &progress).await?;
            if up.is_new {
                println!("{what} started in {}", seconds(start.elapsed()));
            } else {
                println!("{what} was up already, on the port that it has");
            }
            up.usage.iter().for_each(|line| println!("{line}"));
        }
        Command::Down if (server.down)(&progress).await? => {
            println!("{what} stopped in {}", seconds(start.elapsed()));
        }
        Command::Down => println!("{what} was not up"),
    }
    Ok(ExitCode::SUCCESS)
}
