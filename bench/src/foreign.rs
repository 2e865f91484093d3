//! Cost of many existing claims and volumes, our own or another provisioner's: memory, startup time, and writes while
//! nothing changes.

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::control_plane::Signal;
use testbed::figures::Figures;
use testbed::process::ProcessId;

use crate::burst::mb;
use crate::cluster::{CLASS, Cluster, NAMESPACE, PROVISIONER, at_once};
use crate::contender::{Contender, in_turns};
use crate::etcd::{self, Etcd};
use crate::measurement::Measurement;
use crate::metrics::Page;
use crate::saved::{Saved, wait_idle};

/// Size of a second manager's fields, which every object in a real cluster has.
const PADDING: usize = 600;
/// Time in which a process returns the memory of its start.
const SETTLE: Duration = Duration::from_secs(10);
/// With default settings, an hour has four resyncs.
const RESYNC: Duration = Duration::from_secs(30);
const RESYNCS: u32 = 4;
const WRITES: &str = "writes to claims and volumes in four idle resyncs";

#[derive(Args)]
pub(crate) struct Settings {
    /// Numbers of claims, each with its volume, in ascending order
    #[arg(long, value_delimiter = ',', default_values_t = [0, 50_000])]
    pairs: Vec<usize>,
    /// The volumes belong to the same provisioner, on a thousand nodes
    #[arg(long)]
    own: bool,
    /// Number of rounds for each program and number
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let cluster = Cluster::connect().await?;
    cluster.clear().await?;
    let contenders = [Contender::noop("kube-provisioner", &[])?, Contender::go_tuned("Go library, tuned", &[])];
    // A new control plane processes its first requests faster than all later ones.
    started(&cluster, &contenders[0], "", &mut Figures::default()).await?;
    let (mut figures, mut existing) = (Figures::default(), Pairs::new(settings.own));
    for pairs in settings.pairs {
        existing.grow(&cluster, pairs).await?;
        eprintln!("{pairs} claims with a volume exist");
        for round in 0..settings.rounds {
            for contender in in_turns(round, &contenders) {
                let name = format!("{}, {pairs} pairs", contender.name);
                started(&cluster, contender, &name, &mut figures).await?;
            }
        }
        if settings.own && pairs > 0 {
            let name = format!("{}, {pairs} pairs", contenders[0].name);
            figures.record(&name, WRITES, idle_writes(&cluster, &contenders[0]).await?);
        }
    }
    let written = figures.rows.iter().filter_map(|row| row.summary(WRITES)).any(|writes| writes.most > 0.0);
    Ok(Measurement::from(figures).limit(!written, "something is written although nothing changes"))
}

/// Starts a provisioner while one claim is pending.
async fn started(cluster: &Cluster, contender: &Contender, name: &str, figures: &mut Figures) -> anyhow::Result<()> {
    let claim = cluster.create_annotated_claim("waiting").await?;
    cluster.wait_quiet().await?;
    let saved = Saved::watch(cluster, 1).await?;
    let provisioner = contender.start(cluster, &[]).await?;
    let span = saved.all().await?;
    figures.record(name, "first volume after, s", (span.first.at - provisioner.started).as_secs_f64());
    tokio::time::sleep(SETTLE).await;
    figures.record(name, "memory after 10 s, MB", mb(provisioner.memory("VmRSS")?));
    figures.record(name, "peak memory, MB", mb(provisioner.memory("VmHWM")?));
    figures.record(name, "processor time, s", provisioner.processor_time()?.as_secs_f64());
    drop(provisioner);
    cluster.forget(&claim).await
}

/// Counts all clients' writes to claims and volumes during several resyncs of an idle provisioner.
async fn idle_writes(cluster: &Cluster, contender: &Contender) -> anyhow::Result<f64> {
    let resync = ["--resync-period".to_owned(), format!("{}s", RESYNC.as_secs())];
    let mut provisioner = contender.start(cluster, &resync).await?;
    contender.wait_ready(&mut provisioner).await?;
    tokio::time::sleep(SETTLE).await;
    let before = writes(cluster).await?;
    tokio::time::sleep(RESYNC * RESYNCS + RESYNC / 2).await;
    Ok(writes(cluster).await? - before)
}

async fn writes(cluster: &Cluster) -> anyhow::Result<f64> {
    let page = Page::read(&cluster.client()).await?;
    let of = |resource: &str, verb: &str| {
        let labels = [format!("resource=\"{resource}\""), format!("verb=\"{verb}\"")];
        page.sum("apiserver_request_total", &[&labels[0], &labels[1]])
    };
    let verbs = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
    let resources = ["persistentvolumes", "persistentvolumeclaims"];
    Ok(resources.iter().flat_map(|resource| verbs.map(|verb| of(resource, verb))).sum())
}

/// Bound claims with their volumes, of this or of another provisioner. While they exist, the controller-manager is
/// paused: it would process them for minutes, and slow down the measured program.
pub(crate) struct Pairs {
    own: bool,
    count: usize,
    first: Option<First>,
}

/// The pair that is copied.
struct First {
    etcd: Etcd,
    uids: [String; 2],
    /// The claim and the volume as etcd stores them.
    objects: [Vec<u8>; 2],
    _paused: Paused,
}

/// A process that continues when this is dropped.
struct Paused(ProcessId);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

impl Pairs {
    pub(crate) fn new(own: bool) -> Self {
        Self { own, count: 0, first: None }
    }

    /// Creates more pairs, up to this number, and waits until the control plane is idle.
    pub(crate) async fn grow(&mut self, cluster: &Cluster, count: usize) -> anyhow::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let first = match &mut self.first {
            Some(first) => first,
            none => none.insert(First::create(cluster, self.own).await?),
        };
        at_once(self.count.max(1)..count, async |number| first.copy(number).await).await?;
        self.count = count;
        cluster.wait_quiet().await?;
        wait_idle().await
    }
}

impl First {
    async fn create(cluster: &Cluster, own: bool) -> anyhow::Result<Self> {
        let uids = create_pair(cluster, 0, own).await?;
        // The controller-manager adds the condition that no pod uses the claim.
        cluster.wait_quiet().await?;
        let manager = "kube-controller-manager";
        let paused = Paused(cluster.state().running(manager).with_context(|| format!("{manager} does not run"))?);
        ensure!(paused.0.signal(Signal::STOP), "{manager} has ended");
        let etcd = Etcd::of(cluster.state())?;
        let [claim, volume] = keys(0);
        let objects = [etcd.read(&claim).await?, etcd.read(&volume).await?];
        Ok(Self { etcd, uids, objects, _paused: paused })
    }

    async fn copy(&self, number: usize) -> anyhow::Result<()> {
        let of_copy = self.uids.each_ref().map(|uid| format!("{number:08x}{}", &uid[8..]));
        let (names, nodes) = ([0, number].map(name), [0, number].map(node));
        let [claim, volume] = &self.uids;
        let texts = [(&*names[0], &*names[1]), (&nodes[0], &nodes[1]), (claim, &of_copy[0]), (volume, &of_copy[1])];
        for (key, object) in keys(number).iter().zip(&self.objects) {
            let mut object = object.clone();
            etcd::replace(&mut object, &texts);
            self.etcd.write(key, &object).await?;
        }
        Ok(())
    }
}

/// Creates a claim and its volume as the controller-manager leaves them, and returns their uids.
async fn create_pair(cluster: &Cluster, number: usize, own: bool) -> anyhow::Result<[String; 2]> {
    let parameters = PostParams::default();
    let created = cluster.claims().create(&parameters, &serde_json::from_value(claim(number, own))?).await?;
    let volume: PersistentVolume = serde_json::from_value(volume(number, &created, own))?;
    let volume = cluster.volumes().create(&parameters, &volume).await?;
    let parameters = PatchParams::default();
    let bound = json!({"status": {"phase": "Bound"}});
    cluster.volumes().patch_status(&volume.name_any(), &parameters, &Patch::Merge(bound)).await?;
    let bound = json!({"status": {
        "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    cluster.claims().patch_status(&created.name_any(), &parameters, &Patch::Merge(bound)).await?;
    Ok([created.uid(), volume.uid()].map(Option::unwrap_or_default))
}

/// The keys of a claim and its volume in etcd.
fn keys(number: usize) -> [String; 2] {
    [format!("persistentvolumeclaims/{NAMESPACE}"), "persistentvolumes".to_owned()]
        .map(|kind| format!("/registry/{kind}/{}", name(number)))
}

fn name(number: usize) -> String {
    format!("pair-{number:06}")
}

fn node(number: usize) -> String {
    format!("node-{:03}", number % 1000)
}

fn claim(number: usize, own: bool) -> Value {
    let (class, provisioner) = if own { (CLASS, PROVISIONER) } else { ("foreign", "csi.example.com") };
    let name = name(number);
    json!({
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {
            "volume.kubernetes.io/storage-provisioner": provisioner,
            "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
            "example.com/padding": "x".repeat(PADDING)}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}}},
    })
}

fn volume(number: usize, claim: &PersistentVolumeClaim, own: bool) -> Value {
    let name = name(number);
    let (class, provisioner) = if own { (CLASS, PROVISIONER) } else { ("foreign", "csi.example.com") };
    let mut volume = json!({
        "metadata": {"name": name, "annotations": {
            "pv.kubernetes.io/provisioned-by": provisioner, "example.com/padding": "x".repeat(PADDING)}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": if own { "Delete" } else { "Retain" },
            "claimRef": {"namespace": NAMESPACE, "name": name, "uid": claim.metadata.uid}},
    });
    if own {
        volume["metadata"]["finalizers"] = json!([kube_provisioner::protocol::FINALIZER]);
        volume["spec"]["hostPath"] = json!({"path": format!("/volumes/{name}")});
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node(number)]}]}]}});
    } else {
        volume["spec"]["csi"] = json!({"driver": "csi.example.com", "volumeHandle": name});
    }
    volume
}
