//! A provisioner whose backend costs nothing, so that only the controller is measured.

use clap::Parser;
use kube_provisioner::{
    Controller, DeleteError, Options, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, RunError,
    Volume, arguments,
};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

struct Noop;

impl Provisioner for Noop {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        Ok(Volume::host_path(format!("/volumes/{}", request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), RunError> {
    let Args { options } = arguments::<Args, Noop>();
    Controller::new(Noop, options).run().await
}
