//! The same for buckets: replicas of [`kube_provisioner::BucketController`] on a simulated cluster, with a store in memory.
//!
//! One seed draws what users do, how the API server and the store fail, and when each process dies or stands still: at a
//! request, at its answer, or between two steps of the store. What must always hold is looked at with every step of the
//! store, and in the end.

mod end;
mod store;
mod users;
mod world;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube_provisioner::{BucketController, BucketOptions, CancellationToken, Environment};
use kube_sim::{Actors, Cluster, Fault, Faults, SimClock};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use self::store::Author;
use self::users::Users;
use self::world::{Process, Wires, World};
use crate::judge::{Invariant, Violation};
use crate::panics;
use crate::run::{Manner, Outcome, Trace};

/// The name of the provisioner in all runs.
pub(crate) const PROVISIONER: &str = "example.com/bucket";
/// Where claims are.
pub(crate) const NAMESPACE: &str = "shop";
/// How long after the storm everything may take to come to its end.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Replicas at a time.
const SLOTS: u64 = 2;

/// Runs one seed in a runtime of its own, under a clock that waits for nobody.
pub(crate) fn run(seed: u64, manner: &Manner) -> Outcome {
    let (outcome, panic) = panics::watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime without a driver needs nothing from the system").block_on(perform(seed, manner))
    });
    let nothing = || Outcome { violation: None, simulated: Duration::ZERO, trace: String::new() };
    let mut outcome = outcome.unwrap_or_else(nothing);
    if let Some(panic) = panic {
        let (invariant, at) = (Invariant::Alive, outcome.simulated);
        outcome.violation = Some(Violation { invariant, at, seen: format!("something panicked: {panic}") });
    }
    outcome
}

async fn perform(seed: u64, manner: &Manner) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(seed, random.fork(), manner.trace == Trace::Full);
    let faults = match random.u8(0..3) {
        0 => Faults::none(seed).latency(Duration::ZERO..=Duration::from_millis(20)),
        1 => Faults::storm(seed),
        _ => Faults::storm(seed).with(Fault::Hang, 0.01).with(Fault::HangAfter, 0.01),
    };
    let wires = Arc::new(Wires::new(&world, faults.clone()));
    let mut builder = Cluster::builder().seed(seed).hide_managed_fields().interceptor(wires.clone());
    if manner.trace != Trace::Off {
        builder = builder.trace();
    }
    let cluster = builder.build();
    world.furnish(&cluster);
    let _logs = (manner.trace == Trace::Full).then(|| {
        let cluster = cluster.clone();
        crate::logs::into_trace(move |line| cluster.note(line))
    });
    let actors = cluster.run(Actors::all());
    for definition in kube_provisioner::bucket::objectbucket_api::crds(
        kube_provisioner::bucket::objectbucket_api::Validation::Standard,
    ) {
        let definition = serde_json::to_value(&definition).expect("a definition is JSON");
        cluster.create(&definition).expect("the definitions are valid");
    }
    let mut users = Users::new(&cluster, &world, random.fork());
    let replicas: Vec<_> = (0..SLOTS)
        .map(|slot| {
            tokio::spawn(replica(slot, world.clone(), wires.clone(), cluster.clone(), random.fork(), manner.clone()))
        })
        .collect();
    tokio::select! {
        biased;
        () = world.accused() => {}
        () = users.act() => {
            faults.stop();
            world.calm();
            users.settle();
            tokio::select! {
                biased;
                () = world.accused() => {}
                () = end::come(&cluster, &world, &users, PATIENCE) => {}
            }
        }
    }
    let trace = if manner.trace == Trace::Off { String::new() } else { cluster.trace() };
    let outcome = Outcome { violation: world.verdict(), simulated: world.now(), trace };
    replicas.iter().for_each(|replica| replica.abort());
    drop(actors);
    world.clear();
    outcome
}

/// Lives one life after another in one place.
async fn replica(
    slot: u64,
    world: Arc<World>,
    wires: Arc<Wires>,
    cluster: Cluster,
    mut random: fastrand::Rng,
    manner: Manner,
) {
    for life in 0_u64.. {
        sleep(Duration::from_millis(random.u64(0..3000))).await;
        let name = format!("replica-{slot}-{life}");
        let process = Process::draw(&name, &world, &mut random);
        wires.admit(&process);
        world.note(|| format!("{name} starts"));
        let epoch = SignedDuration::try_from(world.now()).ok().and_then(|now| SimClock::EPOCH.checked_add(now).ok());
        let number = world.seed.wrapping_mul(1 << 16).wrapping_add(life * SLOTS + slot);
        let environment = Environment::simulated(number, epoch.unwrap_or(SimClock::EPOCH));
        let author = Author::new(process.clone(), world.clone());
        let controller = BucketController::new(author, options(world.seed)).environment(environment);
        let controller = match manner.without_bucket {
            Some(safeguard) => controller.without(safeguard),
            None => controller,
        };
        let stop = CancellationToken::new();
        let mut task = tokio::spawn(controller.run_with(cluster.client(&name), stop.clone()));
        let ended = tokio::select! {
            biased;
            () = process.died() => false,
            () = process.stopped() => {
                stop.cancel();
                // It may die on the way.
                tokio::select! {
                    biased;
                    () = process.died() => false,
                    ended = timeout(Duration::from_secs(60), &mut task) => ended.is_ok(),
                }
            }
            ended = &mut task => {
                world.accuse(Invariant::Alive, format!("{name} ended by itself: {ended:?}"));
                true
            }
        };
        if !ended {
            task.abort();
            // It was aborted.
            let _ = task.await;
        }
        wires.dismiss(&name);
        process.end();
        world.note(|| format!("{name} is no more"));
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

/// A text at this pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
