//! The driver `csi-sim`, as a program on a socket, against upstream's conformance tests for drivers.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use testbed::cluster::{eventually, provisioner_program};
use testbed::control_plane::State;
use testbed::csi_sanity::CSI_SANITY;
use testbed::guard::{Guard, Lifetime, Running};
use testbed::progress;

/// The usual duration is a few seconds.
const LIMIT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn csi_sanity_passes_with_all_capabilities() -> anyhow::Result<()> {
    // csi-sanity compares the topology of a snapshot as Go values, but a message that was sent has a cached size, so
    // drivers that report a topology cannot pass.
    let arguments =
        ["--topology", "zone=a", "--max-volumes-per-node", "4", "--without", "Plugin.SnapshotAccessibilityConstraints"];
    // Leaves out group snapshots (6), health (6), and the topology of snapshots; upstream has disabled one spec.
    check_sanity(&arguments, "Ran 89 of 103 Specs", "89 Passed | 0 Failed | 1 Pending | 13 Skipped").await
}

#[tokio::test]
async fn csi_sanity_passes_with_few_capabilities() -> anyhow::Result<()> {
    let without = "Controller.PublishUnpublishVolume,Controller.ListVolumes,Controller.GetCapacity,Controller.CloneVolume,\
                   Controller.ListSnapshots,Controller.GetSnapshot,Controller.ExpandVolume,Controller.ModifyVolume,Node.StageUnstageVolume,\
                   Node.GetVolumeStats,Node.ExpandVolume,Node.SingleNodeMultiWriter";
    // csi-sim works without the optional calls.
    check_sanity(
        &["--without", without, "--latency", "5"],
        "Ran 38 of 103 Specs",
        "38 Passed | 0 Failed | 1 Pending | 64 Skipped",
    )
    .await
}

async fn check_sanity(arguments: &[&str], ran: &str, counts: &str) -> anyhow::Result<()> {
    let guard = State::for_tests()?.guard();
    let program = CSI_SANITY.path(&guard, &progress::silent()).await?;
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("csi.sock");
    let _driver = driver(&socket, arguments, &guard)?;
    let is_there = eventually(Duration::from_secs(30), async || Ok(socket.exists().then_some(()))).await?;
    is_there.context("the driver has no socket")?;

    let log = dir.path().join("log");
    let output = File::create(&log)?;
    let mut command = guard.command(Lifetime::WithOwner, program);
    command.arg("--ginkgo.no-color").arg("--csi.testnodevolumeattachlimit");
    for (flag, path) in [("endpoint", "csi.sock"), ("mountdir", "mount"), ("stagingdir", "staging")] {
        command.arg(format!("--csi.{flag}")).arg(dir.path().join(path));
    }
    command.stdout(output.try_clone()?).stderr(output);
    // csi-sanity waits forever for a driver, even for one that has crashed.
    let ended = tokio::time::timeout(LIMIT, Running::start(command)?.ended()).await;
    let text = std::fs::read_to_string(&log)?;
    let status = ended.with_context(|| format!("csi-sanity has not ended:\n{text}"))??;
    ensure!(status.success() && text.contains(ran) && text.contains(counts), "csi-sanity ended with {status}:\n{text}");
    Ok(())
}

fn driver(socket: &Path, arguments: &[&str], guard: &Guard) -> anyhow::Result<Running> {
    let mut command = guard.command(Lifetime::WithOwner, provisioner_program("csi-sim")?);
    command.arg("--endpoint").arg(socket).args(arguments);
    Ok(Running::start(command)?)
}
