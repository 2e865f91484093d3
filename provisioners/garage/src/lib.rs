//! Provisions buckets on Garage. This library contains everything except `main` of `garage-provisioner`, so that tests
//! can check its conformance.

mod admin;
mod claim;
mod garage;
mod lifecycle;
mod parameters;
mod store;

use clap::Parser;
use kube_provisioner::BucketOptions;

pub use crate::garage::Garage;
pub use crate::parameters::{Config, Parameters};
pub use crate::store::Defaults;

/// Provisions buckets on Garage for ObjectBucketClaims, each with its own access key
#[derive(Parser)]
#[command(name = "garage-provisioner", version)]
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("accessMode,bucketClaimName,configMapName,maxObjects,maxSize,secretName")))]
pub struct Args {
    #[command(flatten)]
    /// The defaults for classes that do not set a value.
    pub defaults: Defaults,

    #[command(flatten)]
    /// The options of every bucket provisioner.
    pub options: BucketOptions,
}
