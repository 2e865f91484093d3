//! `nfs-provisioner subdir`: a directory per volume on a share that is mounted.

mod commands;
#[cfg(test)]
mod hostile;
mod parameters;
mod provisioner;
mod share;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use kube_provisioner::Options;

use self::provisioner::Subdir;
use self::share::{Mounted, ShareName};

/// Makes a directory per volume on NFS shares that are mounted here
#[derive(Parser)]
#[command(name = "nfs-provisioner subdir", bin_name = "nfs-provisioner subdir", version)]
struct Args {
    /// A share and where it is mounted here, such as nfs.example.com:/exports=/persistentvolumes; may be given several times
    #[arg(long = "share", env = "NFS_SHARES", value_name = "SERVER:/PATH=DIR", value_delimiter = ',', required = true)]
    shares: Vec<ShareName>,

    /// Take a directory that is no NFS mount for the share, as on the machine that exports it
    #[arg(long, env)]
    allow_local_directory: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let setup = async |Args { shares, allow_local_directory, options }: Args| {
        let mounted = if allow_local_directory { Mounted::Anyhow } else { Mounted::ByNfs };
        Ok((Subdir::new(shares, mounted)?, options))
    };
    kube_provisioner::run_as(arguments, setup, async |command: commands::Commands| command.carry_out().await)
}
