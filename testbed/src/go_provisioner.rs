//! The provisioner written with the Go library (`bench/go`): the baseline of measurements, and a client that a
//! simulated API server must satisfy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cached_program::Built;
use crate::control_plane::fnv1a;
use crate::go_module::COMPILER_FLAGS;
use crate::guard::{Guard, Lifetime};
use crate::progress::SharedProgress;

/// The program's path. It is built into the user's cache from Go modules, once for each state of its sources.
pub async fn go_provisioner(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    let module = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/go"));
    let sources = ["go.mod", "go.sum", "main.go"].map(|name| {
        let path = module.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    });
    let sources: Vec<String> = sources.into_iter().collect::<anyhow::Result<_>>()?;
    let version = format!("{:016x}", fnv1a(sources.iter().map(String::as_str)));
    let program = Built { name: "go-provisioner", version: &version, time: "1 minute" };
    let build = async |folder: &Path| {
        let mut command = guard.command(Lifetime::WithOwner, "go");
        command.args(["build", "-mod=readonly"]).args(COMPILER_FLAGS).arg("-o").arg(folder.join(program.name)).arg(".");
        command.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off");
        Ok(command)
    };
    program.path(progress, build).await
}
