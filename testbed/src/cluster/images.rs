//! The image of a provisioner that a test's pod runs: a program of this machine, which no registry is asked for.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

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
    const NAME: &str = "localhost/hostpath-provisioner:e2e";
    // The control planes whose nodes have it.
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
