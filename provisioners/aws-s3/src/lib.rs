//! Buckets on AWS S3. `aws-s3-provisioner` is the program; this is a library so that tests run the contract on it.

mod account;
mod aws;
mod bucket;
mod dialect;
mod failure;
mod parameters;
mod policy;
mod region;
mod role;
mod store;

use clap::Parser;
use kube_provisioner::BucketOptions;

pub use crate::aws::Aws;
pub use crate::parameters::{Config, Parameters};
pub use crate::store::Defaults;

/// Provisions AWS S3 buckets for ObjectBucketClaims, each with its own IAM user
#[derive(Parser)]
#[command(name = "aws-s3-provisioner", version)]
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("accessMode,authentication,bucketClaimName,configMapName,secretName,serviceAccount")))]
pub struct Args {
    #[command(flatten)]
    /// What applies where a class says nothing.
    pub defaults: Defaults,

    #[command(flatten)]
    /// Those of every provisioner of buckets.
    pub options: BucketOptions,
}
