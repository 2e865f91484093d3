//! `aws-s3-provisioner`: buckets on AWS S3.

mod account;
mod aws;
mod bucket;
mod failure;
mod parameters;
mod policy;
mod region;
mod store;

use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::BucketOptions;

use crate::aws::Aws;
use crate::store::Defaults;

/// Makes buckets on AWS S3 for ObjectBucketClaims, each with an IAM user of its own
#[derive(Parser)]
#[command(name = "aws-s3-provisioner", version)]
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("accessMode")))]
struct Args {
    #[command(flatten)]
    defaults: Defaults,

    #[command(flatten)]
    options: BucketOptions,
}

fn main() -> ExitCode {
    kube_provisioner::run_buckets(async |Args { defaults, options }| Ok((Aws::new(defaults), options)))
}
