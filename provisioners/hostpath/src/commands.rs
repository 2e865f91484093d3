//! The provisioner's commands beside running: what is in a root, and bringing things into it and out of it.

mod adopt;
mod gone_nodes;
mod orphans;
mod trash;

use std::error::Error;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use directory_volumes::Root;
use kube_provisioner::kube::Client;
use kube_provisioner::{Options, client};

type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Subcommand)]
pub(crate) enum Commands {
    /// Tell which directories belong to no volume, and which volumes have no directory
    Orphans(orphans::Orphans),
    /// Take a directory, or the volume of another provisioner, over
    Adopt(adopt::Adopt),
    /// Look for volumes whose node does not exist any more, and give them up after some time
    GoneNodes(gone_nodes::GoneNodes),
    /// List deleted volumes whose data are kept, bring one back, or remove it for good
    Trash(trash::Trash),
}

impl Commands {
    pub(crate) async fn carry_out(self) -> Result<(), BoxError> {
        match self {
            Self::Orphans(command) => command.carry_out().await,
            Self::Adopt(command) => command.carry_out().await,
            Self::GoneNodes(command) => command.carry_out().await,
            Self::Trash(command) => command.carry_out().await,
        }
    }
}

/// Where the commands work. In the provisioner's pod the environment says it all.
#[derive(Args)]
struct Place {
    /// Existing directory that holds the volumes
    #[arg(long, env = "HOSTPATH_ROOT", value_name = "DIR")]
    root: PathBuf,

    /// Name of the provisioner
    #[arg(long, env, value_name = "NAME")]
    provisioner_name: String,

    /// Kubeconfig file; without one the pod's service account, or the user's default
    #[arg(long, env, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Namespace of the provisioner's journal [default: the pod's or the kubeconfig's]
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,

    /// The node that the root is on, where there are several
    #[arg(long, env, value_name = "NAME")]
    node_name: Option<String>,

    /// Name of the installation, if the provisioner was given one
    #[arg(long, env, value_name = "NAME")]
    identity: Option<String>,
}

impl Place {
    /// The root, which the provisioner has used.
    fn root(&self) -> Result<Root, BoxError> {
        let root = Root::open(&self.root)?;
        root.check()?;
        Ok(root)
    }

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

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn print(text: &str) {
    print!("{text}");
}
