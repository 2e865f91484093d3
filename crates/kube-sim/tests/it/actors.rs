//! Tests of the actors in the style of provisioner tests.

mod binder;

use std::time::Duration;

use crate::common::{PROVISIONER, claim, class, created, node, pod, until, volume};
use kube_sim::{Actor, Actors, Cluster, DeleteOptions, Pace, Target, object};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[tokio::test(start_paused = true)]
async fn actor_acts_only_between_start_and_drop() {
    let cluster = Cluster::new();
    created(&cluster, class("fast", "Immediate"));
    created(&cluster, claim("data", "fast"));

    let late = Pace::PROMPT.starting_after(Duration::from_secs(60));
    let actors = cluster.run(Actors::none().with(Actor::Binder, late));
    sleep(Duration::from_secs(59)).await;
    assert!(!is_provisioning_requested(&cluster));
    sleep(Duration::from_secs(2)).await;
    assert!(is_provisioning_requested(&cluster));

    drop(actors);
    created(&cluster, volume("disk", "fast"));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.list("", "persistentvolumes", None).unwrap()[0]["status"]["phase"], "Pending");
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn restarted_binder_completes_a_partial_binding() {
    let cluster = Cluster::new();
    created(&cluster, class("fast", "Immediate"));
    let slow = Pace { request: Duration::from_secs(1)..=Duration::from_secs(1), ..Pace::PROMPT };
    let mut actors = cluster.run(Actors::none().with(Actor::Binder, slow));
    created(&cluster, claim("data", "fast"));
    sleep(Duration::from_secs(3)).await;
    provision(&cluster, "data", "disk");
    // The binder has written the volume, but not the claim.
    until(&cluster, || volume_phase(&cluster, "disk") == "Bound").await;
    actors.stop(Actor::Binder);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(get(&cluster, "data")["status"]["phase"], "Pending");

    actors.start(Actor::Binder, Pace::PROMPT);
    until(&cluster, || get(&cluster, "data")["status"]["phase"] == "Bound").await;
}

#[tokio::test(start_paused = true)]
async fn binder_retries_after_concurrent_write() {
    let cluster = Cluster::new();
    created(&cluster, class("fast", "Immediate"));
    let slow = Pace { request: Duration::from_secs(1)..=Duration::from_secs(1), ..Pace::PROMPT };
    let _actors = cluster.run(Actors::none().with(Actor::Binder, slow));
    created(&cluster, claim("data", "fast"));
    sleep(Duration::from_millis(500)).await;
    let mut seen = get(&cluster, "data");
    object::set_label(&mut seen, "touched", "yes");
    cluster.update(&seen).unwrap();
    until(&cluster, || is_provisioning_requested(&cluster)).await;
    assert_eq!(object::label(&get(&cluster, "data"), "touched"), Some("yes"));
}

#[tokio::test(start_paused = true)]
async fn slow_and_late_actors_reach_the_same_state() {
    for seed in 0..20 {
        let cluster = Cluster::builder().seed(seed).build();
        let actors =
            Actors::all().at(&Pace::SLOW).with(Actor::Protection, Pace::USUAL.starting_after(Duration::from_secs(90)));
        let _actors = cluster.run(actors);
        created(&cluster, class("fast", "Immediate"));
        created(&cluster, claim("data", "fast"));
        provision(&cluster, "data", "disk");
        until(&cluster, || get(&cluster, "data")["status"]["phase"] == "Bound").await;
        let target =
            Target { plural: "persistentvolumeclaims", namespace: "default", name: "data", ..Target::default() };
        cluster.delete(&target, DeleteOptions::default()).unwrap();
        until(&cluster, || volume_phase(&cluster, "disk") == "Released").await;
        assert!(cluster.get("", "persistentvolumeclaims", "default", "data").is_err(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn scheduler_avoids_nodes_without_capacity() {
    let cluster = Cluster::new();
    let _actors = cluster.run(Actors::all());
    created(&cluster, class("fast", "WaitForFirstConsumer"));
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": PROVISIONER},
        "spec": {"storageCapacity": true},
    });
    created(&cluster, driver);
    for (name, capacity) in [("a", "1Mi"), ("b", "2Gi"), ("c", "0")] {
        created(&cluster, node(name, &[("zone", name)]));
        let capacity = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": name, "namespace": "default"}, "storageClassName": "fast", "capacity": capacity,
            "nodeTopology": {"matchLabels": {"zone": name}},
        });
        created(&cluster, capacity);
    }
    created(&cluster, claim("data", "fast"));
    created(&cluster, pod("pod", "data"));
    until(&cluster, || selected_node(&cluster).is_some()).await;
    assert_eq!(selected_node(&cluster).as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn pod_is_scheduled_to_the_node_of_its_volume() {
    let cluster = Cluster::new();
    let _actors = cluster.run(Actors::all());
    created(&cluster, class("fast", "Immediate"));
    for name in ["a", "b", "c"] {
        created(&cluster, node(name, &[("zone", name)]));
    }
    created(&cluster, pod("pod", "data"));
    created(&cluster, claim("data", "fast"));
    let mut volume = volume("disk", "fast");
    volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["c"]}]},
    ]}});
    created(&cluster, volume);
    let pod = || cluster.get("", "pods", "default", "pod").unwrap();
    until(&cluster, || pod()["spec"]["nodeName"] == "c").await;
    assert_eq!(pod()["status"]["conditions"][0]["type"], "PodScheduled");
}

/// Provisions a volume for a claim.
#[track_caller]
fn provision(cluster: &Cluster, claim: &str, name: &str) -> Value {
    let claim = cluster.get("", "persistentvolumeclaims", "default", claim).unwrap();
    let mut volume = volume(name, object::text_at(&claim, &["spec", "storageClassName"]));
    volume["spec"]["claimRef"] = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": object::name(&claim),
        "uid": object::uid(&claim),
    });
    created(cluster, volume)
}

fn get(cluster: &Cluster, name: &str) -> Value {
    cluster.get("", "persistentvolumeclaims", "default", name).unwrap()
}

fn selected_node(cluster: &Cluster) -> Option<String> {
    object::annotation(&get(cluster, "data"), SELECTED_NODE).map(str::to_owned)
}

fn is_provisioning_requested(cluster: &Cluster) -> bool {
    object::annotation(&get(cluster, "data"), "volume.kubernetes.io/storage-provisioner").is_some()
}

fn volume_phase(cluster: &Cluster, name: &str) -> String {
    let volume = cluster.get("", "persistentvolumes", "", name).unwrap();
    volume["status"]["phase"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn prompt_actors_take_no_virtual_time() {
    let cluster = Cluster::new();
    let _actors = cluster.run(Actors::all());
    let start = Instant::now();
    created(&cluster, class("fast", "Immediate"));
    created(&cluster, claim("data", "fast"));
    until(&cluster, || is_provisioning_requested(&cluster)).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}
