//! Claims that are pending when the provisioner starts. A bare client that posts the same volumes in the same
//! situation, with as many connections, shows the upper limit of the control plane's throughput.

use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::figures::Figures;

use crate::burst::{mb, wait_success_events};
use crate::cluster::{CLASS, Cluster, NAMESPACE, PROVISIONER};
use crate::contender::{Contender, Program, Turns};
use crate::measurement::Measurement;
use crate::saved::{Saved, Span};

/// Connections of the bare client.
const CONNECTIONS: usize = 32;
pub(crate) const RATE: &str = "volumes/s";

/// The measured programs, and the reference.
#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    turns: Turns,
    /// Duration of each call of the backend in milliseconds; without the bare client, and with the Go library's
    /// defaults
    #[arg(long, value_name = "MILLIS", default_value_t = 0)]
    delay: u64,
}

impl Settings {
    fn contenders(&self) -> anyhow::Result<Vec<Contender>> {
        let slow = self.delay > 0;
        let ours: &[String] = if slow { &["--delay".to_owned(), self.delay.to_string()] } else { &[] };
        let go: &[String] = if slow { &["-delay".to_owned(), format!("{}ms", self.delay)] } else { &[] };
        let mut all = if slow { Vec::new() } else { vec![Contender::bare()] };
        all.push(Contender::noop("kube-provisioner", ours)?);
        all.push(Contender::go_tuned("Go library, tuned", go));
        if slow {
            all.push(Contender::go_defaults(go));
        }
        Ok(all)
    }
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    let contenders = settings.contenders()?;
    let turn = async |contender: &Contender, figures: &mut Figures| {
        turn(&cluster, settings.turns.claims, contender, &[], figures).await
    };
    let figures = settings.turns.take(&contenders, turn).await?;
    cluster.clear().await?;
    let [ours, bare] = ["kube-provisioner", "bare client"].map(|name| figures.median(name, RATE));
    // A slow backend is measured without the bare client.
    let share = if bare.is_nan() { 1.0 } else { ours / bare };
    Ok(Measurement::from(figures).limit(share >= 0.85, "the provisioner is below 85 % of the bare client"))
}

/// Measures one contender in a round, with its own claims.
pub(crate) async fn turn(
    cluster: &Cluster,
    count: usize,
    contender: &Contender,
    more: &[String],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let claims = waiting_claims(cluster, count).await?;
    match contender.program {
        Program::Bare => bare_client(cluster, &claims, &contender.name, figures).await,
        Program::Ours { .. } | Program::Go { .. } => provisioner(cluster, &claims, contender, more, figures).await,
    }
}

/// Creates the claims of a turn, once the control plane is idle.
async fn waiting_claims(cluster: &Cluster, count: usize) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
    cluster.clear().await?;
    let claims = cluster.create_handed_over_claims(count).await?;
    // With ten thousand claims, the controller-manager never rests, which affects all measurements alike.
    if let Ok(quiet) = tokio::time::timeout(Duration::from_secs(60), cluster.wait_quiet()).await {
        quiet?;
    }
    Ok(claims)
}

async fn bare_client(
    cluster: &Cluster,
    claims: &[PersistentVolumeClaim],
    name: &str,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let saved = Saved::watch(cluster, claims.len()).await?;
    let start = Instant::now();
    // It uses the same account and, like a process that starts, has no connection yet.
    let client = testbed::control_plane::client_from(&cluster.kubeconfig().await?).await?;
    let api: Api<PersistentVolume> = Api::all(client);
    let bodies: Vec<PersistentVolume> = claims.iter().map(volume_for).collect::<Result<_, _>>()?;
    let post = |volume: PersistentVolume| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &volume).await.map(drop) }
    };
    stream::iter(bodies).map(post).buffer_unordered(CONNECTIONS).try_collect::<()>().await?;
    record_span(figures, name, start, &saved.all().await?);
    Ok(())
}

/// Runs a provisioner until all claims have their events, or for a while: some never receive one.
async fn provisioner(
    cluster: &Cluster,
    claims: &[PersistentVolumeClaim],
    contender: &Contender,
    more: &[String],
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let saved = Saved::watch(cluster, claims.len()).await?;
    let provisioner = contender.start(cluster, more).await?;
    let span = saved.all().await?;
    let processor = provisioner.processor_time()?;
    let uids: Vec<String> = claims.iter().filter_map(ResourceExt::uid).collect();
    let told = wait_success_events(cluster, &uids, contender.patience()).await?;
    let told_after = span.last.at.elapsed();
    let name = contender.name.as_str();
    record_span(figures, name, provisioner.started, &span);
    figures.record(name, "processor time, s", processor.as_secs_f64());
    figures.record(name, "peak memory, MB", mb(provisioner.memory("VmHWM")?));
    let told = uids.iter().filter(|uid| told.get(*uid) == Some(&1)).count();
    figures.record(name, "claims with one event", told as f64);
    figures.record(name, "wait for events, s", told_after.as_secs_f64());
    Ok(())
}

fn record_span(figures: &mut Figures, name: &str, start: Instant, span: &Span) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    figures.record(name, RATE, span.rate());
    figures.record(name, "machine's processor time per volume, ms", ms(span.machine()));
    figures.record(name, "first volume after, s", (span.first.at - start).as_secs_f64());
}

/// The volume that our provisioner saves for a claim.
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
