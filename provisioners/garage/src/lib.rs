//! Buckets on Garage. `garage-provisioner` is the program; this is a library so that tests run the contract on it.

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
    /// What applies where a class says nothing.
    pub defaults: Defaults,

    #[command(flatten)]
    /// Those of every provisioner of buckets.
    pub options: BucketOptions,
}
