//! The `aws-s3-provisioner` binary provisions buckets on AWS S3.

use std::process::ExitCode;

use aws_s3_provisioner::{Args, Aws};
use kube_provisioner::Program;

fn main() -> ExitCode {
    Program::new(async |Args { defaults, options }| {
        defaults.check()?;
        Ok((Aws::new(defaults), options))
    })
    .run()
}
