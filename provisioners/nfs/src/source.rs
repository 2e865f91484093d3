//! Maps the path of an NFS volume on its server to its directory below a root, and back.

use std::path::Path;

use clap::Args;
use directory_volumes::{Annotations, DirectoryError, VolumePath};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;

/// The annotations of a volume with the action on its data and the id of its root.
pub(crate) const ANNOTATIONS: Annotations = Annotations {
    on_delete: "nfs-provisioner/on-delete",
    trash_ttl: "nfs-provisioner/trash-ttl-seconds",
    root: "nfs-provisioner/root",
};

/// The arguments of `adopt` for the volume's source. There are none, because the server or share determines the source.
#[derive(Debug, Args)]
pub(crate) struct Source {}

/// The driver whose volumes can be adopted.
pub(crate) const CSI_DRIVER: &str = "nfs.csi.k8s.io";

/// The location in a volume's object: a server, and a path on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) server: String,
    pub(crate) path: String,
}

impl Location {
    /// Reads the location of an `nfs` volume or of a csi-driver-nfs volume. It is not trusted: users may have written
    /// it.
    pub(crate) fn of(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        if let Some(nfs) = &spec.nfs {
            return Some(Self { server: nfs.server.clone(), path: nfs.path.clone() });
        }
        let csi = spec.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER)?;
        // The driver ignores the case of attribute names.
        let attribute = |key: &str| {
            let mut all = csi.volume_attributes.as_ref()?.iter();
            all.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        };
        let (share, below) = (attribute("share")?, attribute("subdir")?);
        Some(Self { server: attribute("server")?.clone(), path: on_server(share.trim_end_matches('/'), below) })
    }

    /// Returns the directory in a share.
    pub(crate) fn below(&self, share: &str) -> Result<VolumePath, DirectoryError> {
        VolumePath::below(Path::new(if share.is_empty() { "/" } else { share }), &self.path)
    }
}

/// Returns the path on the server of a directory below a share. The share has no slash at its end.
pub(crate) fn on_server(share: &str, below: &str) -> String {
    format!("{share}/{below}")
}
