//! `cargo xtask bench NAME`: measurements on a real control plane. Figures are printed as a table; the last ones stand in
//! `docs/book/pages/operate/performance.md`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it prints its results, and how far it is")]

mod buckets;
mod burst;
mod cluster;
mod csi;
mod directories;
mod foreign;
mod handover;
mod journal;
mod metrics;
mod process;
mod removal;
mod saved;
mod shards;
mod soak;
mod wait;
mod waiting;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask bench", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Claims created at once, until all are bound and told of it
    Burst {
        #[arg(long, default_value_t = 1000)]
        claims: usize,
        /// Measure another build of `noop-provisioner` instead
        #[arg(long, value_name = "PROGRAM")]
        program: Option<std::path::PathBuf>,
    },
    /// Claims of buckets on a backend that costs nothing: time and API requests, at work, at rest and at the start
    Buckets(buckets::Settings),
    /// Claims that wait when the provisioner starts, beside a bare client that posts the same volumes
    Waiting(waiting::Settings),
    /// Claims that wait, with a directory for each: hostPath beside a Go provisioner that makes nothing but directories
    Directories(directories::Settings),
    /// Memory and start with claims and volumes of another provisioner in the cluster, or of the same one
    Foreign {
        #[arg(long, default_value_t = 50_000)]
        pairs: usize,
        /// The same provisioner has made them
        #[arg(long)]
        own: bool,
    },
    /// What the journal costs: writes and bytes per claim, and throughput beside a provisioner without it
    Journal {
        /// Rounds of each; the table has all of them and the medians
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Claims of a round that measures throughput
        #[arg(long, default_value_t = 1000)]
        claims: usize,
    },
    /// How long claims wait when the replica that serves them is told to stop, or is killed
    Handover {
        /// Rounds of each
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Four replicas with four shards beside one, with a backend of 200 ms that takes ten calls of each at a time
    Shards {
        /// Claims of a round; with few of them one shard gets many more than its share
        #[arg(long, default_value_t = 4000)]
        claims: usize,
        /// Rounds of each; the table has all of them and the medians
        #[arg(long, default_value_t = 1)]
        rounds: usize,
    },
    /// A volume with very many files that is deleted while other claims are served, beside `rm -rf`
    Removal {
        #[arg(long, default_value_t = 1_000_000)]
        files: usize,
    },
    /// csi-provisioner beside external-provisioner, with a CSI driver in memory
    #[command(subcommand)]
    Csi(csi::Command),
    /// Two replicas of the hostPath provisioner under faults, and whether every promise was kept
    Soak(soak::Settings),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Burst { claims, program } => burst::run(claims, program).await,
        Command::Buckets(settings) => buckets::run(settings).await,
        Command::Waiting(settings) => waiting::run(settings).await,
        Command::Directories(settings) => directories::run(settings).await,
        Command::Foreign { pairs, own } => foreign::run(pairs, own).await,
        Command::Journal { rounds, claims } => journal::run(rounds, claims).await,
        Command::Handover { rounds } => handover::run(rounds).await,
        Command::Shards { claims, rounds } => shards::run(claims, rounds).await,
        Command::Removal { files } => removal::run(files).await,
        Command::Csi(command) => csi::run(command).await,
        Command::Soak(settings) => soak::run(settings).await,
    }
}
