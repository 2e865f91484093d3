//! The commands of the mode `subdir`, for one share.

use std::collections::BTreeMap;
use std::error::Error;

use clap::Args;
use directory_volumes::commands::Place;
use directory_volumes::{Annotations, DirectoryError, Root, VolumePath, commands};
use kube_provisioner::k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::kube::Client;

use super::share::{RequiredMount, ShareName, root};
use crate::source::{ANNOTATIONS, Location, Source, on_server};

type BoxError = Box<dyn Error + Send + Sync>;

pub(crate) type Commands = commands::Commands<Site>;

#[derive(Debug, Args)]
pub(crate) struct Site {
    /// The share and its mount point
    #[arg(long, env = "NFS_SHARES", value_name = "SERVER:/PATH=DIR")]
    share: ShareName,

    /// Accept a directory that is not an NFS mount, for example on the NFS server itself
    #[arg(long, env)]
    allow_local_directory: bool,

    #[command(flatten)]
    connection: commands::Connection,
}

impl commands::Site for Site {
    const ANNOTATIONS: Annotations = ANNOTATIONS;
    type Source = Source;

    fn root(&self) -> Result<Root, BoxError> {
        let mounted = if self.allow_local_directory { RequiredMount::Any } else { RequiredMount::Nfs };
        Ok(root(&self.share.directory, mounted)?)
    }

    fn places(&self, root: &Root) -> Vec<Place> {
        let path = if self.share.path.is_empty() { "/" } else { &self.share.path };
        let export = Place::Export { server: self.share.server.clone(), path: path.into() };
        vec![export, Place::Directory(root.path().to_owned())]
    }

    fn connection(&self) -> &commands::Connection {
        &self.connection
    }

    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
        let location = Location::of(volume).unwrap_or_default();
        if location.server == self.share.server {
            location.below(&self.share.path)
        } else {
            Err(DirectoryError::Outside { path: location.path, root: root.path().to_owned() })
        }
    }

    async fn template(&self, _: &Source, _: &Client) -> Result<Box<dyn commands::VolumeTemplate>, BoxError> {
        Ok(Box::new(VolumeTemplate { share: self.share.clone() }))
    }
}

struct VolumeTemplate {
    share: ShareName,
}

impl commands::VolumeTemplate for VolumeTemplate {
    /// Keeps deleted data of adopted volumes in the trash, because their former provisioner may have archived it.
    fn annotations(&self, volume: Option<&PersistentVolume>) -> BTreeMap<String, String> {
        // This provisioner's own volumes name their root. Without the other annotation, their data must be removed.
        let records_policy = |volume: &PersistentVolume| {
            let all = volume.metadata.annotations.as_ref();
            all.is_some_and(|all| all.contains_key(ANNOTATIONS.on_delete) || all.contains_key(ANNOTATIONS.root))
        };
        let archived = volume.filter(|volume| !records_policy(volume)).map(|_| (ANNOTATIONS.on_delete, "trash"));
        archived.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect()
    }

    fn fill(&self, spec: &mut PersistentVolumeSpec, _: &Root, path: &VolumePath) -> Result<(), BoxError> {
        let path = on_server(&self.share.path, path.as_str());
        spec.nfs = Some(NFSVolumeSource { server: self.share.server.clone(), path, read_only: None });
        Ok(())
    }
}
