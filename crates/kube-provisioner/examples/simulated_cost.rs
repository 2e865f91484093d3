//! Measures the cost of a simulated run of the whole controller: two replicas, ten claims that are created and deleted,
//! and faults.
//!
//! `cargo run --profile sim -p kube-provisioner --example simulated_cost [RUNS]`

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use kube_provisioner::{
    CancellationToken, Controller, DeleteError, Environment, Hooks, Options, ProvisionError, ProvisionRequest,
    ProvisionedVolume, Provisioner, Volume,
};
use kube_sim::{Actors, Cluster, DeleteOptions, Faults, Pace, SimClock, Target};
use mimalloc::MiMalloc;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The same allocator as in `cargo xtask sim`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const CLAIMS: usize = 10;
/// Far longer than any run with faults.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
const PROVISIONER: &str = "example.com/cost";

/// A provisioner without work of its own, so that only the cluster and the controllers are measured.
struct Free;

impl Provisioner for Free {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        sleep(Duration::from_millis(20)).await;
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        sleep(Duration::from_millis(20)).await;
        Ok(())
    }
}

impl Hooks for Free {}

/// The sums over several runs.
#[derive(Default)]
struct Sums {
    simulated: Duration,
    events: usize,
    /// The CPU time of each run.
    spent: Vec<Duration>,
}

impl Sums {
    /// Returns the maximum cost of this fraction of the runs.
    fn part(&self, part: f64) -> Duration {
        self.spent.get((self.spent.len() as f64 * part) as usize).copied().unwrap_or_default()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let runs: u64 = std::env::args().nth(1).map_or(Ok(200), |runs| runs.parse())?;
    writeln!(
        out,
        "{:<28} {:>12} {:>12} {:>12} {:>18} {:>10} {:>12}",
        "a run of", "CPU time", "median", "9 in 10", "simulated/real s", "events", "events/s"
    )?;
    for (what, faulty) in [("a quiet cluster", false), ("a storm", true)] {
        let mut sums = Sums::default();
        let mut all = |traced: bool| -> Result<(), Box<dyn Error>> {
            for seed in 0..runs {
                // The simulated time begins again with each run.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
                let before = cpu_time()?;
                runtime.block_on(run(seed, faulty, traced, &mut sums));
                if !traced {
                    sums.spent.push(cpu_time()? - before);
                }
            }
            Ok(())
        };
        // Run everything twice: only the traced run counts events, at a cost, and only the other one is measured.
        all(true)?;
        all(false)?;
        let seconds = sums.spent.iter().sum::<Duration>().as_secs_f64();
        sums.spent.sort();
        writeln!(
            out,
            "{what:<28} {:>9.2} ms {:>9.2} ms {:>9.2} ms {:>18.0} {:>10.0} {:>12.0}",
            seconds * 1e3 / runs as f64,
            sums.part(0.5).as_secs_f64() * 1e3,
            sums.part(0.9).as_secs_f64() * 1e3,
            sums.simulated.as_secs_f64() / seconds,
            sums.events as f64 / runs as f64,
            sums.events as f64 / seconds,
        )?;
    }
    Ok(())
}

async fn run(seed: u64, faulty: bool, traced: bool, sums: &mut Sums) {
    let start = Instant::now();
    let faults = if faulty { Faults::storm(seed) } else { Faults::none(seed) };
    let cluster = Cluster::builder().seed(seed).faults(&faults).hide_managed_fields();
    let cluster = if traced { cluster.trace() } else { cluster }.build();
    let actors = if faulty { Actors::drawn(seed) } else { Actors::all().at(&Pace::USUAL) };
    let _actors = cluster.run(actors);
    for replica in 0..2 {
        let environment = Environment::simulated(seed + replica, SimClock::EPOCH);
        let controller = Controller::new(Free, Options::new(PROVISIONER)).environment(environment);
        let client = cluster.client(&format!("replica-{replica}"));
        tokio::spawn(controller.run_with(client, CancellationToken::new()));
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "class"},
        "provisioner": PROVISIONER,
    });
    cluster.create(&class).expect("a good class");
    for index in 0..CLAIMS {
        cluster.create(&claim(index)).expect("a good claim");
        sleep(Duration::from_millis(100)).await;
    }
    let mut bound = 0;
    let all_bound = |cluster: &Cluster| {
        // A bound claim stays bound.
        while bound < CLAIMS && is_bound(cluster, bound) {
            bound += 1;
        }
        bound == CLAIMS
    };
    cluster.wait(LIMIT, all_bound).await.expect("a volume for every claim");
    let volumes: Vec<String> = (0..CLAIMS).map(|index| volume_of(&cluster, index)).collect();
    for index in 0..CLAIMS {
        let (plural, name) = ("persistentvolumeclaims", format!("claim-{index}"));
        let target = Target { group: "", plural, namespace: "default", name: &name };
        cluster.delete(&target, DeleteOptions::default()).expect("a claim that is there");
    }
    let mut gone = 0;
    let all_gone = |cluster: &Cluster| {
        // A deleted volume stays deleted.
        while gone < CLAIMS && cluster.get_stored("", "persistentvolumes", "", &volumes[gone]).is_none() {
            gone += 1;
        }
        gone == CLAIMS
    };
    cluster.wait(LIMIT, all_gone).await.expect("an end of all volumes");
    assert!(cluster.list_stored("", "persistentvolumes", None).expect("a list").is_empty());
    if traced { sums.events += cluster.trace().lines().count() } else { sums.simulated += start.elapsed() }
}

/// Returns the CPU time of this thread, which other processes do not affect.
fn cpu_time() -> Result<Duration, Box<dyn Error>> {
    Ok(clock_gettime(ClockId::ThreadCPUTime).try_into()?)
}

fn volume_of(cluster: &Cluster, index: usize) -> String {
    let claim = cluster.get_stored("", "persistentvolumeclaims", "default", &format!("claim-{index}"));
    claim.and_then(|claim| Some(claim.parsed()["spec"]["volumeName"].as_str()?.to_owned())).expect("a bound claim")
}

fn is_bound(cluster: &Cluster, index: usize) -> bool {
    let claim = cluster.get_stored("", "persistentvolumeclaims", "default", &format!("claim-{index}"));
    claim.is_some_and(|claim| claim.parsed()["status"]["phase"] == "Bound")
}

fn claim(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{index}"), "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}
