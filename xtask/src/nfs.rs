//! `cargo xtask nfs`

use std::process::ExitCode;

use clap::Subcommand;
use e2e::guard::Guard;
use e2e::{nfs, progress};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start one that stays until `down`
    Up {
        /// Its port; a free one if none is given
        #[arg(long)]
        port: Option<u16>,

        /// Install the Debian packages that it needs, where they are missing
        #[arg(long)]
        install_nfs_packages: bool,
    },
    /// Stop it; what it stored is gone
    Down,
}

pub(crate) async fn run(command: Command, guard: &Guard) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { port, install_nfs_packages } => {
            if install_nfs_packages {
                nfs::install_packages(&progress::terminal())?;
            }
            let (server, is_new) = nfs::up(port, guard).await?;
            let (share, port) = (server.share.display(), server.port);
            println!("an NFS server {}", if is_new { "is up" } else { "was up already" });
            println!("share:      127.0.0.1:{share}, port {port}, NFSv4");
            println!("to look:    nfs-ls 'nfs://127.0.0.1{share}?version=4&nfsport={port}'");
            println!("to stop it: cargo xtask nfs down");
        }
        Command::Down if nfs::down().await? => println!("the NFS server is down"),
        Command::Down => println!("no NFS server is up"),
    }
    Ok(ExitCode::SUCCESS)
}
