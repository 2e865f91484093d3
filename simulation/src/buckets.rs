//! The bucket simulation: replicas of [`kube_provisioner::BucketController`] on a simulated cluster, with an in-memory
//! store.
//!
//! One seed draws what users do, how the API server and the store fail, and when each process dies or pauses: at a
//! request, at its answer, or between two steps of the store. Invariants are checked at every step of the store, and
//! at the end.

mod backup;
mod complications;
mod disruptions;
mod final_state;
mod garbled;
mod ledger;
mod legacy;
mod site;
mod store;
mod users;
mod world;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use k8s_openapi::jiff::SignedDuration;
use kube_provisioner::{BucketController, BucketOptions, CancellationToken, Environment};
use kube_sim::{Cluster, SimClock};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use self::site::Site;
use self::store::Author;
use self::users::Users;
use self::world::{BucketInterceptor, World, draw_fault};
use crate::judge::Invariant;
use crate::plan::ProcessFault;
use crate::process::{Process, ProcessEnvironment};
use crate::run::{Outcome, RunOptions, Trace, in_runtime};

/// The name of the provisioner in all runs.
pub(crate) const PROVISIONER: &str = "example.com/bucket";
/// The namespace of the claims.
pub(crate) const NAMESPACE: &str = "shop";
/// The annotation of an ObjectBucket with the cluster that it was created in.
pub(crate) const CLUSTER_ID: &str = "kube-provisioner/cluster-id";
/// The annotation of an ObjectBucket with the claim that takes it over.
pub(crate) const ADOPT_FOR: &str = "kube-provisioner/adopt-for";
/// The time limit after the storm for everything to settle.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Number of replicas at a time.
const SLOTS: u64 = 2;

/// Runs one seed.
pub(crate) fn run(seed: u64, run_options: &RunOptions) -> Outcome {
    in_runtime(perform(seed, run_options))
}

async fn perform(seed: u64, run_options: &RunOptions) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(seed, random.fork(), run_options.trace == Trace::Full);
    let weather = random.u8(0..3);
    let sites: Vec<Site> =
        (0..world.complications.clusters()).map(|number| Site::new(number, weather, &world, run_options)).collect();
    let _logs = (run_options.trace == Trace::Full).then(|| {
        let cluster = sites[0].cluster.clone();
        crate::logs::into_trace(move |line| cluster.note(line))
    });
    world.note(|| format!("{:?}", world.complications));
    let mut of_users = random.fork();
    let wishes = users::wishes(world.complications, &mut of_users);
    let mut users: Vec<Users> =
        sites.iter().map(|site| Users::new(site, &world, wishes.clone(), of_users.clone())).collect();
    let mut replicas = Vec::new();
    for site in &sites {
        for slot in 0..SLOTS {
            let life = replica(slot, world.clone(), site.into(), random.fork(), run_options.clone());
            replicas.push(tokio::spawn(life));
        }
    }
    tokio::select! {
        biased;
        () = world.until_violation() => {}
        () = all(users.iter_mut().map(Users::act)) => {
            sites.iter().for_each(|site| site.faults.stop());
            world.calm();
            tokio::select! {
                biased;
                () = world.until_violation() => {}
                () = async {
                    all(users.iter_mut().map(Users::settle)).await;
                    final_state::until_settled(&world, &users, PATIENCE).await;
                } => {}
            }
        }
    }
    let traces = sites.iter().filter(|_| run_options.trace != Trace::Off).map(|site| site.cluster.trace());
    let trace = traces.collect::<Vec<_>>().join("\nthe other cluster:\n");
    let outcome = Outcome { violation: world.verdict(), simulated: world.now(), trace };
    replicas.iter().for_each(|replica| replica.abort());
    drop(sites);
    world.clear();
    outcome
}

/// Waits for all futures.
async fn all<F: Future<Output = ()>>(of: impl Iterator<Item = F>) {
    // The futures complete in the order of waking, so the order is reproducible.
    let _: Vec<()> = of.collect::<FuturesUnordered<F>>().collect().await;
}

/// Runs one process after another in one slot.
async fn replica(slot: u64, world: Arc<World>, home: Home, mut random: fastrand::Rng, run_options: RunOptions) {
    for life in 0_u64.. {
        sleep(Duration::from_millis(random.u64(0..3000))).await;
        let name = match home.number {
            0 => format!("replica-{slot}-{life}"),
            number => format!("replica-{slot}-{life}-of-{number}"),
        };
        let process = Process::new(name.clone(), world.clone(), &[draw_fault(&mut random)], Duration::ZERO);
        home.interceptor.connect_process(&process);
        world.note(|| format!("{name} starts"));
        let epoch = SignedDuration::try_from(world.now()).ok().and_then(|now| SimClock::EPOCH.checked_add(now).ok());
        let number = world.seed.wrapping_mul(1 << 16).wrapping_add(life * SLOTS + slot);
        let environment = Environment::simulated(number, epoch.unwrap_or(SimClock::EPOCH));
        let author = Author::new(process.clone(), home.number, world.clone());
        let controller = BucketController::new(author, options(world.seed)).environment(environment);
        let controller = match run_options.without_bucket {
            Some(safeguard) => controller.without(safeguard),
            None => controller,
        };
        let stop = CancellationToken::new();
        let mut task = tokio::spawn(controller.run_with(home.cluster.client(&name), stop.clone()));
        let ended = tokio::select! {
            biased;
            fault = process.end() => {
                // The process may die before it has stopped.
                if fault == ProcessFault::Stop {
                    stop.cancel();
                }
                tokio::select! {
                    biased;
                    () = process.crash() => false,
                    ended = timeout(Duration::from_secs(60), &mut task) => ended.is_ok(),
                }
            }
            ended = &mut task => {
                world.report_violation(Invariant::Alive, format!("{name} ended by itself: {ended:?}"));
                true
            }
        };
        if !ended {
            task.abort();
            // Ignore the error, because the task was aborted.
            let _ = task.await;
        }
        home.interceptor.disconnect_process(&name);
        process.mark_dead();
        world.note(|| format!("{name} is no more"));
    }
}

/// The cluster of a process, and the connection to it.
struct Home {
    number: usize,
    cluster: Cluster,
    interceptor: Arc<BucketInterceptor>,
}

impl From<&Site> for Home {
    fn from(site: &Site) -> Self {
        let Site { number, cluster, interceptor, .. } = site;
        Self { number: *number, cluster: cluster.clone(), interceptor: interceptor.clone() }
    }
}

fn options(seed: u64) -> BucketOptions {
    let mut options = BucketOptions::new(PROVISIONER);
    let common = &mut options.options;
    common.namespace = Some("default".to_owned());
    common.shards = if seed.is_multiple_of(3) { 2 } else { 1 };
    common.provision_timeout = Duration::from_secs(20);
    common.delete_timeout = Duration::from_secs(20);
    (common.retry_interval_start, common.retry_interval_max) = (Duration::from_millis(200), Duration::from_secs(10));
    common.resync_period = Duration::from_secs(600);
    options
}

/// The string at this pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The content of our annotation of an ObjectBucket.
pub(crate) fn record_of(object: &Value) -> Value {
    let record = object["metadata"]["annotations"]["kube-provisioner/bucket"].as_str();
    record.and_then(|record| serde_json::from_str(record).ok()).unwrap_or_default()
}

/// The uid of the claim that an ObjectBucket's bucket was created for; "" if it is not recorded.
pub(crate) fn claimed_uid(object: &Value) -> String {
    let record = record_of(object);
    let uids = [text(&record, "/madeForUid"), text(&record, "/claim/uid"), text(object, "/spec/claimRef/uid")];
    uids.into_iter().find(|uid| !uid.is_empty()).unwrap_or_default().to_owned()
}

/// The claim that an ObjectBucket represents, as `namespace/name`.
pub(crate) fn claimed_path(object: &Value) -> String {
    let record = record_of(object);
    let of = if text(&record, "/claim/uid").is_empty() { &object["spec"]["claimRef"] } else { &record["claim"] };
    format!("{}/{}", text(of, "/namespace"), text(of, "/name"))
}

/// Encodes a text as Secret data.
pub(crate) fn encoded(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bytes = [chunk[0], chunk.get(1).copied().unwrap_or_default(), chunk.get(2).copied().unwrap_or_default()];
        let number = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        for place in 0..4 {
            let digit = (number >> (18 - 6 * place)) & 63;
            encoded.push(if place <= chunk.len() { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    encoded
}
