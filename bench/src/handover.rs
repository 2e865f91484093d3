//! Time that claims are pending when the replica that provisions them is stopped or killed.

use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use testbed::control_plane::Signal;
use testbed::figures::Figures;

use crate::cluster::Cluster;
use crate::measured::Measured;
use crate::process::{Provisioner, WITH_METRICS};
use crate::wait::until;

/// Twenty claims per second, so that many are still pending.
const SLOW: [&str; 4] = ["--delay", "50", "--max-concurrent-calls", "1"];
/// The defaults: the Lease's duration, and one retry period.
const KILLED: Duration = Duration::from_secs(15 + 2);
const TOLD: Duration = Duration::from_secs(1);
const CLAIMS: usize = 600;

pub(crate) async fn run(rounds: usize) -> anyhow::Result<Measured> {
    let cluster = Cluster::connect().await?;
    let mut figures = Figures::default();
    for number in 0..rounds {
        for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::KILL, "SIGKILL")] {
            let (time, waiting) = round(&cluster, signal, &format!("{name}-{number}")).await?;
            eprintln!("{name}: {:.2} s", time.as_secs_f64());
            figures.record(name, "first volume of the next replica after, s", time.as_secs_f64());
            figures.record(name, "claims waiting", waiting as f64);
        }
    }
    let longest = |name: &str| figures.summary(name, "first volume of the next replica after, s").map(|all| all.most);
    let within = |name: &str, limit: Duration| longest(name).is_some_and(|longest| longest <= limit.as_secs_f64());
    let holds = within("SIGTERM", TOLD) && within("SIGKILL", KILLED);
    Ok(Measured::from(figures).limit(holds, format!("claims waited longer than {TOLD:?} and {KILLED:?}")))
}

async fn round(cluster: &Cluster, signal: Signal, name: &str) -> anyhow::Result<(Duration, usize)> {
    cluster.clear().await?;
    let mut replicas = Vec::new();
    for maker in ["first", "second"] {
        let own = ["--maker", maker];
        let arguments: Vec<String> = SLOW.iter().chain(&own).chain(&WITH_METRICS).map(ToString::to_string).collect();
        let mut replica = Provisioner::start_replica(cluster, &format!("{name}-{maker}"), &arguments).await?;
        replica.wait_ready().await?;
        replicas.push((maker, replica));
    }
    cluster.create_waiting_claims(CLAIMS).await?;
    let holder = holder(&replicas).await?;
    let api = cluster.volumes();
    let version = api.list_metadata(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let events = api.watch(&WatchParams::default().timeout(290), &version).await?;
    let mut made = Box::pin(events.filter_map(async |event| match event {
        Ok(WatchEvent::Added(volume)) => Some(volume),
        _ => None,
    }));
    cluster.open_class().await?;
    let mut before = 0;
    while before < CLAIMS / 10 {
        made.next().await.context("the watch ended")?;
        before += 1;
    }
    let start = Instant::now();
    replicas[holder].1.signal(signal)?;
    let other = replicas[1 - holder].0;
    let first = async {
        while let Some(volume) = made.next().await {
            if maker(&volume) == Some(other) {
                return Some(start.elapsed());
            }
            before += 1;
        }
        None
    };
    let time = tokio::time::timeout(Duration::from_secs(60), first).await?.context("the watch ended")?;
    drop(replicas);
    cluster.close_class().await?;
    cluster.clear().await?;
    Ok((time, CLAIMS - before))
}

/// The replica that holds the Lease.
async fn holder(replicas: &[(&str, Provisioner)]) -> anyhow::Result<usize> {
    until(Duration::from_secs(60), Duration::from_millis(250), async || {
        for (at, (_, replica)) in replicas.iter().enumerate() {
            if replica.leases().await? == 1 {
                return Ok(Break(at));
            }
        }
        Ok(Continue("nobody has the Lease".to_owned()))
    })
    .await
}

/// The replica that created the volume: the first part of its path.
fn maker(volume: &PersistentVolume) -> Option<&str> {
    let path = &volume.spec.as_ref()?.host_path.as_ref()?.path;
    path.strip_suffix(&volume.name_any())?.trim_matches('/').into()
}
