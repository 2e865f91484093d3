//! Claims created at once: each is bound, and each has exactly one event about its volume.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;

use crate::cluster::{Cluster, NAMESPACE};
use crate::process::Provisioner;

pub(crate) async fn run(count: usize, program: Option<PathBuf>) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    cluster.clear().await?;
    let mut provisioner = match program {
        Some(program) => Provisioner::start_program(&cluster, &program, "other-build", &[]).await?,
        None => Provisioner::start(&cluster, &[]).await?,
    };
    provisioner.wait_ready().await?;
    let idle = provisioner.memory("VmRSS")?;
    let start = Instant::now();
    cluster.create_claims(count).await?;
    let created = start.elapsed();
    let claims = cluster.wait_claims(count, "bound", testbed::cluster::is_bound).await?;
    let bound = start.elapsed();
    let uids: Vec<_> = claims.iter().filter_map(|claim| claim.metadata.uid.clone()).collect();
    let told = wait_told(&cluster, &uids, Duration::from_secs(120)).await?;
    let all_told = start.elapsed();
    let once = uids.iter().filter(|uid| told.get(*uid) == Some(&1)).count();
    println!("| measured | figure |\n|---|---|");
    println!("| claims created | {count} in {:.1} s |", created.as_secs_f64());
    println!("| all bound | after {:.1} s ({:.0}/s) |", bound.as_secs_f64(), count as f64 / bound.as_secs_f64());
    println!("| all told | after {:.1} s |", all_told.as_secs_f64());
    println!("| claims with exactly one ProvisioningSucceeded | {once} of {count} |");
    println!("| resident memory idle, peak | {:.1} MB, {:.1} MB |", mb(idle), mb(provisioner.memory("VmHWM")?));
    println!("| processor time | {:.2} s |", provisioner.processor_time()?.as_secs_f64());
    cluster.clear().await?;
    ensure!(once == count, "{} claims were not told exactly once", count - once);
    Ok(())
}

/// Counts the success events of each claim once all claims have one, or the time limit has passed.
pub(crate) async fn wait_told(
    cluster: &Cluster,
    uids: &[String],
    patience: Duration,
) -> anyhow::Result<HashMap<String, i32>> {
    let deadline = Instant::now() + patience;
    loop {
        let told = told(cluster).await?;
        if uids.iter().all(|uid| told.contains_key(uid)) || Instant::now() > deadline {
            return Ok(told);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Counts the success events of each claim so far.
async fn told(cluster: &Cluster) -> anyhow::Result<HashMap<String, i32>> {
    let events: Api<Event> = Api::namespaced(cluster.client(), NAMESPACE);
    let mut told = HashMap::new();
    for event in events.list(&ListParams::default()).await?.items {
        let uid = event.regarding.and_then(|object| object.uid).unwrap_or_default();
        if event.reason.as_deref() == Some("ProvisioningSucceeded") {
            *told.entry(uid).or_insert(0) += event.series.map_or(1, |series| series.count);
        }
    }
    Ok(told)
}

pub(crate) fn mb(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}
