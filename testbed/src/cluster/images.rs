//! Images of provisioners for a test's pods. They contain a local binary, and are never pulled from a registry.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::provisioner_program;
use crate::control_plane::State;
use crate::nfs;
use crate::oci::Image;

/// The tag of these images, which do not contain release builds.
const TAG: &str = "e2e";

/// An image of the NFS provisioner, as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageOf {
    /// An image for the mode `subdir`.
    NfsSubdir,
    /// An image for the mode `server`, including the server.
    NfsServer,
}

impl ImageOf {
    /// Writes the archive into the control plane's directory. Except for the binary, it equals the image of `cargo
    /// xtask image`.
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

/// Imports an image with the provisioner of these tests, which is not a release build, and returns its name.
pub(super) fn provisioner(state: &State) -> anyhow::Result<String> {
    const NAME: &str = "localhost/hostpath-provisioner:e2e";
    // The control planes whose nodes already have the image.
    static IMPORTED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

    let mut imported = IMPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !imported.contains(&state.dir) {
        let archive = state.dir.join(format!("image-{}.tar", std::process::id()));
        let image =
            Image::new(NAME).host_program("hostpath-provisioner", &provisioner_program("hostpath-provisioner")?)?;
        image.entrypoint(["/hostpath-provisioner"]).user("65532:65532").write(&archive)?;
        crate::control_plane::import_image(state, &archive)?;
        std::fs::remove_file(&archive)?;
        imported.insert(state.dir.clone());
    }
    Ok(NAME.to_owned())
}
