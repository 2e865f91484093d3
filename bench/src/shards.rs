//! Speedup of four replicas over one, with a slow backend.

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use testbed::figures::Figures;

use crate::cluster::Cluster;
use crate::contender::in_turns;
use crate::measurement::Measurement;
use crate::process::{Provisioner, WITH_METRICS};
use crate::saved::Saved;
use crate::wait::until;
use crate::waiting::RATE;

/// Duration of a call, and number of concurrent calls per replica.
const BACKEND: [&str; 4] = ["--delay", "200", "--max-concurrent-calls", "10"];
const REPLICAS: usize = 4;
const ONE: &str = "one replica";
const FOUR: &str = "four replicas, four shards";

pub(crate) async fn run(count: usize, rounds: usize) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let mut figures = Figures::default();
    for number in 0..rounds {
        for (replicas, name) in in_turns(number, &[(1, ONE), (REPLICAS, FOUR)]) {
            let rate = round(&cluster, count, *replicas).await?;
            eprintln!("{name}: {rate:.1} volumes/s");
            figures.record(name, RATE, rate);
        }
    }
    let ratio = figures.median(FOUR, RATE) / figures.median(ONE, RATE);
    Ok(Measurement::from(figures).limit(ratio >= 3.5, "four replicas are less than 3.5 times as fast as one"))
}

/// The rate of this number of replicas with as many shards.
async fn round(cluster: &Cluster, count: usize, replicas: usize) -> anyhow::Result<f64> {
    cluster.clear().await?;
    let team = start_replicas(cluster, replicas).await?;
    cluster.create_waiting_claims(count).await?;
    let saved = Saved::watch(cluster, count).await?;
    cluster.open_class().await?;
    let rate = saved.all().await?.rate();
    drop(team);
    cluster.close_class().await?;
    cluster.clear().await?;
    Ok(rate)
}

/// Starts replicas that hold one shard each.
async fn start_replicas(cluster: &Cluster, count: usize) -> anyhow::Result<Vec<Provisioner>> {
    let mut team = Vec::new();
    for number in 0..count {
        let arguments: Vec<String> = BACKEND.iter().chain(&WITH_METRICS).map(ToString::to_string).collect();
        let arguments = [arguments, vec!["--shards".to_owned(), count.to_string()]].concat();
        team.push(Provisioner::start(cluster, &format!("shards-{count}-{number}"), &arguments).await?);
    }
    for replica in &mut team {
        replica.wait_ready().await?;
    }
    until(Duration::from_secs(120), Duration::from_millis(250), async || {
        let mut alike = true;
        for replica in &team {
            alike &= replica.leases().await? == 1;
        }
        Ok(if alike { Break(()) } else { Continue("the shards are not shared evenly".to_owned()) })
    })
    .await?;
    Ok(team)
}
