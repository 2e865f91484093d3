//! Speedup of four replicas over one, with a slow backend.

use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::cluster::Cluster;
use crate::process::{Provisioner, WITH_METRICS};
use crate::saved::Saved;
use crate::wait::until;
use crate::waiting::median;

/// Duration of a call, and number of concurrent calls per replica.
const BACKEND: [&str; 4] = ["--delay", "200", "--max-concurrent-calls", "10"];
const REPLICAS: usize = 4;

pub(crate) async fn run(count: usize, rounds: usize) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let (mut one, mut four) = (Vec::new(), Vec::new());
    println!("| replicas | volumes/s from the first to the last | first after | last after |\n|---|---|---|---|");
    for _ in 0..rounds {
        for (replicas, rates) in [(1, &mut one), (REPLICAS, &mut four)] {
            rates.push(round(&cluster, count, replicas).await?);
        }
    }
    let ratio = median(&mut four) / median(&mut one);
    println!("| medians | {:.1} and {:.1}: {ratio:.2} times as many | | |", median(&mut one), median(&mut four));
    ensure!(ratio >= 3.5, "{REPLICAS} replicas are less than 3.5 times as fast as one");
    Ok(())
}

/// The rate of this number of replicas with as many shards.
async fn round(cluster: &Cluster, count: usize, replicas: usize) -> anyhow::Result<f64> {
    cluster.clear().await?;
    let team = team(cluster, replicas).await?;
    cluster.create_waiting_claims(count).await?;
    let saved = Saved::watch(cluster, count).await?;
    let start = Instant::now();
    cluster.open_class().await?;
    let span = saved.all().await?;
    let rate = span.rate();
    let after = |time: Instant| time.duration_since(start).as_secs_f64();
    println!("| {replicas} | {rate:.1} | {:.2} s | {:.2} s |", after(span.first.at), after(span.last.at));
    drop(team);
    cluster.close_class().await?;
    cluster.clear().await?;
    Ok(rate)
}

/// Starts replicas that hold one shard each.
async fn team(cluster: &Cluster, count: usize) -> anyhow::Result<Vec<Provisioner>> {
    let mut team = Vec::new();
    for number in 0..count {
        let arguments: Vec<String> = BACKEND.iter().chain(&WITH_METRICS).map(ToString::to_string).collect();
        let arguments = [arguments, vec!["--shards".to_owned(), count.to_string()]].concat();
        team.push(Provisioner::start_replica(cluster, &format!("shards-{count}-{number}"), &arguments).await?);
    }
    for replica in &mut team {
        replica.wait_ready().await?;
    }
    // The replicas of an earlier round were killed, so that their Leases must expire.
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
