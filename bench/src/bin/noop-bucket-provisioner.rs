//! A provisioner of buckets whose backend costs nothing, so that only the controller is measured.

use clap::Parser;
use kube_provisioner::bucket::{Bucket, BucketProvisioner, Credentials, Endpoint, ProvisionedBucket, RequestOf};
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

    async fn provision(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        let endpoint = Endpoint::https("objects.example.com");
        Ok(Bucket::new(endpoint, Credentials::new(request.claim.user(), "no-secret")))
    }

    async fn grant(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
        self.provision(request).await
    }

    async fn delete(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        Ok(())
    }

    async fn revoke(&self, _: ProvisionedBucket<()>) -> Result<(), DeleteError> {
        Ok(())
    }
}

// As the real ones.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), RunError> {
    BucketController::new(Noop, Args::parse().options).run().await
}
