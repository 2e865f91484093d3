//! Provisions buckets on AWS S3. This library contains everything except `main` of `aws-s3-provisioner`, so that tests
//! can check its conformance.

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
    /// The defaults for classes that do not set a value.
    pub defaults: Defaults,

    #[command(flatten)]
    /// The options of every bucket provisioner.
    pub options: BucketOptions,
}
