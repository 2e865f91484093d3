//! Claims that wait when the provisioner starts. A bare client that posts the same volumes in the same situation, with
//! as many connections, says what the control plane can do at most.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use kube_provisioner::protocol::STORAGE_PROVISIONER;
use serde_json::json;
use tokio::sync::oneshot;

use crate::burst::{mb, wait_told};
use crate::cluster::{CLASS, Cluster, NAMESPACE, PROVISIONER};
use crate::process::Provisioner;

/// How long claims may wait to be told.
const PATIENCE: Duration = Duration::from_secs(120);
/// The Go library tells some claims never.
const A_WHILE: Duration = Duration::from_secs(20);

enum Contender {
    Bare,
    Ours,
    Go,
}

struct Round {
    rate: f64,
    /// From the start of the process to the first volume.
    first: Duration,
    rest: Option<Rest>,
}

struct Rest {
    told: usize,
    told_after: Duration,
    peak: u64,
    processor: Duration,
}

pub(crate) async fn run(count: usize, rounds: usize, connections: usize, with_go: bool) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let (mut bare, mut ours, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    println!("| | volumes/s | first after | told | all told after the last volume | peak memory | processor time |");
    println!("|---|---|---|---|---|---|---|");
    for _ in 0..rounds {
        let contenders = [
            (Contender::Bare, "bare client", &mut bare),
            (Contender::Ours, "kube-provisioner", &mut ours),
            (Contender::Go, "the Go library", &mut peers),
        ];
        for (contender, name, rates) in contenders.into_iter().take(if with_go { 3 } else { 2 }) {
            cluster.clear().await?;
            cluster.create_claims(count).await?;
            let asks = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(STORAGE_PROVISIONER);
            let claims = cluster.wait_claims(count, "annotated", asks).await?;
            cluster.wait_quiet().await?;
            let round = match contender {
                Contender::Bare => bare_client(&cluster, &claims, connections).await?,
                Contender::Ours => {
                    let workers = ["--workers".to_owned(), connections.to_string()];
                    provisioner(&cluster, &claims, Provisioner::start(&cluster, &workers), PATIENCE).await?
                }
                Contender::Go => {
                    provisioner(&cluster, &claims, Provisioner::start_go(&cluster, connections), A_WHILE).await?
                }
            };
            rates.push(round.rate);
            print!("| {name} | {:.0} | {:.2} s |", round.rate, round.first.as_secs_f64());
            match round.rest {
                None => println!(" | | | |"),
                Some(rest) => println!(
                    " {} of {count} | {:.1} s | {:.1} MB | {:.2} s |",
                    rest.told,
                    rest.told_after.as_secs_f64(),
                    mb(rest.peak),
                    rest.processor.as_secs_f64()
                ),
            }
        }
    }
    cluster.clear().await?;
    let share = median(&mut ours) / median(&mut bare);
    if with_go {
        println!("| median of the Go library | {:.0} | | | | | |", median(&mut peers));
    }
    println!("| medians | {:.0} of {:.0} = {:.0} % | | | | | |", median(&mut ours), median(&mut bare), 100.0 * share);
    ensure!(share >= 0.85, "the provisioner is below 85 % of the bare client");
    Ok(())
}

async fn bare_client(cluster: &Cluster, claims: &[PersistentVolumeClaim], connections: usize) -> anyhow::Result<Round> {
    let saved = Saved::watch(cluster, claims.len()).await?;
    let start = Instant::now();
    // The same account and, as for a process that starts, no connection yet.
    let client = e2e::control_plane::client_from(&cluster.kubeconfig().await?).await?;
    let api: Api<PersistentVolume> = Api::all(client);
    let bodies: Vec<PersistentVolume> = claims.iter().map(volume_for).collect::<Result<_, _>>()?;
    let post = |volume: PersistentVolume| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &volume).await.map(drop) }
    };
    stream::iter(bodies).map(post).buffer_unordered(connections).try_collect::<()>().await?;
    let (first, last) = saved.all().await?;
    Ok(Round { rate: rate(claims.len(), first, last), first: first - start, rest: None })
}

/// A provisioner at its work, until all claims are told of their volumes, or for a while: some are never told.
async fn provisioner(
    cluster: &Cluster,
    claims: &[PersistentVolumeClaim],
    start: impl Future<Output = anyhow::Result<Provisioner>>,
    patience: Duration,
) -> anyhow::Result<Round> {
    let saved = Saved::watch(cluster, claims.len()).await?;
    let begun = Instant::now();
    let provisioner = start.await?;
    let (first, last) = saved.all().await?;
    let peak = provisioner.memory("VmHWM")?;
    let processor = provisioner.processor_time()?;
    let uids: Vec<String> = claims.iter().filter_map(ResourceExt::uid).collect();
    let told = wait_told(cluster, &uids, patience).await?;
    let told_after = last.elapsed();
    let told = uids.iter().filter(|uid| told.get(*uid) == Some(&1)).count();
    let peak = peak.max(provisioner.memory("VmHWM")?);
    Ok(Round {
        rate: rate(claims.len(), first, last),
        first: first - begun,
        rest: Some(Rest { told, told_after, peak, processor }),
    })
}

/// What our provisioner saves for a claim.
fn volume_for(claim: &PersistentVolumeClaim) -> serde_json::Result<PersistentVolume> {
    let name = format!("pvc-{}", claim.uid().unwrap_or_default());
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            "finalizers": [kube_provisioner::protocol::FINALIZER]},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "storageClassName": CLASS, "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": format!("/volumes/{name}"), "type": "Directory"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE,
                "name": claim.name_any(), "uid": claim.uid(), "resourceVersion": claim.resource_version()}},
    }))
}

/// Watches volumes being saved: the same observer for both sides.
pub(crate) struct Saved {
    times: oneshot::Receiver<(Instant, Instant)>,
}

impl Saved {
    pub(crate) async fn watch(cluster: &Cluster, count: usize) -> anyhow::Result<Self> {
        let api: Api<PersistentVolume> = cluster.volumes();
        let mut version = api.list_metadata(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
        let (sender, times) = oneshot::channel();
        tokio::spawn(async move {
            let (mut seen, mut first) = (0, None);
            loop {
                // The server may end a watch at any time; the next one goes on where it ended.
                let Ok(events) = api.watch_metadata(&WatchParams::default().timeout(290), &version).await else {
                    continue;
                };
                let mut events = Box::pin(events);
                while let Some(Ok(event)) = events.next().await {
                    let (added, volume) = match event {
                        WatchEvent::Added(volume) => (true, volume),
                        WatchEvent::Modified(volume) | WatchEvent::Deleted(volume) => (false, volume),
                        _ => continue,
                    };
                    version = volume.resource_version().unwrap_or(version);
                    let now = Instant::now();
                    seen += usize::from(added);
                    if added && seen == 1 {
                        first = Some(now);
                    }
                    if let (true, Some(first)) = (seen == count, first) {
                        // Nobody listens any more if the measurement failed.
                        let _ = sender.send((first, now));
                        return;
                    }
                }
            }
        });
        Ok(Self { times })
    }

    /// When the first and the last one was saved.
    pub(crate) async fn all(self) -> anyhow::Result<(Instant, Instant)> {
        Ok(tokio::time::timeout(Duration::from_secs(280), self.times).await??)
    }
}

pub(crate) fn rate(count: usize, first: Instant, last: Instant) -> f64 {
    (count - 1) as f64 / (last - first).as_secs_f64()
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
