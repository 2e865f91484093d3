//! `ceph-rgw-provisioner`: buckets on Ceph's RADOS gateway.

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
use kube_provisioner::{BucketController, BucketOptions};

use crate::rgw::Rgw;
use crate::store::Defaults;

/// Makes buckets and users on Ceph's RADOS gateway for ObjectBucketClaims
///
/// It takes the classes, the claims and the object buckets of Rook.
#[derive(Parser)]
#[command(name = "ceph-rgw-provisioner", version)]
// What claims may ask for by themselves is what Rook lets them.
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("maxObjects,maxSize")))]
struct Args {
    #[command(flatten)]
    defaults: Defaults,

    #[command(flatten)]
    options: BucketOptions,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { defaults, options } = Args::parse();
    match BucketController::new(Rgw::new(defaults), options).run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "stopped");
            ExitCode::FAILURE
        }
    }
}
