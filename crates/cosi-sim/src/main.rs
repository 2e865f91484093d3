//! The `cosi-sim` binary serves the driver on a socket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use cosi_sim::{Driver, Fault, Protocol, Settings};
use driver_rpc::{Address, Server};
use tracing_subscriber::EnvFilter;

/// In-memory COSI driver
#[derive(Parser)]
#[command(name = "cosi-sim", version, after_help = faults())]
struct Options {
    /// Socket to listen on: an absolute path or unix:///path
    #[arg(long, env = "COSI_ENDPOINT", default_value = "unix:///var/lib/cosi/cosi.sock")]
    endpoint: Address,

    /// Name of the driver
    #[arg(long, default_value = "cosi-sim.example.com")]
    driver_name: String,

    /// Protocol versions to serve
    #[arg(long, value_name = "VERSION", value_delimiter = ',', default_value = "v1alpha1,v1alpha2")]
    versions: Vec<Version>,

    /// Supported protocols: s3, azure, gcs
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',', default_value = "s3")]
    protocols: Vec<Protocol>,

    /// Limit each account to one bucket
    #[arg(long)]
    single_bucket: bool,

    /// Duration of each call
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    latency: u64,

    /// Faults to inject
    #[arg(long = "fault", value_name = "FAULT", value_delimiter = ',')]
    faults: Vec<Fault>,

    /// File that stores buckets and accounts
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Version {
    V1alpha1,
    V1alpha2,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let Options { endpoint, driver_name, versions, protocols, single_bucket, latency, faults, state } =
        Options::parse();
    let driver = Driver::new(Settings {
        name: driver_name,
        protocols,
        multi_bucket: !single_bucket,
        latency: Duration::from_millis(latency),
        faults: faults.into_iter().collect(),
        state,
        seed: fastrand::u64(..),
    })?;
    let path = endpoint.path();
    let mut server = Server::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    if versions.contains(&Version::V1alpha1) {
        server = server.cosi_v1alpha1(driver.clone());
    }
    if versions.contains(&Version::V1alpha2) {
        server = server.cosi_v1alpha2(driver);
    }
    match server.serve().await? {}
}

fn faults() -> String {
    let lines = Fault::ALL.map(|fault| format!("  {fault:<30} {}\n", fault.description()));
    format!("Faults:\n{}", lines.concat())
}
