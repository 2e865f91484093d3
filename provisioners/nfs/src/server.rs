//! `nfs-provisioner server`: runs NFS-Ganesha, and exports a directory for each volume.

mod commands;
mod dbus;
mod disk;
mod export;
mod export_table;
mod ganesha;
#[cfg(test)]
mod hostile;
mod parameters;
mod predecessor;
mod provisioner;
mod startup;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use directory_volumes::{Root, TrashLimits, Worker};
use kube_provisioner::{Options, Program, parse_duration};
use tokio::signal::unix::{SignalKind, signal};

use self::disk::DiskLock;
use self::export::{ExportOptions, hostname};
use self::export_table::ExportTable;
use self::ganesha::{Exporter as _, Ganesha, Settings};
use self::provisioner::{Server, VolumeSettings};

/// Runs an NFS server, NFS-Ganesha, and exports a directory for each volume
#[derive(Parser)]
#[command(name = "nfs-provisioner server", bin_name = "nfs-provisioner server", version)]
#[command(mut_arg("provisioner_name", |arg| arg.visible_alias("provisioner")))]
struct Args {
    /// Existing directory that holds the volumes, on a disk that outlives the pod
    #[arg(long, env = "NFS_EXPORT_DIRECTORY", value_name = "DIR", default_value = "/export")]
    export_directory: PathBuf,

    /// Server address in every volume, usually the address of a Service; it must not change
    #[arg(long, env = "NFS_SERVER_HOSTNAME", value_name = "NAME", value_parser = hostname)]
    server_hostname: String,

    #[command(flatten)]
    export_options: ExportOptions,

    /// Maximum number of exports; -1 means 65535
    #[arg(long, env = "NFS_MAX_EXPORTS", value_name = "COUNT", default_value = "-1", allow_hyphen_values = true,
        value_parser = clap::value_parser!(i32).range(-1..=65535))]
    max_exports: i32,

    /// Time after a server restart in which clients can reclaim their locks; 0s disables the grace period
    #[arg(long, env = "NFS_GRACE_PERIOD", value_name = "TIME", default_value = "90s", value_parser = grace_period)]
    nfs_grace_period: u16,

    /// Port of the server
    #[arg(long, env = "NFS_PORT", value_name = "PORT", default_value = "2049")]
    nfs_port: u16,

    /// Address that the server listens on
    #[arg(long, env = "NFS_BIND_ADDRESS", value_name = "ADDRESS", default_value = "0.0.0.0")]
    bind_address: IpAddr,

    /// Directory for sockets and configuration; created if it does not exist
    #[arg(long, env = "NFS_RUNTIME_DIRECTORY", value_name = "DIR", default_value = "/run/nfs-provisioner")]
    runtime_directory: PathBuf,

    /// Path of the NFS-Ganesha binary
    #[arg(long, env = "NFS_GANESHA", value_name = "FILE", default_value = "/usr/bin/ganesha.nfsd")]
    ganesha: PathBuf,

    #[command(flatten)]
    trash: TrashLimits,

    #[command(flatten)]
    options: Options,
}

/// Parses a grace period in whole seconds.
fn grace_period(text: &str) -> Result<u16, String> {
    let seconds = parse_duration(text)?.as_secs();
    u16::try_from(seconds).ok().filter(|seconds| *seconds <= 180).ok_or_else(|| "expected 180s at most".to_owned())
}

pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let setup = async |args: Args| {
        args.options.start_log();
        let options = args.options.clone();
        tokio::select! {
            biased;
            ready = begin(args) => ready.map(|server| (server, options)),
            never = startup::serve_probes(&options) => match never {},
        }
    };
    Program::new(setup).commands(async |command: commands::Commands| command.execute().await).arguments(arguments).run()
}

/// Serves the recorded exports once this process has locked the disk. The controller adds new exports later.
async fn begin(args: Args) -> Result<Server<Ganesha>, Box<dyn Error + Send + Sync>> {
    // The first process of a container would otherwise ignore the signal.
    let mut terminate = signal(SignalKind::terminate())?;
    let worker = Worker::new(Root::open(&args.export_directory)?);
    let settings = Settings {
        program: args.ganesha,
        runtime: args.runtime_directory,
        root: worker.root().path().to_owned(),
        port: args.nfs_port,
        address: args.bind_address,
        grace_period: args.nfs_grace_period,
        export_options: args.export_options,
    };
    let volume_settings =
        VolumeSettings { hostname: args.server_hostname, max_exports: u32::try_from(args.max_exports).ok() };
    let ganesha = Arc::new(Ganesha::new(settings, DiskLock::acquire(worker.root().path(), &mut terminate).await?)?);
    // If the marker is missing, the root is new, or another file system is mounted. The controller finds out which.
    if worker.root().has_marker()? {
        ganesha.start(&ExportTable::new(worker.root().path()));
    }
    startup::wait_for_api_server(&args.options, &mut terminate).await?;
    tokio::spawn(worker.clone().empty_trash(args.trash));
    Ok(Server::new(worker, ganesha, volume_settings))
}
