//! `cargo xtask s3`

use std::process::ExitCode;

use clap::Subcommand;
use e2e::guard::Guard;
use e2e::{progress, s3};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start one that stays until `down`
    Up {
        /// Its port; a free one if none is given
        #[arg(long)]
        port: Option<u16>,

        /// Install moto and the Debian package that it needs, where they are missing
        #[arg(long)]
        install_s3_packages: bool,
    },
    /// Stop it; what it stored is gone
    Down,
}

pub(crate) async fn run(command: Command, guard: &Guard) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up { port, install_s3_packages } => {
            if install_s3_packages {
                s3::install_packages(&progress::terminal())?;
            }
            let (server, is_new) = s3::up(port, guard).await?;
            println!("S3 and IAM {} at {}", if is_new { "are up" } else { "were up already" }, server.endpoint);
            println!("export AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}", server.access_key, server.secret_key);
            println!("to stop them: cargo xtask s3 down");
        }
        Command::Down if s3::down().await? => println!("S3 is down"),
        Command::Down => println!("no S3 is up"),
    }
    Ok(ExitCode::SUCCESS)
}
