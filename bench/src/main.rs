//! `cargo xtask bench NAME`: measurements on a real control plane. Each prints a table of figures;
//! `docs/book/pages/operate/performance.md` contains the latest ones.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it prints its results, and how far it is")]

mod buckets;
mod burst;
mod cluster;
mod contender;
mod csi;
mod directories;
mod etcd;
mod foreign;
mod handover;
mod journal;
mod measurement;
mod metrics;
mod nfs_handover;
mod process;
mod removal;
mod replicas;
mod saved;
mod shards;
mod soak;
mod wait;
mod waiting;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask bench", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Also write the values as JSON to this file
    #[arg(long, value_name = "FILE", global = true)]
    output: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Claims created at once and deleted at once, compared with the Go library
    Burst(burst::Settings),
    /// Bucket claims on a backend that does no work: time and API requests under load, at rest and at startup
    Buckets(buckets::Settings),
    /// Claims that are pending when the provisioner starts, compared with a bare client that posts the same volumes
    Waiting(waiting::Settings),
    /// Pending claims with a directory each: hostPath compared with a Go provisioner that only creates directories
    Directories(directories::Settings),
    /// Memory and startup time with claims and volumes of another provisioner in the cluster, or of the same one
    Foreign(foreign::Settings),
    /// Cost of the journal: writes and bytes per claim, and throughput compared with a provisioner without a journal
    Journal {
        /// Number of rounds for each
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Number of claims in a round that measures throughput
        #[arg(long, default_value_t = 1000)]
        claims: usize,
    },
    /// Time that claims stay pending when the replica that provisions them is stopped or killed
    Handover {
        /// Number of rounds for each
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Handover between two replicas of the NFS provisioner during a burst of claims, and directories that are left
    NfsHandover(nfs_handover::Settings),
    /// Four replicas with four shards compared with one replica; each backend takes 200 ms and ten calls at a time
    Shards {
        /// Number of claims in a round; with few claims, one shard receives far more than its share
        #[arg(long, default_value_t = 4000)]
        claims: usize,
        /// Number of rounds for each
        #[arg(long, default_value_t = 1)]
        rounds: usize,
    },
    /// Deletion of a volume with very many files while other claims are provisioned, compared with `rm -rf`
    Removal {
        #[arg(long, default_value_t = 1_000_000)]
        files: usize,
    },
    /// csi-provisioner compared with external-provisioner, with an in-memory CSI driver
    #[command(subcommand)]
    Csi(csi::Command),
    /// Two replicas of the hostPath provisioner under fault injection, with a check of every guarantee
    Soak(soak::Settings),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { command, output } = Arguments::parse();
    let measured = match command {
        Command::Burst(settings) => burst::run(settings).await?,
        Command::Buckets(settings) => buckets::run(settings).await?,
        Command::Waiting(settings) => waiting::run(settings).await?,
        Command::Directories(settings) => directories::run(settings).await?,
        Command::Foreign(settings) => foreign::run(settings).await?,
        Command::Handover { rounds } => handover::run(rounds).await?,
        Command::NfsHandover(settings) => nfs_handover::run(settings).await?,
        Command::Csi(command) => match csi::run(command).await? {
            Some(measured) => measured,
            None => return Ok(()),
        },
        Command::Journal { rounds, claims } => journal::run(rounds, claims).await?,
        Command::Shards { claims, rounds } => shards::run(claims, rounds).await?,
        Command::Removal { files } => removal::run(files).await?,
        Command::Soak(settings) => return soak::run(settings).await,
    };
    measured.finish(output.as_deref())
}
