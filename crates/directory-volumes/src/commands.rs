//! The commands of provisioners of directories: what is in a root, and bringing things into it and out of it.

mod adopt;
mod orphans;
mod trash;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use kube_provisioner::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use kube_provisioner::kube::Client;
use kube_provisioner::{Options, client};

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
    /// Tell which directories belong to no volume, and which volumes have no directory
    Orphans(Orphans<S>),
    /// Take a directory, or the volume of another provisioner, over
    Adopt(Adopt<S>),
    /// List deleted volumes whose data are kept, bring one back, or remove it for good
    Trash(Trash<S>),
}

impl<S: Site> Commands<S> {
    /// Does what the command says.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub async fn carry_out(self) -> Result<(), BoxError> {
        match self {
            Self::Orphans(command) => command.carry_out().await,
            Self::Adopt(command) => command.carry_out().await,
            Self::Trash(command) => command.carry_out().await,
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

    /// Kubeconfig file; without one the pod's service account, or the user's default
    #[arg(long, env, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Namespace of the provisioner's journal [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// The node that the provisioner is on, where there are several
    #[arg(long, env, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Name of the installation, if the provisioner was given one
    #[arg(long, env, value_name = "NAME")]
    pub identity: Option<String>,
}

impl Connection {
    fn options(&self) -> Options {
        let mut options = Options::new(&self.provisioner_name);
        options.kubeconfig.clone_from(&self.kubeconfig);
        options.namespace.clone_from(&self.namespace);
        options
    }

    async fn client(&self) -> Result<Client, BoxError> {
        Ok(client(&self.options()).await?)
    }
}

/// Lines with columns of equal width.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The answer of a command.
#[expect(clippy::print_stdout, reason = "the answer of a command")]
pub fn print(text: &str) {
    print!("{text}");
}
