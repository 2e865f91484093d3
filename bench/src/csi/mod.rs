//! `cargo xtask bench csi NAME`: csi-provisioner and external-provisioner v6.4.0, one beside the other on the same control plane. Each has
//! an account, a driver and claims of its own. The drivers are in this process, so what was asked of them and what they hold is known.

mod burst;
mod driver;
mod handover;
mod kills;
mod ledger;
mod peer;
mod restarts;
mod stage;
mod swap;
mod traffic;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The sidecar is killed at random moments while claims come and go: what is left in the driver, and what was asked twice
    Kills(kills::Settings),
    /// The driver restarts while claims come and go: ends of the sidecar, claims that are lost, and the time to the next call
    Restarts(restarts::Settings),
    /// How long a claim waits when the replica that works is told to stop, or is killed
    Handover(handover::Settings),
    /// Claims created at once, with defaults and tuned; memory beside claims and volumes of others
    Burst(burst::Settings),
    /// The Deployment's image is swapped and swapped back while claims come and go
    Swap(swap::Settings),
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Kills(settings) => kills::run(settings).await,
        Command::Restarts(settings) => restarts::run(settings).await,
        Command::Handover(settings) => handover::run(settings).await,
        Command::Burst(settings) => burst::run(settings).await,
        Command::Swap(settings) => swap::run(settings).await,
    }
}
