//! The same seed results in the same run, including every request of every controller.

use std::time::Duration;

use kube_sim::{Actors, Cluster, Faults};
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script};
use crate::toy::{Flaw, Toy, ToyBackend};

/// Two replicas with random faults; one replica is killed during the run.
async fn trace(seed: u64) -> String {
    let faults = Faults::storm(seed);
    let cluster = Cluster::builder().seed(seed).faults(&faults).trace().build();
    let fixture = Fixture::with_actors(cluster, Actors::random(seed), Script::default());
    let backend = ToyBackend::default();
    let start = |replica: u64| fixture.start_author(seed + replica, Toy::new(backend.clone(), Flaw::Nothing));
    let (first, second) = (start(1), start(2));
    for index in 0..10 {
        fixture.claim(&format!("claim-{index}"), "class");
        sleep(Duration::from_millis(700)).await;
        if index == 6 {
            first.abort();
        }
        if index % 3 == 2 {
            fixture.delete(CLAIMS, &format!("claim-{}", index - 1));
        }
    }
    let third = start(3);
    sleep(Duration::from_secs(120)).await;
    faults.stop();
    sleep(Duration::from_secs(1200)).await;
    second.abort();
    third.abort();
    format!("{}{}", fixture.cluster.trace(), fixture.cluster.dump())
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..6 {
        let (one, two) = (run(seed), run(seed));
        let difference = one.lines().zip(two.lines()).enumerate().find(|(_, (one, two))| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(one.len(), two.len(), "seed {seed}");
        let succeeded = |replica: u64| one.contains(&format!("ours-{} create persistentvolumes", seed + replica));
        assert!(succeeded(2) || succeeded(3), "seed {seed}: no replica continued");
    }
    assert_ne!(run(0), run(1));
}

/// Runs in a separate runtime, since a runtime has its own randomness.
fn run(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(trace(seed))
}
