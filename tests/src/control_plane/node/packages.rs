//! What a node needs of its machine.

use std::process::Command;

use anyhow::anyhow;

use crate::packages::{self, Package};
use crate::progress::SharedProgress;

/// Debian's packages.
const PACKAGES: [Package; 5] = [
    package("containerd", "/usr/bin/containerd", &["containerd.service"]),
    package("runc", "/usr/sbin/runc", &[]),
    package("containernetworking-plugins", "/usr/lib/cni/ptp", &[]),
    package("busybox-static", "/bin/busybox", &[]),
    package("iproute2", "/sbin/ip", &[]),
];

/// Why this machine can have no node now, and what to do about it.
pub fn obstacle() -> Option<anyhow::Error> {
    if !cfg!(target_os = "linux") {
        return Some(anyhow!("a node needs Linux"));
    }
    if !rustix::process::geteuid().is_root() {
        return Some(anyhow!("a node needs root: run the command as root"));
    }
    let missing = packages::missing(&PACKAGES);
    if !missing.is_empty() {
        let missing = missing.join(" ");
        return Some(anyhow!(
            "a node needs Debian's packages {missing}: add --install-node-packages, or run `apt-get install \
             --no-install-recommends {missing}`"
        ));
    }
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["--mount", "--net", "--pid", "--fork", "true"]).output();
    match output {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Some(anyhow!(
                "a node needs namespaces, which this machine refuses ({reason}): run it on a machine of its own"
            ))
        }
        Err(error) => Some(anyhow!("a node needs unshare of util-linux, which does not run: {error}")),
    }
}

/// Installs the packages that are missing.
pub fn install(progress: &SharedProgress) -> anyhow::Result<()> {
    packages::install(&PACKAGES, progress)
}

const fn package(name: &'static str, file: &'static str, services: &'static [&'static str]) -> Package {
    Package { name, file, services }
}
