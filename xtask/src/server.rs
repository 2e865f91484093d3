//! `cargo xtask ceph`, `nfs` and `s3`: servers that keep running

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
    /// Start a server that runs until `down`
    Up {
        /// Port of the server [default: a free port]
        #[arg(long)]
        port: Option<u16>,

        #[command(flatten)]
        install: Install,
    },
    /// Stop the server; its data is deleted
    Down,
}

/// `name` is the name of the command.
pub(crate) async fn run(
    name: &str,
    dependency: &Dependency,
    command: Command,
    guard: &Guard,
) -> anyhow::Result<ExitCode> {
    let (progress, start, what) = (progress::terminal(), Instant::now(), dependency.name);
    let server = dependency.server.as_ref().context("it is not a server")?;
    match command {
        Command::Up { port, install } => {
            install.prepare(dependency, &format!("{name} up"), &progress)?;
            let up = (server.up)(port, guard, &progress).await?;
            if up.is_new {
                println!("{what} started in {}", seconds(start.elapsed()));
            } else {
                println!("{what} is already running, on its present port");
            }
            up.usage.iter().for_each(|line| println!("{line}"));
        }
        Command::Down if (server.down)(&progress).await? => {
            println!("{what} stopped in {}", seconds(start.elapsed()));
        }
        Command::Down => println!("{what} was not running"),
    }
    Ok(ExitCode::SUCCESS)
}
