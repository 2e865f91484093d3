//! The commands beside running.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use directory_volumes::{Annotations, DirectoryError, Root, VolumePath, commands};
use kube_provisioner::k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::kube::Client;

use super::book::Book;
use super::export::{Access, Clients, hostname};
use super::ganesha::{Settings, Version, add_beside};
use super::provisioner::{ANNOTATIONS, ROOT_SQUASH};
use crate::source::{Location, on_server};

type BoxError = Box<dyn Error + Send + Sync>;

pub(crate) type Commands = commands::Commands<Site>;

/// On a volume of the old provisioner: the id of its export, which clients that have it mounted know.
const FORMER_ID: &str = "Export_Id";

#[derive(Debug, Args)]
pub(crate) struct Site {
    /// Existing directory that holds the volumes
    #[arg(long, env = "NFS_EXPORT_DIRECTORY", value_name = "DIR", default_value = "/export")]
    export_directory: PathBuf,

    /// The address by which nodes reach the server
    #[arg(long, env = "NFS_SERVER_HOSTNAME", value_name = "NAME", value_parser = hostname)]
    server_hostname: String,

    /// Who may use the exports
    #[arg(long, env = "NFS_EXPORT_SUBNET", value_name = "SUBNETS", default_value = "*")]
    export_subnet: Clients,

    /// The versions of NFS
    #[arg(long, env = "NFS_VERSIONS", value_name = "VERSIONS", default_value = "4", value_delimiter = ',')]
    nfs_versions: Vec<Version>,

    /// Directory for sockets and configuration of the provisioner that runs
    #[arg(long, env = "NFS_RUNTIME_DIRECTORY", value_name = "DIR", default_value = "/run/nfs-provisioner")]
    runtime_directory: PathBuf,

    #[command(flatten)]
    connection: commands::Connection,
}

/// The source is the server: nothing is to be said.
#[derive(Debug, Args)]
pub(crate) struct Source {}

impl commands::Site for Site {
    const ANNOTATIONS: Annotations = ANNOTATIONS;
    type Source = Source;

    fn root(&self) -> Result<Root, BoxError> {
        Ok(Root::open(&self.export_directory)?)
    }

    fn connection(&self) -> &commands::Connection {
        &self.connection
    }

    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
        Location::of_or_nowhere(volume).below(&root.path().to_string_lossy())
    }

    async fn maker(&self, _: &Source, _: &Client) -> Result<Box<dyn commands::Maker>, BoxError> {
        Ok(Box::new(Maker { hostname: self.server_hostname.clone() }))
    }

    /// A directory that is a volume's now is exported, with the id that it had where that is known.
    async fn came(&self, root: &Root, path: &VolumePath, volume: &PersistentVolume) -> Result<(), BoxError> {
        let annotation = |key: &str| volume.metadata.annotations.as_ref().and_then(|all| all.get(key));
        let access = Access { root_squash: annotation(ROOT_SQUASH).is_some_and(|squash| squash == "true") };
        let former = annotation(FORMER_ID).and_then(|id| id.parse().ok()).filter(|id| *id > 0);
        let export = Book::new(root.path()).reserve(path, access, former, None)?;
        let settings = Settings {
            program: PathBuf::new(),
            runtime: self.runtime_directory.clone(),
            root: root.path().to_owned(),
            port: 0,
            address: [0, 0, 0, 0].into(),
            versions: self.nfs_versions.clone(),
            grace_period: 0,
            clients: self.export_subnet.clone(),
        };
        Ok(add_beside(&settings, &export).await?)
    }
}

struct Maker {
    hostname: String,
}

impl commands::Maker for Maker {
    fn annotations(&self, _: Option<&PersistentVolume>) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn fill(&self, spec: &mut PersistentVolumeSpec, root: &Root, path: &VolumePath) -> Result<(), BoxError> {
        let path = on_server(&root.path().to_string_lossy(), path.as_str());
        spec.nfs = Some(NFSVolumeSource { server: self.hostname.clone(), path, read_only: None });
        Ok(())
    }
}
