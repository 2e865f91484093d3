//! Drivers that limit volumes to some nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use csi_sim::{Capability, Driver};
use serde_json::json;
use tokio::time::sleep;

use super::fixture::Fixture;

/// A driver with topology, which chooses the place of each volume.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    let mut settings = csi_sim::Settings::default();
    settings.capabilities.extend(Capability::TOPOLOGY);
    let place: BTreeMap<_, _> = [("zone".to_owned(), "a".to_owned()), ("rack".to_owned(), "7".to_owned())].into();
    settings.pools[0].segments = place.clone();
    settings.nodes[0].segments = place;
    fixture.driver = Driver::new(settings);
    fixture.settings.immediate_topology = false;
    fixture
}

/// As of ceph-csi's and HPE's charts, and their StorageClasses.
#[tokio::test(start_paused = true)]
async fn the_driver_chooses_the_place_of_a_volume_that_waits_for_no_pod() {
    let fixture = fixture();
    let _running = fixture.start(1).await;
    let name = fixture.claim("a", "fast", json!({}));
    fixture.until("bound", || fixture.is_bound("a")).await;
    assert_eq!(fixture.creations()[0].accessibility_requirements, None);
    let [rack, zone] =
        [("rack", "7"), ("zone", "a")].map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [rack, zone]}]});
    assert_eq!(fixture.volume(&name).unwrap()["spec"]["nodeAffinity"]["required"], required);
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_every_node_has_no_affinity() {
    // By its own word, and by that of the administrator.
    for (has_segments, topology) in [(false, true), (true, false)] {
        let mut fixture = fixture();
        fixture.settings.topology = topology;
        if !has_segments {
            let mut settings = csi_sim::Settings::default();
            settings.capabilities.extend(Capability::TOPOLOGY);
            fixture.driver = Driver::new(settings);
        }
        let _running = fixture.start(1).await;
        let name = fixture.claim("a", "fast", json!({}));
        fixture.until("bound", || fixture.is_bound("a")).await;
        assert_eq!(fixture.volume(&name).unwrap()["spec"].get("nodeAffinity"), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_needs_a_place_is_refused_once() {
    let mut fixture = fixture();
    let class = |name: &str, mode: &str, topologies| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "csi-sim.example.com", "volumeBindingMode": mode, "allowedTopologies": topologies,
        })
    };
    fixture.create(class("late", "WaitForFirstConsumer", json!(null)));
    let zones = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]);
    fixture.create(class("zones", "Immediate", zones));
    let running = fixture.start(1).await;
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
    fixture.claim("late", "late", selected);
    fixture.claim("zones", "zones", json!({}));
    fixture.says("late", "a node is selected for the claim").await;
    fixture.says("zones", "the class zones has allowedTopologies").await;
    sleep(Duration::from_secs(900)).await;
    for name in ["late", "zones"] {
        let events = fixture.events(name);
        let refusals = events.iter().filter(|event| event.contains("does not choose the topology of volumes yet"));
        assert_eq!(refusals.count(), 1, "{events:?}");
    }
    assert!(fixture.creations().is_empty());
    running.abort();
    // In the program this is a reason not to start.
    fixture.settings.immediate_topology = true;
    let _running = fixture.start(2).await;
    fixture.claim("a", "fast", json!({}));
    fixture.says("a", "runs with --immediate-topology=true").await;
}
