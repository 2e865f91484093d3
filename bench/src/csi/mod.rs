//! `cargo xtask bench csi NAME`: csi-provisioner and external-provisioner v6.4.0, one beside the other on the same control plane. Each has
//! an account, a driver and claims of its own. The drivers are in this process, so what was asked of them and what they hold is known.

mod driver;
mod kills;
mod ledger;
mod peer;
mod stage;
mod traffic;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The sidecar is killed at random moments while claims come and go: what is left in the driver, and what was asked twice
    Kills(kills::Settings),
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Kills(settings) => kills::run(settings).await,
    }
}
