//! The image of a provisioner that a test's pod runs: a program of this machine, which no registry is asked for.

use std::sync::OnceLock;

use super::provisioner_program;
use crate::control_plane::State;
use crate::oci::Image;

/// The name of an image with the provisioner of these tests, which is no release build.
pub(super) fn provisioner(state: &State) -> anyhow::Result<String> {
    static NAME: OnceLock<Result<String, String>> = OnceLock::new();
    once(&NAME, state, "localhost/hostpath-provisioner:e2e", |image| {
        let image = image.host_program("hostpath-provisioner", &provisioner_program("hostpath-provisioner")?)?;
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
