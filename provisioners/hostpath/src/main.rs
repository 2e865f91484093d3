//! `hostpath-provisioner`: one directory per volume below a root directory of the host.

mod commands;
#[cfg(test)]
mod hostile;
mod hostpath;
mod metrics;
mod node;
mod parameters;
mod placement;
mod roots;

use std::process::ExitCode;

use clap::Parser;
use clap::builder::ArgPredicate;
use directory_volumes::TrashLimits;
use kube_provisioner::{Coordination, Options, Program};

use crate::commands::Commands;
use crate::hostpath::HostPath;
use crate::roots::{Disks, RootName};

/// Creates a directory for each volume, below a root directory of the node
///
/// Provisions for one node, or for several nodes with one replica and --node-name on each.
#[derive(Parser)]
#[command(name = "hostpath-provisioner", version)]
// A replica on another node cannot reach this node's directories.
#[command(mut_arg("coordination", |arg| arg.default_value_if("node_name", ArgPredicate::IsPresent, "per-node")))]
struct Args {
    /// Existing directory for the volumes; repeat with NAME=DIR for more directories, which classes select by `root:
    /// NAME`
    #[arg(long = "root", env = "HOSTPATH_ROOT", value_name = "[NAME=]DIR", value_delimiter = ',', required = true)]
    roots: Vec<RootName>,

    #[command(flatten)]
    trash: TrashLimits,

    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let setup = async |Args { roots, trash, options }: Args| {
        if options.node_name.is_some() && options.coordination != Coordination::PerNode {
            return Err("--node-name needs --coordination per-node, which is then the default".into());
        }
        Ok((HostPath::new(Disks::open(roots, trash)?, options.node_name.clone()), options))
    };
    Program::new(setup).commands(async |command: Commands| command.execute().await).run()
}
