use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use example_provisioner::Directories;
use kube_provisioner::{Options, Program};

/// Creates a directory for every claim
#[derive(Parser)]
struct Args {
    /// Directory that holds all volumes
    #[arg(long, env)]
    root: PathBuf,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    Program::new(async |args: Args| Ok((Directories { root: args.root }, args.options))).run()
}
