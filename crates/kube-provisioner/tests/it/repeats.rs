//! The same seed results in the same run, including every request of every controller.

use std::time::Duration;

use kube_provisioner::{CancellationToken, Controller, Environment, Options};
use kube_sim::{Actors, Cluster, DeleteOptions, Faults, SimClock, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::toy::{Flaw, Shelf, Toy};

const PROVISIONER: &str = "example.com/toy";

/// Two replicas with random faults; one replica is killed during the run.
async fn trace(seed: u64) -> String {
    let faults = Faults::storm(seed);
    let cluster = Cluster::builder().seed(seed).faults(&faults).trace().build();
    let _actors = cluster.run(Actors::drawn(seed));
    let shelf = Shelf::default();
    let start = |replica: u64| {
        let environment = Environment::simulated(seed + replica, SimClock::EPOCH);
        let controller = Controller::new(Toy::new(shelf.clone(), Flaw::Nothing), Options::new(PROVISIONER));
        let client = cluster.client(&format!("replica-{replica}"));
        tokio::spawn(controller.environment(environment).run_with(client, CancellationToken::new()))
    };
    cluster.create(&class()).unwrap();
    let (first, second) = (start(1), start(2));
    for index in 0..10 {
        cluster.create(&claim(index)).unwrap();
        sleep(Duration::from_millis(700)).await;
        if index == 6 {
            first.abort();
        }
        if index % 3 == 2 {
            let (plural, name) = ("persistentvolumeclaims", format!("claim-{}", index - 1));
            let target = Target { group: "", plural, namespace: "default", name: &name };
            cluster.delete(&target, DeleteOptions::default()).unwrap();
        }
    }
    let third = start(3);
    sleep(Duration::from_secs(120)).await;
    faults.stop();
    sleep(Duration::from_secs(1200)).await;
    second.abort();
    third.abort();
    format!("{}{}", cluster.trace(), cluster.dump())
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..6 {
        let (one, two) = (run(seed), run(seed));
        let difference = one.lines().zip(two.lines()).enumerate().find(|(_, (one, two))| one != two);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(one.len(), two.len(), "seed {seed}");
        let succeeded = |replica: u32| one.contains(&format!("replica-{replica} create persistentvolumes"));
        assert!(succeeded(2) || succeeded(3), "seed {seed}: nobody went on");
    }
    assert_ne!(run(0), run(1));
}

/// Runs in a separate runtime, since a runtime has its own randomness.
fn run(seed: u64) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(trace(seed))
}

fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "toys"},
        "provisioner": PROVISIONER,
    })
}

fn claim(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{index}"), "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "toys", "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}
