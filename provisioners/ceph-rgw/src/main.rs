//! The `ceph-rgw-provisioner` binary provisions buckets on Ceph's RADOS gateway.

mod admin;
mod grants;
mod parameters;
mod quota;
mod rgw;
mod store;
#[cfg(test)]
mod tests;
mod users;

use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::{BucketOptions, Program};

use crate::rgw::Rgw;
use crate::store::Defaults;

/// Provisions buckets and users on Ceph RGW for ObjectBucketClaims
///
/// It supports Rook's StorageClasses, ObjectBucketClaims and ObjectBuckets.
#[derive(Parser)]
#[command(name = "ceph-rgw-provisioner", version)]
// Of Rook's keys, claims may set those that Rook allows by default.
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("accessMode,bucketClaimName,configMapName,maxObjects,maxSize,secretName")))]
struct Args {
    #[command(flatten)]
    defaults: Defaults,

    #[command(flatten)]
    options: BucketOptions,
}

fn main() -> ExitCode {
    Program::new(async |Args { defaults, options }| {
        defaults.check()?;
        Ok((Rgw::new(defaults), options))
    })
    .run()
}
