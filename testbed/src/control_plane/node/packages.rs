//! The packages and kernel features that a node requires.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::dependency::Dependency;
use crate::packages::package;

/// The requirements of a node.
pub static NODE: Dependency = Dependency {
    name: "a node",
    packages: &[
        package("containerd", "/usr/bin/containerd", &["containerd.service"]),
        package("runc", "/usr/sbin/runc", &[]),
        package("containernetworking-plugins", "/usr/lib/cni/ptp", &[]),
        package("busybox-static", "/bin/busybox", &[]),
        package("iproute2", "/sbin/ip", &[]),
    ],
    suits,
    needed_by: |path| ["node::", "node_", "charts::node_"].iter().any(|start| path.starts_with(start)),
    ..Dependency::NOTHING
};

fn suits() -> anyhow::Result<()> {
    ensure!(cfg!(target_os = "linux"), "it needs Linux");
    ensure!(rustix::process::geteuid().is_root(), "it needs root: run the command as root");
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["--mount", "--net", "--pid", "--fork", "true"]).output();
    let output = output.context("it needs unshare of util-linux, which does not run")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it needs namespaces, which are refused ({}): run it elsewhere", reason.trim());
    Ok(())
}
