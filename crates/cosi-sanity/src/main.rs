//! The `cosi-sanity` binary checks a COSI driver against the specification.

#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use cosi_sanity::{Options, all, run};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Check a COSI driver on a socket against the specification
///
/// Creates buckets and accounts with the driver, in each version that it serves, and deletes them after each check.
/// Their names begin with cosi-sanity. Exits with 1 if a check fails, or if a bucket or account may remain.
#[derive(Parser)]
#[command(version)]
struct Program {
    #[command(flatten)]
    options: Options,

    /// Write a JUnit report to this file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// List the checks with the sentences of the specification, and exit
    #[arg(long)]
    list: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let Program { options, junit, list } = Program::parse();
    if list {
        print_list(&options);
        return Ok(ExitCode::SUCCESS);
    }
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let report = run(&options, |line| println!("{line}"), stop).await?;
    println!("{report}");
    if let Some(path) = junit {
        std::fs::write(&path, report.junit()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_list(options: &Options) {
    for check in all() {
        for (version, rule) in check.rules.iter().filter(|(version, _)| options.wants(&check, *version)) {
            println!("{version}/{}\n      {rule}", check.name);
        }
    }
}
