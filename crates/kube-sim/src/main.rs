//! `kube-sim`: a simulated Kubernetes API for local programs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program talks to its user")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use kube_sim::serve::{Error, Server, Transport};
use kube_sim::{Actors, Cluster, Pace, SimClock};
use tokio::signal::unix::{SignalKind, signal};

/// In-memory Kubernetes API server with the controllers that bind volumes, schedule pods and collect garbage
#[derive(Parser)]
#[command(name = "kube-sim", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the API on a loopback port until SIGINT or SIGTERM; objects are not persisted
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Loopback address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,

    /// Write the administrator's kubeconfig to this file, readable only by its owner
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Seed of UIDs, generated names and the pace of the controllers
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Use TLS; the kubeconfig contains the certificate authority. Go clients send credentials only over TLS
    #[arg(long, requires = "kubeconfig")]
    tls: bool,

    /// Authorize requests by the roles and bindings in the cluster instead of allowing everything; implies TLS
    #[arg(long, requires = "kubeconfig")]
    rbac: bool,

    /// Serve only the API, without controllers
    #[arg(long)]
    no_controllers: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Serve(arguments) = Arguments::parse().command;
    match serve(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: Serve) -> Result<(), Error> {
    let builder = Cluster::builder().seed(arguments.seed).epoch(now());
    let cluster = if arguments.rbac { builder.rbac() } else { builder }.build();
    let actors = if arguments.no_controllers { Actors::none() } else { Actors::all().at(&Pace::USUAL) };
    let transport = if arguments.tls || arguments.rbac { Transport::Https } else { Transport::Http };
    let server = Server::bind(cluster.clone(), arguments.address, transport).await?;
    let end = end();
    let _running = cluster.run(actors);
    if let Some(path) = &arguments.kubeconfig {
        server.write_kubeconfig(path)?;
        println!("export KUBECONFIG={}", path.display());
    }
    println!("serving on {}", server.url());
    server.run(end).await;
    Ok(())
}

/// Returns the time of day, as the start of the simulated clock.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    since.and_then(|since| Timestamp::UNIX_EPOCH.checked_add(since).ok()).unwrap_or(SimClock::EPOCH)
}

/// Resolves with the first SIGINT or SIGTERM. The handlers are installed when this is called, so later signals are not
/// missed.
fn end() -> impl Future<Output = ()> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async {
        let [interrupt, terminate] = signals;
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            // Without handlers, the signals terminate the process.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
