//! `hostpath-provisioner`: one directory per volume below a root directory of the host.

mod hostpath;
mod root;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::{Controller, Coordination, Options, arguments};

use crate::hostpath::HostPath;
use crate::root::Root;

/// Makes one directory per volume below a root directory of the host
///
/// For one node, or for several with --node-name on each. The size of a volume is not enforced:
/// all share the file system of the root directory.
#[derive(Parser)]
#[command(name = "hostpath-provisioner", version)]
struct Args {
    /// Existing directory that holds the volumes
    #[arg(long, env = "HOSTPATH_ROOT", value_name = "DIR")]
    root: PathBuf,

    #[command(flatten)]
    options: Options,
}

// One thread: the work is waiting, and what blocks is on threads of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Args { root, mut options } = arguments::<Args, HostPath>();
    if options.node_name.is_some() {
        // A replica on another node cannot reach this node's directories.
        options.coordination = Coordination::PerNode;
    }
    let root = match Root::open(&root) {
        Ok(root) => root,
        Err(error) => return fail(&error),
    };
    let provisioner = HostPath::new(root, options.node_name.clone());
    provisioner.finish_deletions();
    match Controller::new(provisioner, options).run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a program that cannot go on")]
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("hostpath-provisioner: {error}");
    ExitCode::FAILURE
}
