//! `nfs-provisioner server`: an NFS server of our own, NFS-Ganesha, and an export per volume.

mod book;
mod commands;
mod dbus;
mod disk;
mod export;
mod ganesha;
#[cfg(test)]
mod hostile;
mod parameters;
mod provisioner;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use directory_volumes::{Root, Worker};
use kube_provisioner::Options;

use self::disk::Disk;
use self::export::{Clients, hostname};
use self::ganesha::{Ganesha, Settings, Version};
use self::provisioner::{Server, Terms};

/// Runs an NFS server, NFS-Ganesha, and exports a directory per volume
#[derive(Parser)]
#[command(name = "nfs-provisioner server", bin_name = "nfs-provisioner server", version)]
#[command(mut_arg("provisioner_name", |arg| arg.visible_alias("provisioner")))]
struct Args {
    /// Existing directory that holds the volumes, on a disk that outlives the pod
    #[arg(long, env = "NFS_EXPORT_DIRECTORY", value_name = "DIR", default_value = "/export")]
    export_directory: PathBuf,

    /// The address by which nodes reach the server: it is in every volume, so it must stay, as that of a Service does
    #[arg(long, env = "NFS_SERVER_HOSTNAME", value_name = "NAME", value_parser = hostname)]
    server_hostname: String,

    /// Who may use the exports: addresses and subnets such as 10.0.0.0/8, or * for everybody
    #[arg(long, env = "NFS_EXPORT_SUBNET", value_name = "SUBNETS", default_value = "*")]
    export_subnet: Clients,

    /// How many exports there may be; -1 for as many as there are ids, 65535
    #[arg(long, env = "NFS_MAX_EXPORTS", value_name = "COUNT", default_value = "-1", allow_hyphen_values = true)]
    max_exports: i32,

    /// How many seconds clients have to claim their locks again after a restart of the server; 0 for none
    #[arg(long, env = "NFS_GRACE_PERIOD", value_name = "SECONDS", default_value = "90",
        value_parser = clap::value_parser!(u16).range(0..=180))]
    nfs_grace_period: u16,

    /// The versions of NFS; 3 needs rpcbind beside the server
    #[arg(long, env = "NFS_VERSIONS", value_name = "VERSIONS", default_value = "4", value_delimiter = ',')]
    nfs_versions: Vec<Version>,

    /// The server's port
    #[arg(long, env = "NFS_PORT", value_name = "PORT", default_value = "2049")]
    nfs_port: u16,

    /// The address that the server listens on
    #[arg(long, env = "NFS_BIND_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,

    /// Directory for sockets and configuration, made if need be
    #[arg(long, env = "NFS_RUNTIME_DIRECTORY", value_name = "DIR", default_value = "/run/nfs-provisioner")]
    runtime_directory: PathBuf,

    /// The program of NFS-Ganesha
    #[arg(long, env = "NFS_GANESHA", value_name = "FILE", default_value = "/usr/bin/ganesha.nfsd")]
    ganesha: PathBuf,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let setup = async |args: Args| {
        let worker = Worker::new(Root::open(&args.export_directory)?);
        let settings = Settings {
            program: args.ganesha,
            runtime: args.runtime_directory,
            root: worker.root().path().to_owned(),
            port: args.nfs_port,
            address: args.bind_address,
            versions: args.nfs_versions,
            grace_period: args.nfs_grace_period,
            clients: args.export_subnet,
        };
        let terms = Terms { hostname: args.server_hostname, most: u32::try_from(args.max_exports).ok() };
        let ganesha = Ganesha::new(settings, Disk::wait(worker.root().path()).await?)?;
        tokio::spawn(worker.clone().empty_trash());
        Ok((Server::new(worker, Arc::new(ganesha), terms), args.options))
    };
    kube_provisioner::run_as(arguments, setup, async |command: commands::Commands| command.carry_out().await)
}
