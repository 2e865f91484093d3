//! The `gcs-provisioner` binary provisions buckets on Google Cloud Storage.

mod account;
mod api;
mod gcs;
mod http;
mod iam;
mod parameters;
mod policy;
mod principal;
mod storage;
mod store;
#[cfg(test)]
mod tests;
mod token;

use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::{BucketOptions, Program};

use crate::gcs::Gcs;
use crate::http::Proxies;
use crate::store::Defaults;

/// Provisions Google Cloud Storage buckets for ObjectBucketClaims, with HMAC keys for S3 clients
#[derive(Parser)]
#[command(name = "gcs-provisioner", version)]
#[command(mut_arg("allowed_additional_config", |arg| arg.default_value("accessMode,authentication,bucketClaimName,configMapName,secretName,serviceAccount")))]
struct Args {
    #[command(flatten)]
    defaults: Defaults,

    #[command(flatten)]
    options: BucketOptions,
}

fn main() -> ExitCode {
    Program::new(async |Args { defaults, options }| {
        defaults.check()?;
        let proxies = Proxies::from_env()?;
        Ok((Gcs::new(defaults, proxies), options))
    })
    .run()
}
