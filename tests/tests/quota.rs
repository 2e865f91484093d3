//! The crate `project-quota` on real file systems: `crates/project-quota/examples/exercise` inside user-mode Linux.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use e2e::uml::{self, DEVICE, Disk, MOUNT_POINT};

#[tokio::test]
async fn project_quotas_hold_on_xfs() -> anyhow::Result<()> {
    exercise(Disk::Xfs, "xfs").await
}

#[tokio::test]
async fn project_quotas_hold_on_ext4() -> anyhow::Result<()> {
    exercise(Disk::Ext4, "ext4").await
}

async fn exercise(disk: Disk, kind: &str) -> anyhow::Result<()> {
    let outcome = uml::run(disk, &program()?, &["all", kind, MOUNT_POINT, DEVICE]).await?;
    ensure!(outcome.status == 0, "the exercise ended with {}:\n{}", outcome.status, outcome.output);
    Ok(())
}

/// Cargo puts examples beside the folder with this test.
fn program() -> anyhow::Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(2).context("the test has no target folder")?;
    let program = target.join("examples/exercise");
    ensure!(program.is_file(), "the program is not built; run: cargo build -p project-quota --examples");
    Ok(program)
}
