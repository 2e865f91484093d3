//! `nfs-provisioner`: provisions NFS volumes. The mode `subdir` creates directories on a mounted share. The mode
//! `server` runs an NFS server and exports a directory for each volume.

mod parameters;
mod server;
mod source;
mod subdir;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let mode = arguments.next().and_then(|mode| mode.into_string().ok()).unwrap_or_default();
    let with_name = |name: &str| -> Vec<OsString> { [name.into()].into_iter().chain(arguments).collect() };
    match mode.as_str() {
        "subdir" => subdir::run(with_name("nfs-provisioner subdir")),
        "server" => server::run(with_name("nfs-provisioner server")),
        _ => {
            // This call prints the help or an error, and ends the process.
            let matches = command().get_matches();
            drop(matches);
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let modes = [
        Command::new("subdir").about("Create a directory per volume on a mounted NFS share"),
        Command::new("server").about("Run an NFS server, and export a directory per volume"),
    ];
    let about = "Provisions NFS volumes; run `subdir --help` or `server --help` for the flags of a mode";
    let command = Command::new("nfs-provisioner").version(env!("CARGO_PKG_VERSION")).about(about);
    command.subcommands(modes).subcommand_required(true).arg_required_else_help(true)
}
