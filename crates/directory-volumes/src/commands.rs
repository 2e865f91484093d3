//! Commands of directory provisioners: they list the contents of a root, and move volumes into and out of it.

mod adopt;
mod orphans;
mod restored;
mod trash;
pub(crate) mod volumes;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::kube::{Client, Error as ApiError};
use kube_provisioner::{Options, client, cluster_id};

use crate::deletion::Annotations;
use crate::error::DirectoryError;
use crate::path::VolumePath;
use crate::root::Root;

pub use self::adopt::Adopt;
pub use self::orphans::Orphans;
pub use self::trash::Trash;

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "clap would take it for the description of the program")]
pub enum Commands<S: Site> {
    /// List directories without a volume, and volumes without a directory
    Orphans(Orphans<S>),
    /// Adopt a directory, or a volume of another provisioner
    Adopt(Adopt<S>),
    /// List, restore or purge deleted volumes in the trash
    Trash(Trash<S>),
}

impl<S: Site> Commands<S> {
    /// Executes the command.
    ///
    /// # Errors
    /// Fails if the command, or a part of it, could not be executed.
    pub async fn execute(self) -> Result<(), BoxError> {
        match self {
            Self::Orphans(command) => command.execute().await,
            Self::Adopt(command) => command.execute().await,
            Self::Trash(command) => command.execute().await,
        }
    }
}

/// The command-line arguments that specify where a provisioner's commands work. In the provisioner's pod, environment
/// variables provide all of them.
pub trait Site: Args + std::fmt::Debug + Send + Sync {
    /// The annotations of the provisioner's volumes.
    const ANNOTATIONS: Annotations;

    /// The arguments of `adopt` that describe the volume.
    type Source: Args + std::fmt::Debug + Send + Sync;

    /// Opens the root, which the provisioner must have used before.
    ///
    /// # Errors
    /// Fails if the root cannot be used.
    fn root(&self) -> Result<Root, BoxError>;

    /// Returns the locations of the root: its local directory, and its export on a server. Volumes of other
    /// provisioners may refer to either.
    fn places(&self, root: &Root) -> Vec<Place>;

    /// Returns the connection to the cluster.
    fn connection(&self) -> &Connection;

    /// Returns the directory that a volume refers to.
    ///
    /// # Errors
    /// Fails if the directory is not below the root.
    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError>;

    /// Returns true if a volume is on another machine, where the same path is another directory.
    fn is_elsewhere(&self, volume: &PersistentVolume) -> bool {
        let _ = volume;
        false
    }

    /// Prepares an adoption.
    fn template(
        &self,
        source: &Self::Source,
        client: &Client,
    ) -> impl Future<Output = Result<Box<dyn VolumeTemplate>, BoxError>> + Send;

    /// Prepares a directory that was adopted or restored, before its volume is offered to pods.
    fn publish(
        &self,
        root: &Root,
        path: &VolumePath,
        volume: &PersistentVolume,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (root, path, volume);
        async { Ok(()) }
    }

    /// Reverts `publish` for a directory that has no volume, before the directory is moved away.
    fn unpublish(&self, root: &Root, path: &VolumePath) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (root, path);
        async { Ok(()) }
    }

    /// Returns the root after checking its marker.
    ///
    /// # Errors
    /// Fails if the marker is not the expected one.
    fn checked_root(&self) -> Result<Root, BoxError> {
        let root = self.root()?;
        root.check()?;
        Ok(root)
    }
}

/// The location of data, as recorded in a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory on a machine.
    Directory(PathBuf),
    /// A directory on a file server.
    Export {
        /// The server's name or address.
        server: String,
        /// The path on the server.
        path: PathBuf,
    },
}

/// The parts of a volume that `adopt` fills in.
pub trait VolumeTemplate: Send + Sync {
    /// Checks that a volume is not located elsewhere, such as on another node.
    ///
    /// # Errors
    /// Fails if it is, and names its location.
    fn check(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let _ = volume;
        Ok(())
    }

    /// Returns the annotations that this provisioner adds to the common ones. `volume` is `None` for a new volume.
    fn annotations(&self, volume: Option<&PersistentVolume>) -> BTreeMap<String, String>;

    /// Fills in the source of a new volume.
    ///
    /// # Errors
    /// Fails if the source needs an argument that is missing.
    fn fill(&self, spec: &mut PersistentVolumeSpec, root: &Root, path: &VolumePath) -> Result<(), BoxError>;
}

/// The cluster, and who the provisioner is there.
#[derive(Debug, Args)]
pub struct Connection {
    /// Name of the provisioner
    #[arg(long, env, value_name = "NAME")]
    pub provisioner_name: String,

    /// Additional names that the provisioner serves, separated by commas
    #[arg(long, env, value_name = "NAMES", value_delimiter = ',')]
    pub additional_provisioner_names: Vec<String>,

    /// Kubeconfig file [default: the pod's service account, or ~/.kube/config]
    #[arg(long, env, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the provisioner's journal [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Value of the provisioner's --node-name, if set
    #[arg(long, env, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Value of the provisioner's --identity, if set
    #[arg(long, env, value_name = "NAME")]
    pub identity: Option<String>,

    /// Value of the provisioner's --cluster-id [default: the uid of the namespace kube-system]
    #[arg(long, env, value_name = "ID")]
    pub cluster_id: Option<String>,
}

impl Connection {
    fn options(&self) -> Options {
        let mut options = Options::new(&self.provisioner_name);
        options.additional_provisioner_names.clone_from(&self.additional_provisioner_names);
        options.kubeconfig.clone_from(&self.kubeconfig);
        options.namespace.clone_from(&self.namespace);
        options.cluster_id.clone_from(&self.cluster_id);
        options
    }

    /// Returns a client of the cluster.
    ///
    /// # Errors
    /// Fails if there is no cluster, or if it refuses access.
    pub async fn client(&self) -> Result<Client, BoxError> {
        Ok(client(&self.options()).await?)
    }

    /// Returns the id of the cluster, which distinguishes its marks from marks of other clusters.
    async fn cluster(&self, client: &Client) -> Result<String, BoxError> {
        Ok(cluster_id(&self.options(), client).await?)
    }
}

/// Fails if a command could not process some of its entries. The command has already printed the reasons.
fn check_none_failed(failed: usize, what: &str) -> Result<(), BoxError> {
    match failed {
        0 => Ok(()),
        failed => Err(format!("{what} ({failed} in total)").into()),
    }
}

/// Returns true if the API server has refused to create an object. After any other error it may still create it, even
/// if a request for the object does not find it yet.
fn is_refused(error: &ApiError) -> bool {
    matches!(error, ApiError::Api(status) if (400..500).contains(&status.code) && status.code != 408)
}
