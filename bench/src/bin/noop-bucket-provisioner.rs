//! A bucket provisioner whose backend does no work, so that only the controller is measured.

use clap::Parser;
use kube_provisioner::bucket::{
    Bucket, BucketHooks, BucketProvisioner, Credentials, Endpoint, GrantOf, Granted, GrantedAccount, ProvisionedBucket,
    RequestOf,
};
use kube_provisioner::{BucketController, BucketOptions, DeleteError, ProvisionError, RunError};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: BucketOptions,
}

struct Noop;

impl BucketProvisioner for Noop {
    type Parameters = ();
    type Config = ();

    async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        Ok(Bucket::new(Endpoint::https("objects.example.com")))
    }

    async fn delete_bucket(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        Ok(())
    }

    async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
        let endpoint = Endpoint::https("objects.example.com");
        Ok(Granted::new(endpoint, Credentials::new(request.account.name, "no-secret")))
    }

    async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl BucketHooks for Noop {}

// Same as in the real provisioners.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), RunError> {
    BucketController::new(Noop, Args::parse().options).run().await
}
