//! Claims that are pending when the provisioner starts. A bare client that posts the same volumes in the same
//! situation, with as many connections, shows the upper limit of the control plane's throughput.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use kube_provisioner::protocol::STORAGE_PROVISIONER;
use serde_json::json;

use crate::burst::{mb, wait_told};
use crate::cluster::{CLASS, Cluster, NAMESPACE, PROVISIONER};
use crate::process::Provisioner;
use crate::saved::Saved;

/// Time limit for the events of claims.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The Go library never emits events on some claims.
pub(crate) const A_WHILE: Duration = Duration::from_secs(20);

/// The Go library is fastest with this number of threads.
pub(crate) const GO_THREADS: usize = 100;

/// Amount of work to measure.
#[derive(Args)]
pub(crate) struct Turns {
    #[arg(long, default_value_t = 3000)]
    pub(crate) claims: usize,
    /// Number of rounds for each, alternately in forward and reverse order; the table lists all rounds and the medians
    #[arg(long, default_value_t = 4)]
    rounds: usize,
}

/// The measured programs, and the reference.
#[derive(Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    turns: Turns,
    /// Number of connections of the bare client
    #[arg(long, default_value_t = 32)]
    connections: usize,
    /// Also measure the provisioner with this number of workers; can be repeated
    #[arg(long, value_name = "COUNT")]
    workers: Vec<usize>,
    /// Also measure another build of `noop-provisioner`
    #[arg(long, value_name = "PROGRAM")]
    beside: Option<PathBuf>,
    /// Skip the Go library
    #[arg(long)]
    without_go: bool,
}

enum Contender {
    Bare {
        connections: usize,
    },
    /// With its default settings, or with this number of workers.
    Ours {
        workers: Option<usize>,
    },
    OtherBuild(PathBuf),
    Go,
}

impl Contender {
    fn all(settings: &Settings) -> Vec<Self> {
        let mut all = vec![Self::Bare { connections: settings.connections }, Self::Ours { workers: None }];
        all.extend(settings.workers.iter().map(|workers| Self::Ours { workers: Some(*workers) }));
        all.extend(settings.beside.iter().cloned().map(Self::OtherBuild));
        if !settings.without_go {
            all.push(Self::Go);
        }
        all
    }

    fn name(&self) -> String {
        match self {
            Self::Bare { connections } => format!("bare client, {connections} connections"),
            Self::Ours { workers: None } => "kube-provisioner".to_owned(),
            Self::Ours { workers: Some(workers) } => format!("kube-provisioner, {workers} workers"),
            Self::OtherBuild(_) => "the other build".to_owned(),
            Self::Go => format!("the Go library, {GO_THREADS} threads"),
        }
    }
}

pub(crate) struct Round {
    rate: f64,
    /// CPU time of the whole machine per volume.
    machine: Duration,
    /// Time from the start of the process to the first volume.
    first: Duration,
    rest: Option<Rest>,
}

impl Round {
    /// The header of a table of rounds.
    fn print_header() {
        println!(
            "| | volumes/s | processors, per volume | first after | told | all told after the last volume | peak memory | \
             processor time |"
        );
        println!("|---|---|---|---|---|---|---|---|");
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    fn machine_ms(&self) -> f64 {
        self.machine.as_secs_f64() * 1e3
    }

    fn print(&self, name: &str, count: usize) {
        let (rate, machine, first) = (self.rate, self.machine_ms(), self.first.as_secs_f64());
        print!("| {name} | {rate:.0} | {machine:.2} ms | {first:.2} s |");
        match &self.rest {
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

struct Rest {
    told: usize,
    told_after: Duration,
    peak: u64,
    processor: Duration,
}

pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let cluster = Cluster::connect().await?;
    let contenders = Contender::all(&settings);
    let count = settings.turns.claims;
    let results = settings
        .turns
        .take(&cluster, &contenders, Contender::name, async |each| turn(&cluster, count, each).await)
        .await?;
    let share = median_of(&results[1], Round::rate) / median_of(&results[0], Round::rate);
    let work = median_of(&results[0], Round::machine_ms) / median_of(&results[1], Round::machine_ms);
    println!("| share of the bare client | {:.0} % | {:.0} % | | | | | |", 100.0 * share, 100.0 * work);
    ensure!(share >= 0.85, "the provisioner is below 85 % of the bare client");
    Ok(())
}

impl Turns {
    /// Measures each contender once per round, and prints all rounds and their medians.
    pub(crate) async fn take<C>(
        &self,
        cluster: &Cluster,
        contenders: &[C],
        name: impl Fn(&C) -> String,
        mut turn: impl AsyncFnMut(&C) -> anyhow::Result<Round>,
    ) -> anyhow::Result<Vec<Vec<Round>>> {
        let mut results: Vec<Vec<Round>> = contenders.iter().map(|_| Vec::new()).collect();
        Round::print_header();
        // A new control plane processes the first turn faster than all later ones.
        turn(&contenders[0]).await?;
        for round in 0..self.rounds {
            let mut turns: Vec<_> = contenders.iter().zip(&mut results).collect();
            // The control plane becomes slower as it ages: the first contender in one round is the last in the next.
            if round % 2 == 1 {
                turns.reverse();
            }
            for (contender, results) in turns {
                let result = turn(contender).await?;
                result.print(&name(contender), self.claims);
                results.push(result);
            }
        }
        cluster.clear().await?;
        for (contender, results) in contenders.iter().zip(&results) {
            print_medians(&name(contender), results);
        }
        Ok(results)
    }
}

/// The medians of one contender's rounds.
fn print_medians(name: &str, results: &[Round]) {
    let (rate, machine) = (median_of(results, Round::rate), median_of(results, Round::machine_ms));
    print!("| {name}, medians | {rate:.0} | {machine:.2} ms | | | |");
    let of_process = |of: fn(&Rest) -> f64| median_of(results, |round| round.rest.as_ref().map_or(f64::NAN, of));
    if results.first().is_some_and(|round| round.rest.is_some()) {
        println!(
            " {:.1} MB | {:.2} s |",
            of_process(|rest| mb(rest.peak)),
            of_process(|rest| rest.processor.as_secs_f64())
        );
    } else {
        println!(" | |");
    }
}

/// Creates the claims of a turn, once the control plane is idle.
pub(crate) async fn waiting_claims(cluster: &Cluster, count: usize) -> anyhow::Result<Vec<PersistentVolumeClaim>> {
    cluster.clear().await?;
    cluster.create_claims(count).await?;
    let asks = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(STORAGE_PROVISIONER);
    let claims = cluster.wait_claims(count, "annotated", asks).await?;
    cluster.wait_quiet().await?;
    Ok(claims)
}

/// Measures one contender in a round, with its own claims.
async fn turn(cluster: &Cluster, count: usize, contender: &Contender) -> anyhow::Result<Round> {
    let claims = waiting_claims(cluster, count).await?;
    match contender {
        Contender::Bare { connections } => bare_client(cluster, &claims, *connections).await,
        Contender::Ours { workers } => {
            let workers: Vec<String> =
                workers.map(|workers| format!("--api-concurrency={workers}")).into_iter().collect();
            provisioner(cluster, &claims, Provisioner::start(cluster, &workers), PATIENCE).await
        }
        Contender::OtherBuild(program) => {
            let start = async { Provisioner::start_program(cluster, program, "other-build", &[]).await };
            provisioner(cluster, &claims, start, PATIENCE).await
        }
        Contender::Go => provisioner(cluster, &claims, Provisioner::start_go(cluster, GO_THREADS, None), A_WHILE).await,
    }
}

async fn bare_client(cluster: &Cluster, claims: &[PersistentVolumeClaim], connections: usize) -> anyhow::Result<Round> {
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
    stream::iter(bodies).map(post).buffer_unordered(connections).try_collect::<()>().await?;
    let span = saved.all().await?;
    Ok(Round { rate: span.rate(), machine: span.machine(), first: span.first.at - start, rest: None })
}

/// Runs a provisioner until all claims have their events, or for a while: some never receive one.
pub(crate) async fn provisioner(
    cluster: &Cluster,
    claims: &[PersistentVolumeClaim],
    start: impl Future<Output = anyhow::Result<Provisioner>>,
    patience: Duration,
) -> anyhow::Result<Round> {
    let saved = Saved::watch(cluster, claims.len()).await?;
    let begun = Instant::now();
    let provisioner = start.await?;
    let span = saved.all().await?;
    let peak = provisioner.memory("VmHWM")?;
    let processor = provisioner.processor_time()?;
    let uids: Vec<String> = claims.iter().filter_map(ResourceExt::uid).collect();
    let told = wait_told(cluster, &uids, patience).await?;
    let told_after = span.last.at.elapsed();
    let told = uids.iter().filter(|uid| told.get(*uid) == Some(&1)).count();
    let peak = peak.max(provisioner.memory("VmHWM")?);
    Ok(Round {
        rate: span.rate(),
        machine: span.machine(),
        first: span.first.at - begun,
        rest: Some(Rest { told, told_after, peak, processor }),
    })
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

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[upper - 1] + values[upper]) / 2.0 } else { values[upper] }
}

pub(crate) fn median_of(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    median(&mut rounds.iter().map(of).collect::<Vec<_>>())
}
