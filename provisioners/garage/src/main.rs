//! The `garage-provisioner` binary provisions buckets on Garage.

use std::process::ExitCode;

use garage_provisioner::{Args, Garage};
use kube_provisioner::Program;

fn main() -> ExitCode {
    Program::new(async |Args { defaults, options }| {
        defaults.check()?;
        Ok((Garage::new(defaults), options))
    })
    .run()
}
