//! `nfs-provisioner subdir`: creates a directory for each volume on a mounted share.

mod commands;
#[cfg(test)]
mod hostile;
mod parameters;
mod predecessor;
mod provisioner;
mod share;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use directory_volumes::TrashLimits;
use kube_provisioner::{Options, Program};

use self::provisioner::Subdir;
use self::share::{RequiredMount, ShareName};

/// Creates a directory for each volume on NFS shares that are mounted in this pod
#[derive(Parser)]
#[command(name = "nfs-provisioner subdir", bin_name = "nfs-provisioner subdir", version)]
struct Args {
    /// A share and its mount point, such as nfs.example.com:/exports=/persistentvolumes; can be repeated
    #[arg(long = "share", env = "NFS_SHARES", value_name = "SERVER:/PATH=DIR", value_delimiter = ',', required = true)]
    shares: Vec<ShareName>,

    /// Accept a directory that is not an NFS mount, for example on the NFS server itself
    #[arg(long, env)]
    allow_local_directory: bool,

    #[command(flatten)]
    trash: TrashLimits,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let setup = async |Args { shares, allow_local_directory, trash, options }: Args| {
        let mounted = if allow_local_directory { RequiredMount::Any } else { RequiredMount::Nfs };
        Ok((Subdir::new(options.provisioner_name.clone(), shares, mounted, trash)?, options))
    };
    Program::new(setup).commands(async |command: commands::Commands| command.execute().await).arguments(arguments).run()
}
