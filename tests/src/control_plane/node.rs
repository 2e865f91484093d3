//! The real node of a control plane.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::State;

/// Imports an image archive into the node's container runtime.
pub fn import_image(_state: &State, archive: &Path) -> anyhow::Result<()> {
    let ctr = std::env::var_os("E2E_CTR").context("no node")?;
    let socket = std::env::var_os("E2E_CONTAINERD").context("no node")?;
    let output = Command::new(ctr)
        .arg("--address")
        .arg(socket)
        .args(["--namespace", "k8s.io", "images", "import"])
        .arg(archive)
        .output()
        .context("cannot run ctr")?;
    ensure!(output.status.success(), "the image was not imported: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
