//! `cargo xtask ceph`

use std::process::ExitCode;
use std::time::Instant;

use clap::Subcommand;
use e2e::ceph::{self, Settings, State, Up};
use e2e::guard::Guard;
use e2e::progress::{self, seconds};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start one that stays until `down`; its state file has the admin user's keys
    Up {
        /// radosgw's port for http; a free one if none is given
        #[arg(long)]
        port: Option<u16>,

        /// Install the Debian packages that it needs, where they are missing
        #[arg(long)]
        install_ceph_packages: bool,
    },
    /// Stop it; what it stored is gone
    Down,
}

pub(crate) async fn run(command: Command, guard: &Guard) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { port, install_ceph_packages } => {
            if install_ceph_packages {
                ceph::install_packages(&progress::terminal())?;
            }
            up(port, guard).await
        }
        Command::Down => down().await,
    }
}

async fn up(port: Option<u16>, guard: &Guard) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let progress = progress::terminal();
    let state = match ceph::up(&Settings { port }, guard, &progress).await? {
        Up::Started(state) => {
            progress.line(&format!("Ceph is up after {}", seconds(start.elapsed())));
            state
        }
        Up::Already(state) => {
            progress.line("Ceph is already up");
            if port.is_some_and(|port| !state.endpoint.ends_with(&format!(":{port}"))) {
                progress.line(&format!("its port is not the wanted one, but that of {}", state.endpoint));
            }
            state
        }
    };
    print_use(&state);
    Ok(ExitCode::SUCCESS)
}

async fn down() -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    if ceph::down(&progress::terminal()).await? {
        println!("Ceph is down after {}", seconds(start.elapsed()));
    } else {
        println!("no Ceph cluster is up");
    }
    Ok(ExitCode::SUCCESS)
}

fn print_use(state: &State) {
    println!("endpoint:   {}", state.endpoint);
    println!("with TLS:   {} (authority: {})", state.https_endpoint, state.dir.join("ca.crt").display());
    println!("admin user: {}; its keys are in the state file", ceph::ADMIN);
    println!("state file: {}", state.path().display());
    println!("radosgw-admin and ceph: export CEPH_CONF={}", state.dir.join("ceph.conf").display());
    println!("to stop it: cargo xtask ceph down");
}
