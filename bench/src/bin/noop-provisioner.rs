//! A provisioner whose backend costs nothing but time, so that only the controller is measured.

use std::time::Duration;

use clap::Parser;
use kube_provisioner::{
    Controller, DeleteError, Hooks, Options, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    RunError, Volume,
};

#[derive(Parser)]
struct Args {
    /// How many milliseconds a call of `provision` takes
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    delay: u64,

    /// Written into the volumes of this process, to tell them from another one's
    #[arg(long, value_name = "NAME", default_value = "volumes")]
    maker: String,

    /// Begin without recording it, to see what the journal costs
    #[cfg(feature = "without-journal")]
    #[arg(long)]
    without_journal: bool,

    #[command(flatten)]
    options: Options,
}

struct Noop {
    delay: Duration,
    maker: String,
}

impl Provisioner for Noop {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        Ok(Volume::host_path(format!("/{}/{}", self.maker, request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Noop {}

// As the real ones.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), RunError> {
    let args = Args::parse();
    let noop = Noop { delay: Duration::from_millis(args.delay), maker: args.maker };
    let controller = Controller::new(noop, args.options);
    #[cfg(feature = "without-journal")]
    let controller =
        if args.without_journal { controller.without(kube_provisioner::Safeguard::Journal) } else { controller };
    controller.run().await
}
