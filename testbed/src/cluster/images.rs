//! The image of a provisioner that a test's pod runs: a program of this machine, which no registry is asked for.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::provisioner_program;
use crate::control_plane::State;
use crate::nfs;
use crate::oci::Image;

/// The tag of these images, which are no release builds.
const TAG: &str = "e2e";

/// An image of the NFS provisioner, as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOf {
    /// Its mode `subdir`.
    NfsSubdir,
    /// Its mode `server`, with the server.
    NfsServer,
}

impl ImageOf {
    /// Writes the archive into the control plane's directory. Everything else is as in the image that
    /// `cargo xtask image` makes.
    pub fn archive(self, state: &State) -> anyhow::Result<PathBuf> {
        let name = match self {
            Self::NfsSubdir => "nfs-subdir-provisioner",
            Self::NfsServer => "nfs-server-provisioner",
        };
        let mut image = Image::new(format!("localhost/{name}:{TAG}"));
        if self == Self::NfsServer {
            let (packages, without) = nfs::IMAGE_PACKAGES;
            image = image.debian(packages, without)?;
        }
        let image = image.host_program("nfs-provisioner", &provisioner_program("nfs-provisioner")?)?;
        let archive = state.dir.join(format!("{name}-{}.tar", std::process::id()));
        image.entrypoint(["/nfs-provisioner"]).user("65532:65532").write(&archive)?;
        Ok(archive)
    }
}

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
