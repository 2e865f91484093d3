//! Sizes on real file systems, inside user-mode Linux: `crates/project-quota/examples/exercise` for the quotas, and
//! `crates/directory-volumes/examples/sizes.rs` for the volumes. Labels on a kernel that enforces SELinux: `labels`, beside it.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use testbed::uml::{self, DEVICE, Disk, MOUNT_POINT};

#[tokio::test]
async fn project_quotas_hold_on_xfs() -> anyhow::Result<()> {
    exercise(Disk::Xfs, "xfs").await
}

#[tokio::test]
async fn project_quotas_hold_on_ext4() -> anyhow::Result<()> {
    exercise(Disk::Ext4, "ext4").await
}

async fn exercise(disk: Disk, kind: &str) -> anyhow::Result<()> {
    hold(disk, "exercise", &["all", kind, MOUNT_POINT, DEVICE]).await
}

#[tokio::test]
async fn sizes_of_volumes_hold_on_xfs() -> anyhow::Result<()> {
    hold(Disk::Xfs, "sizes", &[MOUNT_POINT, DEVICE, "xfs"]).await
}

#[tokio::test]
async fn sizes_of_volumes_hold_on_ext4() -> anyhow::Result<()> {
    hold(Disk::Ext4, "sizes", &[MOUNT_POINT, DEVICE, "ext4"]).await
}

#[tokio::test]
async fn labels_of_volumes_hold_under_selinux() -> anyhow::Result<()> {
    hold(Disk::Ext4, "labels", &[MOUNT_POINT]).await
}

async fn hold(disk: Disk, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let outcome = uml::run(disk, &example(program)?, arguments).await?;
    ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    Ok(())
}

/// Cargo puts examples beside the folder with this test.
fn example(name: &str) -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(2).context("the test has no target folder")?;
    let program = target.join("examples").join(name);
    ensure!(
        program.is_file(),
        "the program is not built; run: cargo build -p project-quota -p directory-volumes --examples"
    );
    Ok(program)
}
