//! `kube-sim`: a simulated Kubernetes API for programs on this machine.
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

/// A Kubernetes API server in memory, with the controllers that bind volumes, schedule pods and collect garbage
#[derive(Parser)]
#[command(name = "kube-sim", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the API on a loopback port until SIGINT or SIGTERM; nothing is kept
    Serve(Serve),
}

#[derive(Args)]
struct Serve {
    /// Where to listen: a loopback address; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,

    /// Write a kubeconfig of the administrator to this file, readable by its owner only
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Seed of UIDs, generated names and the pace of the controllers
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Speak TLS; the kubeconfig names the authority to trust. Go clients send credentials only with TLS
    #[arg(long, requires = "kubeconfig")]
    tls: bool,

    /// Authorize requests by the roles and bindings in the cluster, instead of allowing everything; with TLS
    #[arg(long, requires = "kubeconfig")]
    rbac: bool,

    /// Serve the API alone, without controllers
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

/// The time of day, as the start of the simulated clock.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    since.and_then(|since| Timestamp::UNIX_EPOCH.checked_add(since).ok()).unwrap_or(SimClock::EPOCH)
}

/// Resolves with the first SIGINT or SIGTERM. From this call on, no signal is missed.
fn end() -> impl Future<Output = ()> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async {
        let [interrupt, terminate] = signals;
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            // Without handlers, the signals end the process by themselves.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
