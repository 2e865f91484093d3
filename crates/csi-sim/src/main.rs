//! Serves the driver on a socket.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use csi_sim::{Capability, Driver, Faults, Machine, NodeSettings, Pool, Settings};
use driver_rpc::{Address, Server};
use tracing_subscriber::EnvFilter;

/// CSI driver in memory, or with data in a directory
#[derive(Parser)]
#[command(name = "csi-sim", version)]
struct Options {
    /// Socket to listen on: an absolute path or unix:///path
    #[arg(long, env = "CSI_ENDPOINT", default_value = "/run/csi/socket")]
    endpoint: Address,

    /// Name of the driver
    #[arg(long, default_value = "csi-sim.example.com")]
    driver_name: String,

    /// ID of the node
    #[arg(long, env = "NODE_NAME", default_value = "node-1")]
    node_id: String,

    /// Topology segments of the node and the default pool; enables topology
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair::<String>)]
    topology: Vec<(String, String)>,

    /// Size of the default pool
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 50)]
    pool_size: i64,

    /// Pool that replaces the default one, such as ssd=zone=a,rack=7:1073741824, for nodes in these segments; can be
    /// repeated
    #[arg(long = "pool", value_name = "NAME=KEY=VALUE,...:BYTES", value_parser = pool)]
    pools: Vec<Pool>,

    /// Maximum number of volumes on the node; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_volumes_per_node: i64,

    /// Capabilities to disable, such as Controller.CloneVolume
    #[arg(long, value_name = "CAPABILITY", value_delimiter = ',')]
    without: Vec<Capability>,

    /// Empty directory for the data of volumes and snapshots; published volumes are mounted. Requires root and losetup
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,

    /// Duration of each call
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    latency: u64,

    /// Create another volume for a name at each call, and fail the deletion of missing volumes
    #[arg(long)]
    not_idempotent: bool,

    /// Number of calls out of 1000 that hang, or are lost, refused or slow, such as hang=5,refused=10
    #[arg(long, value_name = "FAULT=N", value_delimiter = ',', value_parser = pair::<u32>)]
    faults: Vec<(String, u32)>,

    /// Seed of the random faults
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let options = Options::parse();
    let faults = options.faults()?;
    options.check_data()?;
    let (path, seed) = (options.endpoint.path().to_owned(), options.seed);
    let driver = Driver::new(options.settings());
    driver.set_faults(faults, seed);
    let server = Server::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
    match server.csi(driver).serve().await? {}
}

impl Options {
    /// Fails if the data directory is not empty: the driver starts without volumes, so existing data belongs to another
    /// driver.
    fn check_data(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.data else { return Ok(()) };
        let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        ensure!(entries.next().is_none(), "{} is not empty", folder.display());
        Ok(())
    }

    fn settings(self) -> Settings {
        let segments: BTreeMap<String, String> = self.topology.into_iter().collect();
        let of_node = Pool { name: "pool-1".to_owned(), segments: segments.clone(), size: self.pool_size };
        let mut settings = Settings {
            name: self.driver_name,
            latency: Duration::from_millis(self.latency),
            is_idempotent: !self.not_idempotent,
            machine: self.data.map_or(Machine::TargetPaths, Machine::Data),
            pools: if self.pools.is_empty() { vec![of_node] } else { self.pools },
            ..Settings::default()
        };
        if !segments.is_empty() || settings.pools.iter().any(|pool| !pool.segments.is_empty()) {
            settings.capabilities.extend(Capability::TOPOLOGY);
        }
        settings.nodes = vec![NodeSettings { id: self.node_id, segments, max_volumes: self.max_volumes_per_node }];
        settings.capabilities.retain(|capability| !self.without.contains(capability));
        settings
    }

    fn faults(&self) -> anyhow::Result<Faults> {
        let mut faults = Faults { slow_by: Duration::from_secs(5), ..Faults::default() };
        for (name, number) in &self.faults {
            let fault = match name.as_str() {
                "hang" => &mut faults.hang,
                "lost" => &mut faults.lost,
                "refused" => &mut faults.refused,
                "slow" => &mut faults.slow,
                _ => anyhow::bail!("unknown fault {name}; use hang, lost, refused or slow"),
            };
            *fault = *number;
        }
        Ok(faults)
    }
}

fn pool(text: &str) -> Result<Pool, String> {
    let parsed = text.rsplit_once(':').and_then(|(place, size)| {
        let ((name, segments), size) = (place.split_once('=')?, size.parse().ok()?);
        let segments = segments.split(',').filter(|segment| !segment.is_empty()).map(pair).collect::<Result<_, _>>();
        Some(Pool { name: name.to_owned(), segments: segments.ok()?, size })
    });
    parsed.ok_or_else(|| format!("{text:?} is not NAME=KEY=VALUE,...:BYTES"))
}

fn pair<T: std::str::FromStr>(text: &str) -> Result<(String, T), String> {
    let parsed = text.split_once('=').and_then(|(key, value)| Some((key.to_owned(), value.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not KEY=VALUE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_pools_with_segments_and_size() {
        let arguments = ["csi-sim", "--topology=zone=a", "--pool=ssd=zone=a,rack=7:100", "--pool=hdd=:5"];
        let settings = Options::parse_from(arguments).settings();
        let [ssd, hdd] = &settings.pools[..] else { panic!("{settings:?}") };
        let segments = BTreeMap::from([("rack".to_owned(), "7".to_owned()), ("zone".to_owned(), "a".to_owned())]);
        assert_eq!((&*ssd.name, &ssd.segments, ssd.size), ("ssd", &segments, 100));
        assert_eq!((&*hdd.name, hdd.segments.len(), hdd.size), ("hdd", 0, 5));
        assert!(settings.capabilities.is_superset(&Capability::TOPOLOGY.into()));
        for wrong in ["--pool=ssd", "--pool=ssd:5", "--pool=ssd=zone:5", "--pool=ssd=zone=a:x"] {
            assert!(Options::try_parse_from(["csi-sim", wrong]).is_err(), "{wrong}");
        }
    }
}
