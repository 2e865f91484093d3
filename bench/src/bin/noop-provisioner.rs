//! A provisioner whose backend only takes time, so that only the controller is measured.

use std::time::Duration;

use clap::Parser;
use kube_provisioner::{
    Controller, DeleteError, Hooks, Options, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    RunError, Volume,
};

#[derive(Parser)]
struct Args {
    /// Duration of a `provision` call in milliseconds
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    delay: u64,

    /// Do not record attempts, to measure the cost of the journal
    #[cfg(feature = "without-journal")]
    #[arg(long)]
    without_journal: bool,

    #[command(flatten)]
    options: Options,
}

struct Noop {
    delay: Duration,
}

impl Provisioner for Noop {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        Ok(Volume::host_path(format!("/volumes/{}", request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Noop {}

// Same as in the real provisioners.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), RunError> {
    let args = Args::parse();
    let noop = Noop { delay: Duration::from_millis(args.delay) };
    let controller = Controller::new(noop, args.options);
    #[cfg(feature = "without-journal")]
    let controller =
        if args.without_journal { controller.without(kube_provisioner::Safeguard::Journal) } else { controller };
    controller.run().await
}
