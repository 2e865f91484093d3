//! Cargo, and the binaries of this workspace that tests start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, ensure};

/// Set if the binaries are already built with the features of the tests.
pub const BINARIES_ARE_BUILT: &str = "E2E_BINARIES_ARE_BUILT";

/// The packages whose binaries tests start. xtask is the guard of all other programs.
pub const BINARIES: [&str; 9] = [
    "aws-s3-provisioner",
    "ceph-rgw-provisioner",
    "csi-provisioner",
    "csi-sim",
    "garage-provisioner",
    "gcs-provisioner",
    "hostpath-provisioner",
    "nfs-provisioner",
    "xtask",
];

/// The cargo that started this program.
pub fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Removes the variables in which cargo describes the running package: build scripts that read them would run again.
pub fn without_package(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The path of a binary, such as `hostpath-provisioner`: either the value of `HOSTPATH_PROVISIONER`, or a binary of
/// this test's own build, which is updated once per process.
pub fn binary(package: &str) -> anyhow::Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();

    if let Some(path) = std::env::var_os(package.to_uppercase().replace('-', "_")) {
        return Ok(path.into());
    }
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)?;
    // Test programs are in `deps`, below the binaries of the same profile.
    let exe = std::env::current_exe()?;
    let path = exe.ancestors().nth(2).map(|folder| folder.join(package)).filter(|path| path.is_file());
    path.with_context(|| format!("no {package}: run `cargo xtask test`, or `cargo build --package {package}` first"))
}

fn build() -> anyhow::Result<()> {
    if std::env::var_os(BINARIES_ARE_BUILT).is_some() {
        return Ok(());
    }
    let mut cargo = without_package(Command::new(cargo_program()));
    cargo.args(["build", "--quiet", "--bins"]).args(BINARIES.iter().flat_map(|package| ["--package", package]));
    cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).stdin(Stdio::null());
    let status = cargo.status().context("cannot run cargo")?;
    ensure!(status.success(), "the binaries under test do not compile: {status}");
    Ok(())
}
