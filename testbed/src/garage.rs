//! [Garage](https://garagehq.deuxfleurs.fr) on loopback, with its admin API.

#[cfg(feature = "s3")]
mod server;

use std::path::PathBuf;

use crate::cached_program::Built;
use crate::dependency::{Dependency, is_named};
use crate::guard::{Guard, Lifetime};
use crate::progress::SharedProgress;

#[cfg(feature = "s3")]
pub use self::server::{Garage, Server};

const PROGRAM: Built<'_> = Built { name: "garage", version: "2.5.0", time: "5 to 10 minutes" };

/// The requirements of Garage.
pub static GARAGE: Dependency = Dependency {
    name: "Garage",
    suits: || PROGRAM.check("cargo"),
    needed_by: |path| is_named(path, "garage_"),
    program: Some(|guard, progress| Box::pin(program(guard, progress))),
    ..Dependency::NOTHING
};

/// The path of Garage, which is built once into the user's cache.
async fn program(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<PathBuf> {
    let build = async |folder: &std::path::Path| {
        let mut command = guard.command(Lifetime::WithOwner, "cargo");
        command.args(["install", PROGRAM.name, "--version", PROGRAM.version, "--locked"]);
        command.args(["--no-default-features", "--features", "bundled-libs,lmdb"]);
        command.arg("--root").arg(folder).arg("--target-dir").arg(folder.join("target"));
        // With these settings, the build takes a third of the time of a fully optimized one.
        for (setting, value) in [("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16"), ("STRIP", "debuginfo")] {
            command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        command.current_dir(std::env::temp_dir());
        Ok(command)
    };
    PROGRAM.path(progress, build).await
}
