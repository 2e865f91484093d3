//! Claims created at once until each is bound and has its event, and then deleted at once until no volume is left.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use clap::Args;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use testbed::figures::Figures;

use crate::cluster::{Cluster, NAMESPACE};
use crate::contender::{Contender, Turns};
use crate::measurement::Measurement;

#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    turns: Turns,
    /// Also measure the Go library with its defaults, which takes about half a second per claim
    #[arg(long)]
    defaults: bool,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let mut contenders = vec![Contender::noop("kube-provisioner", &[])?, Contender::go_tuned("Go library, tuned", &[])];
    if settings.defaults {
        contenders.push(Contender::go_defaults(&[]));
    }
    let count = settings.turns.claims;
    let turn = async |contender: &Contender, figures: &mut Figures| turn(&cluster, count, contender, figures).await;
    let figures = settings.turns.take(&contenders, turn).await?;
    let once = figures.summary("kube-provisioner", ONE_EVENT).is_some_and(|summary| summary.least == count as f64);
    Ok(Measurement::from(figures).limit(once, "some claim of kube-provisioner has not exactly one event"))
}

const ONE_EVENT: &str = "claims with one event";

async fn turn(cluster: &Cluster, count: usize, contender: &Contender, figures: &mut Figures) -> anyhow::Result<()> {
    cluster.clear().await?;
    let mut provisioner = contender.start(cluster, &[]).await?;
    contender.wait_ready(&mut provisioner).await?;
    let idle = provisioner.memory("VmRSS")?;
    let start = Instant::now();
    cluster.create_claims(count).await?;
    let claims = cluster.wait_claims(count, "bound", testbed::cluster::is_bound).await?;
    let bound = start.elapsed();
    let uids: Vec<_> = claims.iter().filter_map(|claim| claim.metadata.uid.clone()).collect();
    let told = wait_success_events(cluster, &uids, contender.patience()).await?;
    let once = uids.iter().filter(|uid| told.get(*uid) == Some(&1)).count();
    let start = Instant::now();
    cluster.delete_claims(count).await?;
    cluster.wait_no_volumes().await?;
    let deleted = start.elapsed();
    let name = contender.name.as_str();
    figures.record(name, "all bound, s", bound.as_secs_f64());
    figures.record(name, ONE_EVENT, once as f64);
    figures.record(name, "all deleted, s", deleted.as_secs_f64());
    figures.record(name, "idle memory, MB", mb(idle));
    figures.record(name, "peak memory, MB", mb(provisioner.memory("VmHWM")?));
    figures.record(name, "processor time, s", provisioner.processor_time()?.as_secs_f64());
    Ok(())
}

/// Counts the success events of each claim once all claims have one, or the time limit has passed.
pub(crate) async fn wait_success_events(
    cluster: &Cluster,
    uids: &[String],
    patience: Duration,
) -> anyhow::Result<HashMap<String, i32>> {
    let deadline = Instant::now() + patience;
    loop {
        let told = success_events(cluster).await?;
        if uids.iter().all(|uid| told.contains_key(uid)) || Instant::now() > deadline {
            return Ok(told);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Counts the success events of each claim so far.
async fn success_events(cluster: &Cluster) -> anyhow::Result<HashMap<String, i32>> {
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
