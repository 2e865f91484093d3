//! Sizes on real file systems, inside user-mode Linux: `crates/project-quota/examples/exercise` tests the quotas, and
//! `crates/directory-volumes/examples/sizes.rs` the volumes. `labels` in the same folder tests labels on a kernel that
//! enforces SELinux.

use anyhow::ensure;
use testbed::uml::{self, DEVICE, Disk, MOUNT_POINT};

#[tokio::test]
async fn project_quotas_are_enforced_on_xfs() -> anyhow::Result<()> {
    exercise(Disk::Xfs, "xfs").await
}

#[tokio::test]
async fn project_quotas_are_enforced_on_ext4() -> anyhow::Result<()> {
    exercise(Disk::Ext4, "ext4").await
}

async fn exercise(disk: Disk, kind: &str) -> anyhow::Result<()> {
    hold(disk, "exercise", &["all", kind, MOUNT_POINT, DEVICE]).await
}

#[tokio::test]
async fn volume_sizes_are_enforced_on_xfs() -> anyhow::Result<()> {
    hold(Disk::Xfs, "sizes", &[MOUNT_POINT, DEVICE, "xfs"]).await
}

#[tokio::test]
async fn volume_sizes_are_enforced_on_ext4() -> anyhow::Result<()> {
    hold(Disk::Ext4, "sizes", &[MOUNT_POINT, DEVICE, "ext4"]).await
}

#[tokio::test]
async fn volume_labels_work_under_selinux() -> anyhow::Result<()> {
    hold(Disk::Ext4, "labels", &[MOUNT_POINT]).await
}

async fn hold(disk: Disk, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let outcome = uml::run(disk, &uml::example(program)?, arguments).await?;
    ensure!(outcome.status == 0, "it ended with {}:\n{}", outcome.status, outcome.output);
    Ok(())
}
