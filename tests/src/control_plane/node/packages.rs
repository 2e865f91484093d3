//! What a node needs of its machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, ensure};

use crate::progress::SharedProgress;

/// Debian's packages, with a file of each.
const PACKAGES: [(&str, &str); 5] = [
    ("containerd", "/usr/bin/containerd"),
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/ptp"),
    ("busybox-static", "/bin/busybox"),
    ("iproute2", "/sbin/ip"),
];

/// Why this machine can have no node now, and what to do about it.
pub fn obstacle() -> Option<anyhow::Error> {
    if !cfg!(target_os = "linux") {
        return Some(anyhow!("a node needs Linux"));
    }
    if !rustix::process::geteuid().is_root() {
        return Some(anyhow!("a node needs root: run the command as root"));
    }
    let missing = missing();
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

/// Installs the packages that are missing. A containerd that comes with them is not started, now or later.
pub fn install(progress: &SharedProgress) -> anyhow::Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    ensure!(rustix::process::geteuid().is_root(), "only root can install {}", missing.join(" "));
    progress.line(&format!("installing {}", missing.join(" ")));
    let _no_services = NoServices::begin();
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat())?;
    if missing.contains(&"containerd") && program("systemctl").is_ok() {
        let mut systemctl = Command::new("systemctl");
        systemctl.args(["disable", "--now", "containerd.service"]).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = systemctl.status();
    }
    Ok(())
}

/// The file of a program.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no program {name}"))
}

fn missing() -> Vec<&'static str> {
    PACKAGES.iter().filter(|(_, file)| !Path::new(file).exists()).map(|&(package, _)| package).collect()
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    let output = command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).output();
    let output = output.context("cannot run apt-get")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "apt-get {} failed: {said}", arguments.join(" "));
    Ok(())
}

/// While this lives, installing a package starts no service. The file is Debian's way to say so; one of the machine's
/// own stays in force.
struct NoServices(bool);

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn begin() -> Self {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        Self(file.and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n")).is_ok())
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.0 {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}
