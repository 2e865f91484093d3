//! The images of tests' pods: programs of this machine, which no registry is asked for.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context;

use super::provisioner_program;
use crate::control_plane::State;
use crate::oci::Image;

/// What scripts may use, beside what the shell has itself.
const TOOLS: &[&str] = &["sh", "cat", "chmod", "id", "ln", "ls", "mkdir", "sleep", "stat"];

/// The name of an image with a shell and some tools.
pub(super) fn shell(state: &State) -> anyhow::Result<String> {
    static NAME: OnceLock<Result<String, String>> = OnceLock::new();
    once(&NAME, state, "localhost/e2e-shell:1", |mut image| {
        for tool in TOOLS {
            image = image.host_program(Path::new("bin").join(tool), &in_path(tool)?)?;
        }
        Ok(image)
    })
}

/// The name of an image with the provisioner of these tests, which is no release build.
pub(super) fn provisioner(state: &State) -> anyhow::Result<String> {
    static NAME: OnceLock<Result<String, String>> = OnceLock::new();
    once(&NAME, state, "localhost/hostpath-provisioner:e2e", |image| {
        let image = image.host_program("hostpath-provisioner", &provisioner_program()?)?;
        Ok(image.entrypoint(["/hostpath-provisioner"]).user("65532:65532"))
    })
}

/// Imports an image, once in each test program.
fn once(
    name: &OnceLock<Result<String, String>>,
    state: &State,
    wanted: &str,
    fill: impl FnOnce(Image) -> anyhow::Result<Image>,
) -> anyhow::Result<String> {
    let import = || {
        let archive = state.dir.join(format!("image-{}.tar", std::process::id()));
        fill(Image::new(wanted))?.write(&archive)?;
        let imported = crate::control_plane::import_image(state, &archive);
        std::fs::remove_file(&archive)?;
        imported.map(|()| wanted.to_owned())
    };
    let imported = name.get_or_init(|| import().map_err(|error: anyhow::Error| format!("{error:#}")));
    imported.clone().map_err(anyhow::Error::msg)
}

fn in_path(program: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.with_context(|| format!("no {program} in PATH"))
}
