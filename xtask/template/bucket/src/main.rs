use std::process::ExitCode;

use clap::Parser;
use example_provisioner::Store;
use kube_provisioner::{BucketOptions, Program};

/// Creates a bucket for every claim
#[derive(Parser)]
struct Args {
    /// Host of the store
    #[arg(long, env)]
    store_host: String,
    #[command(flatten)]
    options: BucketOptions,
}

fn main() -> ExitCode {
    Program::new(async |args: Args| Ok((Store { host: args.store_host, ..Store::default() }, args.options))).run()
}
