//! `cargo xtask bench csi NAME`: csi-provisioner and external-provisioner v6.4.0, one beside the other on the same control plane. Each has
//! an account, a driver and claims of its own. The drivers are in this process, so what was asked of them and what they hold is known; only
//! those of `suite` are on the node.

mod burst;
mod driver;
mod handover;
mod kills;
mod ledger;
mod lost_nodes;
mod peer;
mod restarts;
mod stage;
mod suite;
mod swap;
mod topology;
mod traffic;
mod zones;

use clap::Subcommand;

use crate::waiting::median;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// The sidecar is killed at random moments while claims come and go: what is left in the driver, and what was asked twice
    Kills(kills::Settings),
    /// The sidecar is killed between CreateVolume and the PersistentVolume, and the node of the claim is deleted meanwhile
    LostNodes(lost_nodes::Settings),
    /// Claims with a selected node, with a driver with topology and with one without; memory beside many large nodes
    Topology(topology::Settings),
    /// The driver restarts while claims come and go: ends of the sidecar, claims that are lost, and the time to the next call
    Restarts(restarts::Settings),
    /// How long a claim waits after SIGTERM or SIGKILL of the active replica
    Handover(handover::Settings),
    /// Claims created at once, with defaults and tuned; memory beside claims and volumes of others
    Burst(burst::Settings),
    /// The Deployment's image is swapped and swapped back while claims come and go
    Swap(swap::Settings),
    /// Kubernetes' own storage tests, on a real node: which specs pass
    Suite(suite::Settings),
}

pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Kills(settings) => kills::run(settings).await,
        Command::LostNodes(settings) => lost_nodes::run(settings).await,
        Command::Topology(settings) => topology::run(settings).await,
        Command::Restarts(settings) => restarts::run(settings).await,
        Command::Handover(settings) => handover::run(settings).await,
        Command::Burst(settings) => burst::run(settings).await,
        Command::Swap(settings) => swap::run(settings).await,
        Command::Suite(settings) => suite::run(settings).await,
    }
}

/// Median and longest, in seconds.
fn median_and_longest(times: &mut [f64]) -> String {
    let longest = times.iter().copied().fold(0.0, f64::max);
    format!("{:.2} s, {longest:.2} s", median(times))
}
