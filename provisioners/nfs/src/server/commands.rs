//! The commands of the mode `server`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use directory_volumes::commands::Place;
use directory_volumes::{Annotations, DirectoryError, Root, VolumePath, commands};
use kube_provisioner::console::print;
use kube_provisioner::k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::kube::Client;

use super::export::{ExportOptions, hostname};
use super::export_table::ExportTable;
use super::ganesha::{add_while_running, remove_while_running};
use super::predecessor;
use super::provisioner::ROOT_SQUASH;
use crate::source::{ANNOTATIONS, Location, Source, on_server};

type BoxError = Box<dyn Error + Send + Sync>;

pub(crate) type Commands = commands::Commands<Site>;

#[derive(Debug, Args)]
pub(crate) struct Site {
    /// Existing directory that holds the volumes
    #[arg(long, env = "NFS_EXPORT_DIRECTORY", value_name = "DIR", default_value = "/export")]
    export_directory: PathBuf,

    /// Address where nodes reach the server
    #[arg(long, env = "NFS_SERVER_HOSTNAME", value_name = "NAME", value_parser = hostname)]
    server_hostname: String,

    #[command(flatten)]
    export_options: ExportOptions,

    /// Directory for sockets and configuration of the running provisioner
    #[arg(long, env = "NFS_RUNTIME_DIRECTORY", value_name = "DIR", default_value = "/run/nfs-provisioner")]
    runtime_directory: PathBuf,

    #[command(flatten)]
    connection: commands::Connection,
}

impl commands::Site for Site {
    const ANNOTATIONS: Annotations = ANNOTATIONS;
    type Source = Source;

    fn root(&self) -> Result<Root, BoxError> {
        Ok(Root::open(&self.export_directory)?)
    }

    fn places(&self, root: &Root) -> Vec<Place> {
        let export = Place::Export { server: self.server_hostname.clone(), path: root.path().to_owned() };
        vec![export, Place::Directory(root.path().to_owned())]
    }

    fn connection(&self) -> &commands::Connection {
        &self.connection
    }

    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError> {
        Location::of(volume).unwrap_or_default().below(&root.path().to_string_lossy())
    }

    async fn template(&self, _: &Source, _: &Client) -> Result<Box<dyn commands::VolumeTemplate>, BoxError> {
        Ok(Box::new(VolumeTemplate { hostname: self.server_hostname.clone() }))
    }

    /// Exports a directory that has become a volume, with the id of its former export if that is known.
    async fn publish(&self, root: &Root, path: &VolumePath, volume: &PersistentVolume) -> Result<(), BoxError> {
        let wanted = predecessor::id(volume);
        let export = ExportTable::new(root.path()).reserve(path, predecessor::access(volume), wanted, None)?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != export.id) {
            let id = export.id;
            print(&format!(
                "the export of {path} has the id {id}, because another one has {wanted}: clients must mount it again\n"
            ));
        }
        Ok(add_while_running(&self.runtime_directory, root.path(), &self.export_options, &export).await?)
    }

    /// Removes the export. Otherwise the server would serve the moved directory to the next volume at this path.
    async fn unpublish(&self, root: &Root, path: &VolumePath) -> Result<(), BoxError> {
        let table = ExportTable::new(root.path());
        if let Some(export) = table.find(path)? {
            remove_while_running(&self.runtime_directory, &export).await?;
            table.release(&export)?;
        }
        Ok(())
    }
}

struct VolumeTemplate {
    hostname: String,
}

impl commands::VolumeTemplate for VolumeTemplate {
    /// Converts the old provisioner's settings of the export to this provisioner's annotations.
    fn annotations(&self, volume: Option<&PersistentVolume>) -> BTreeMap<String, String> {
        let squash = volume.map(|volume| predecessor::access(volume).root_squash.to_string());
        squash.map(|squash| (ROOT_SQUASH.to_owned(), squash)).into_iter().collect()
    }

    fn fill(&self, spec: &mut PersistentVolumeSpec, root: &Root, path: &VolumePath) -> Result<(), BoxError> {
        let path = on_server(&root.path().to_string_lossy(), path.as_str());
        spec.nfs = Some(NFSVolumeSource { server: self.hostname.clone(), path, read_only: None });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use directory_volumes::commands::Site as _;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        site: Site,
    }

    #[tokio::test]
    async fn unpublish_removes_the_export() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().to_str().unwrap();
        let arguments = ["", "--server-hostname", "server", "--provisioner-name", "p", "--export-directory", directory];
        let Program { site } = Program::parse_from(arguments);
        let (root, path) = (site.root().unwrap(), "shop/data".to_owned().try_into().unwrap());
        root.put_marker().unwrap();
        let table = ExportTable::new(root.path());
        site.publish(&root, &path, &PersistentVolume::default()).await.unwrap();
        assert!(table.find(&path).unwrap().is_some());
        site.unpublish(&root, &path).await.unwrap();
        assert_eq!(table.count().unwrap(), 0);
    }
}
