//! `aws-s3-provisioner`: buckets on AWS S3.

use std::process::ExitCode;

use aws_s3_provisioner::{Args, Aws};

fn main() -> ExitCode {
    kube_provisioner::run_buckets(async |Args { defaults, options }| Ok((Aws::new(defaults), options)))
}
