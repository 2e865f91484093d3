//! `cargo xtask bench csi NAME`: csi-provisioner and external-provisioner v6.4.0, side by side on the same control
//! plane. Each has its own account, driver and claims. The drivers run in this process, so their calls and volumes are
//! known; only the drivers of `suite` run on the node.

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

use crate::measurement::Measurement;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Kill the sidecar at random moments while claims are created and deleted; count leftovers and repeated calls
    Kills(kills::Settings),
    /// Kill the sidecar between CreateVolume and the PersistentVolume, while the node of the claim is deleted
    LostNodes(lost_nodes::Settings),
    /// Claims with a selected node, with a topology-aware driver and another one; memory with many large nodes
    Topology(topology::Settings),
    /// Restart the driver while claims are created and deleted: sidecar exits, lost claims, time to the next call
    Restarts(restarts::Settings),
    /// Time that a claim is pending after SIGTERM or SIGKILL of the active replica
    Handover(handover::Settings),
    /// Claims created at once, with defaults and tuned; memory with other provisioners' claims and volumes
    Burst(burst::Settings),
    /// Swap the Deployment's image back and forth while claims are created and deleted
    Swap(swap::Settings),
    /// Kubernetes' storage tests on a real node: which specs pass
    Suite(suite::Settings),
}

/// Returns values if the measurement produces some. Other measurements print their counts.
pub(crate) async fn run(command: Command) -> anyhow::Result<Option<Measurement>> {
    match command {
        Command::Restarts(settings) => restarts::run(settings).await.map(Some),
        Command::Handover(settings) => handover::run(settings).await.map(Some),
        Command::Burst(settings) => burst::run(settings).await.map(Some),
        Command::Topology(settings) => topology::run(settings).await.map(Some),
        Command::Kills(settings) => kills::run(settings).await.map(|()| None),
        Command::LostNodes(settings) => lost_nodes::run(settings).await.map(|()| None),
        Command::Swap(settings) => swap::run(settings).await.map(|()| None),
        Command::Suite(settings) => suite::run(settings).await.map(|()| None),
    }
}
