//! The commands of provisioners of directories: what is in a root, and bringing things into it and out of it.

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
use kube_provisioner::kube::Client;
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
    /// Does what the command says.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub async fn execute(self) -> Result<(), BoxError> {
        match self {
            Self::Orphans(command) => command.execute().await,
            Self::Adopt(command) => command.execute().await,
            Self::Trash(command) => command.execute().await,
        }
    }
}

/// Where the commands of one provisioner work, as its arguments say. In the provisioner's pod the environment says it all.
pub trait Site: Args + std::fmt::Debug + Send + Sync {
    /// The annotations of its volumes.
    const ANNOTATIONS: Annotations;

    /// The arguments of `adopt` that say what a volume is to be.
    type Source: Args + std::fmt::Debug + Send + Sync;

    /// The root, which the provisioner has used.
    ///
    /// # Errors
    /// When it cannot be used.
    fn root(&self) -> Result<Root, BoxError>;

    /// Where the root is: its directory here, and what it is on a server. Volumes of others name it so.
    fn places(&self, root: &Root) -> Vec<Place>;

    /// The cluster.
    fn connection(&self) -> &Connection;

    /// The directory that a volume names.
    ///
    /// # Errors
    /// When it is not below the root.
    fn path_of(&self, volume: &PersistentVolume, root: &Root) -> Result<VolumePath, DirectoryError>;

    /// Gets ready to adopt.
    fn maker(
        &self,
        source: &Self::Source,
        client: &Client,
    ) -> impl Future<Output = Result<Box<dyn Maker>, BoxError>> + Send;

    /// What is to be done for a directory that was adopted or restored, before its volume is offered to pods.
    fn came(
        &self,
        root: &Root,
        path: &VolumePath,
        volume: &PersistentVolume,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = (root, path, volume);
        async { Ok(()) }
    }

    /// The root with its marker.
    ///
    /// # Errors
    /// When it is not the root that it was.
    fn checked_root(&self) -> Result<Root, BoxError> {
        let root = self.root()?;
        root.check()?;
        Ok(root)
    }
}

/// Where data are, as a volume says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory of a machine.
    Directory(PathBuf),
    /// A directory of a file server.
    Export {
        /// The server's name or address.
        server: String,
        /// The path there.
        path: PathBuf,
    },
}

/// What `adopt` says on volumes.
pub trait Maker: Send + Sync {
    /// Refuses a volume that is elsewhere.
    ///
    /// # Errors
    /// Where it is.
    fn check(&self, volume: &PersistentVolume) -> Result<(), BoxError> {
        let _ = volume;
        Ok(())
    }

    /// Annotations beside those of all provisioners; of a volume that is there, or of a new one.
    fn annotations(&self, volume: Option<&PersistentVolume>) -> BTreeMap<String, String>;

    /// Fills in the source of a new volume.
    ///
    /// # Errors
    /// Why there can be none.
    fn fill(&self, spec: &mut PersistentVolumeSpec, root: &Root, path: &VolumePath) -> Result<(), BoxError>;
}

/// The cluster, and who the provisioner is there.
#[derive(Debug, Args)]
pub struct Connection {
    /// Name of the provisioner
    #[arg(long, env, value_name = "NAME")]
    pub provisioner_name: String,

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
        options.kubeconfig.clone_from(&self.kubeconfig);
        options.namespace.clone_from(&self.namespace);
        options.cluster_id.clone_from(&self.cluster_id);
        options
    }

    /// A client of the cluster.
    ///
    /// # Errors
    /// When there is none, or it does not let the provisioner in.
    pub async fn client(&self) -> Result<Client, BoxError> {
        Ok(client(&self.options()).await?)
    }

    /// The id of the cluster, by which marks of other clusters are known.
    async fn cluster(&self, client: &Client) -> Result<String, BoxError> {
        Ok(cluster_id(&self.options(), client).await?)
    }
}
