//! Claims with a selected node, with a topology-aware driver and another one; and memory in a cluster with many large
//! nodes.

use std::collections::BTreeMap;
use std::ops::ControlFlow::{Break, Continue};
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeStatus, PersistentVolume};
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use testbed::cluster::Program;
use testbed::figures::Figures;
use testbed::process::memory;
use tokio::time::sleep;

use super::driver::Pace;
use super::peer::{Peer, Programs};
use super::stage::Stage;
use super::zones::ZONES;
use crate::burst::mb;
use crate::contender::in_turns;
use crate::measurement::Measurement;
use crate::wait::until;

/// Concurrent requests while objects are created.
const AT_ONCE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(1800);
const IDLE: Duration = Duration::from_secs(20);
/// Label of the nodes that the measurement creates.
const LABEL: &str = "bench.example.com/node";
const PEAK: &str = "peak memory, MB";

#[derive(Args, Clone)]
pub(crate) struct Settings {
    /// Number of pending claims when the sidecar starts
    #[arg(long, default_value_t = 3000)]
    claims: usize,
    /// Number of nodes selected for the claims
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Number of rounds for each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure memory in a cluster with this number of nodes of 15 kB instead
    #[arg(long, default_value_t = 0)]
    memory: usize,
}

/// A driver and flags.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Without,
    Strict,
    NotStrict,
    Capacity,
}

impl Variant {
    const OF_RATES: [Self; 3] = [Self::Without, Self::Strict, Self::NotStrict];
    const OF_MEMORY: [Self; 4] = [Self::Without, Self::Strict, Self::NotStrict, Self::Capacity];

    fn title(self) -> &'static str {
        match self {
            Self::Without => "csi-provisioner, without topology",
            Self::Strict => "csi-provisioner, with topology, strict",
            Self::NotStrict => "csi-provisioner, with topology, not strict",
            Self::Capacity => "csi-provisioner, with topology and capacity",
        }
    }

    async fn stage(self, programs: &Programs) -> anyhow::Result<Stage> {
        let zones: &[&str] = if self == Self::Without { &[] } else { &ZONES };
        Stage::set_in_zones(programs, "topology", Pace::AT_ONCE, 1, zones).await
    }

    fn start(self, stage: &Stage) -> anyhow::Result<Program> {
        let flags: &[&str] = match self {
            Self::Without | Self::NotStrict => &["--strict-topology=false"],
            Self::Strict => &["--strict-topology"],
            Self::Capacity => &["--strict-topology=false", "--enable-capacity", "--capacity-ownerref-level=-1"],
        };
        stage.start(Peer::Ours, "sidecar", flags)
    }
}

pub(super) async fn run(settings: Settings) -> anyhow::Result<Measurement> {
    let programs = Programs::find().await?;
    let mut figures = Figures::default();
    if settings.memory > 0 {
        for nodes in [0, settings.memory] {
            for round in 0..settings.rounds {
                for which in in_turns(round, &Variant::OF_MEMORY) {
                    memory_of(*which, &programs, nodes, &mut figures).await?;
                }
            }
        }
        return Ok(figures.into());
    }
    for round in 0..settings.rounds {
        for which in in_turns(round, &Variant::OF_RATES) {
            let (rate, peak) = rate(*which, &programs, &settings).await?;
            let name = which.title();
            eprintln!("{name}: {rate:.0} volumes/s");
            figures.record(name, "volumes/s from the start", rate);
            figures.record(name, PEAK, peak);
        }
    }
    Ok(figures.into())
}

/// Volumes per second, and the peak memory in MB.
async fn rate(which: Variant, programs: &Programs, settings: &Settings) -> anyhow::Result<(f64, f64)> {
    let stage = &which.stage(programs).await?;
    create_nodes(stage, settings.nodes, |_| Node::default()).await?;
    let create = |at: usize| async move {
        let node = name(stage, at % settings.nodes);
        stage.create_delayed_claim(&format!("claim-{at}"), &node).await.map(drop)
    };
    stream::iter(0..settings.claims).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    let sidecar = which.start(stage)?;
    until(PATIENCE, Duration::from_millis(50), async || {
        let saved = volumes(stage).await?;
        Ok(if saved >= settings.claims { Break(()) } else { Continue(format!("only {saved} volumes are saved")) })
    })
    .await?;
    let took = begun.elapsed().as_secs_f64();
    let peak = mb(memory(sidecar.id().pid, "VmHWM")?);
    drop(sidecar);
    stage.forget_all().await?;
    delete_nodes(stage).await?;
    Ok((settings.claims as f64 / took, peak))
}

/// Records the memory of a sidecar that starts in a cluster with this number of nodes, which carry its driver.
async fn memory_of(which: Variant, programs: &Programs, nodes: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let stage = &which.stage(programs).await?;
    create_nodes(stage, nodes, large).await?;
    let sidecar = which.start(stage)?;
    sleep(IDLE).await;
    let pid = sidecar.id().pid;
    let name = format!("{}, {nodes} nodes", which.title());
    eprintln!("{name}");
    figures.record(&name, "memory after 20 s, MB", mb(memory(pid, "VmRSS")?));
    figures.record(&name, PEAK, mb(memory(pid, "VmHWM")?));
    drop(sidecar);
    delete_nodes(stage).await
}

/// The number of volumes of all provisioners.
async fn volumes(stage: &Stage) -> anyhow::Result<usize> {
    let api = Api::<PersistentVolume>::all(stage.client.clone());
    let page = api.list_metadata(&ListParams::default().limit(1)).await?;
    let rest = page.metadata.remaining_item_count.unwrap_or_default();
    Ok(page.items.len() + usize::try_from(rest)?)
}

fn name(stage: &Stage, number: usize) -> String {
    format!("{}-{number}", stage.name)
}

async fn create_nodes(stage: &Stage, count: usize, node: impl Fn(usize) -> Node) -> anyhow::Result<()> {
    let create = |number: usize| {
        let mut node = node(number);
        node.metadata.name = Some(name(stage, number));
        node.metadata.labels.get_or_insert_default().insert(LABEL.to_owned(), "yes".to_owned());
        async move { stage.create_node_from(node, ZONES[number % ZONES.len()]).await }
    };
    stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

async fn delete_nodes(stage: &Stage) -> anyhow::Result<()> {
    let (delete, ours) = (DeleteParams::default(), ListParams::default().labels(LABEL));
    Api::<Node>::all(stage.client.clone()).delete_collection(&delete, &ours).await?;
    Api::<CSINode>::all(stage.client.clone()).delete_collection(&delete, &ours).await?;
    Ok(())
}

/// A node of about 15 kB, as in cloud clusters: 4 kB are labels and annotations, and most of the rest names images.
fn large(number: usize) -> Node {
    let texts = |kind: &str, count: usize, length: usize| -> BTreeMap<String, String> {
        let text = |at: usize| (format!("{kind}.example.com/number-{at}"), format!("{number:0length$}"));
        (0..count).map(text).collect()
    };
    let image = |at: usize| ContainerImage {
        names: Some(vec![
            format!("registry.example.com/some/repository/image-{at}@sha256:{number:064}"),
            format!("registry.example.com/some/repository/image-{at}:v1.2.{number}"),
        ]),
        size_bytes: Some(123_456_789),
    };
    Node {
        metadata: ObjectMeta {
            labels: Some(texts("label", 25, 20)),
            annotations: Some(texts("annotation", 10, 150)),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus { images: Some((0..45).map(image).collect()), ..NodeStatus::default() }),
        ..Node::default()
    }
}
