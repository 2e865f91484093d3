//! Between the path of an NFS volume on its server and its directory below a root.

use std::path::Path;

use clap::Args;
use directory_volumes::{Annotations, DirectoryError, VolumePath};
use kube_provisioner::k8s_openapi::api::core::v1::PersistentVolume;

/// On a volume: what becomes of its data, and the root that it is in.
pub(crate) const ANNOTATIONS: Annotations = Annotations {
    on_delete: "nfs-provisioner/on-delete",
    trash_ttl: "nfs-provisioner/trash-ttl-seconds",
    root: "nfs-provisioner/root",
};

/// Arguments of `adopt`: the source of a volume is the server or the share, so nothing is to be said.
#[derive(Debug, Args)]
pub(crate) struct Source {}

/// The driver whose volumes can be taken over.
const CSI_DRIVER: &str = "nfs.csi.k8s.io";

/// Where a volume says that it is: a server, and a path there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) server: String,
    pub(crate) path: String,
}

impl Location {
    /// Of a volume of the kind `nfs`, or of csi-driver-nfs. Anybody may have written it.
    pub(crate) fn of(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        if let Some(nfs) = &spec.nfs {
            return Some(Self { server: nfs.server.clone(), path: nfs.path.clone() });
        }
        let csi = spec.csi.as_ref().filter(|csi| csi.driver == CSI_DRIVER)?;
        // The driver does not heed the case of their names.
        let attribute = |key: &str| {
            let mut all = csi.volume_attributes.as_ref()?.iter();
            all.find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        };
        let (share, below) = (attribute("share")?, attribute("subdir")?);
        Some(Self { server: attribute("server")?.clone(), path: on_server(share.trim_end_matches('/'), below) })
    }

    /// Its directory in a share.
    pub(crate) fn below(&self, share: &str) -> Result<VolumePath, DirectoryError> {
        VolumePath::below(Path::new(if share.is_empty() { "/" } else { share }), &self.path)
    }

    /// The same where the volume may have none.
    pub(crate) fn of_or_nowhere(volume: &PersistentVolume) -> Self {
        Self::of(volume).unwrap_or(Self { server: String::new(), path: String::new() })
    }
}

/// The path on the server of what is below a share, which has no slash at its end.
pub(crate) fn on_server(share: &str, below: &str) -> String {
    format!("{share}/{below}")
}
