//! Debian packages that some tests need, and their installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::process::output;
use crate::progress::SharedProgress;

/// A package.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// The name of the package.
    pub name: &'static str,
    /// A file that the package contains.
    pub file: &'static str,
    /// The services that the package would start, which the tests do not need.
    pub services: &'static [&'static str],
}

/// An entry of a table of packages.
pub(crate) const fn package(name: &'static str, file: &'static str, services: &'static [&'static str]) -> Package {
    Package { name, file, services }
}

/// The names of the packages that are not installed.
pub fn missing(packages: &[Package]) -> Vec<&'static str> {
    not_installed(packages).map(|package| package.name).collect()
}

/// Installs missing packages. Does not start or enable their services.
pub fn install(packages: &[Package], progress: &SharedProgress) -> anyhow::Result<()> {
    let services: Vec<_> = not_installed(packages).flat_map(|package| package.services).collect();
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    ensure!(rustix::process::geteuid().is_root(), "only root can install {}", missing.join(" "));
    progress.line(&format!("installing {}", missing.join(" ")));
    let _no_services = NoServices::begin();
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat())?;
    if !services.is_empty() && program("systemctl").is_ok() {
        let mut systemctl = Command::new("systemctl");
        systemctl.args(["disable", "--now"]).args(services).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = systemctl.status();
    }
    Ok(())
}

/// The path of a program.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let dirs = path.split(':').chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"]);
    let found = dirs.map(|dir| Path::new(dir).join(name)).find(|file| file.is_file());
    found.with_context(|| format!("there is no program {name}"))
}

fn not_installed(packages: &[Package]) -> impl Iterator<Item = &Package> {
    packages.iter().filter(|package| !Path::new(package.file).exists())
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    output(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
}

/// Keeps package installations from starting services while it exists, with Debian's policy file. A policy of the
/// machine itself stays in force.
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
