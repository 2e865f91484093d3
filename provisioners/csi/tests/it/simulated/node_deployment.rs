//! A replica and a driver on each node, as with `--node-deployment`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_provisioner::{CapacitySettings, OwnNode, Settings};
use csi_sim::{Capability, Driver, Method, NodeSettings, Pool, Step};
use driver_rpc::Code;
use driver_rpc::csi::controller_service_capability::rpc::Type as Rpc;
use driver_rpc::csi::{CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, Topology};
use kube_provisioner::{BidDelays, Coordination, Options, RunError};
use kube_sim::Builder;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, cluster};
use super::topology::{DRIVER, SELECTED, class, grant_rights_of_charts, on_node, scheduler};

const KEY: &str = "topology.example.com/node";
const SIZE: i64 = 1 << 30;

/// Nodes with a driver each. Only the driver's node can use its volumes.
struct Fleet {
    fixture: Fixture,
    drivers: Vec<Driver>,
    base_delay: Duration,
    takes_immediate: bool,
    capacity: Option<CapacitySettings>,
}

fn fleet(count: usize) -> Fleet {
    fleet_on(cluster(), count)
}

fn fleet_on(cluster: Builder, count: usize) -> Fleet {
    let fixture = Fixture::on(cluster.rbac().build());
    grant_rights_of_charts(&fixture, 0..=99);
    for (name, mode) in [("late", "WaitForFirstConsumer"), ("now", "Immediate")] {
        fixture.create(class(name, mode, json!(null)));
    }
    let drivers = (0..count).map(|at| driver_at(&format!("node-{at}"))).collect();
    for at in 0..count {
        let name = format!("node-{at}");
        fixture.add_node(&name, json!({KEY: name}));
    }
    Fleet { fixture, drivers, base_delay: Duration::from_secs(20), takes_immediate: true, capacity: None }
}

fn driver_at(place: &str) -> Driver {
    let segments = BTreeMap::from([(KEY.to_owned(), place.to_owned())]);
    let mut settings = csi_sim::Settings::default();
    settings.capabilities.extend(Capability::TOPOLOGY);
    settings.pools = vec![Pool { name: place.to_owned(), segments: segments.clone(), size: 1 << 40 }];
    settings.nodes = vec![NodeSettings { id: place.to_owned(), segments, max_volumes: 0 }];
    Driver::new(settings)
}

impl Fleet {
    async fn start(&self, at: usize) -> JoinHandle<Result<(), RunError>> {
        self.start_as(at, &format!("node-{at}"), at as u64).await
    }

    async fn start_all(&self) -> Vec<JoinHandle<Result<(), RunError>>> {
        let mut all = Vec::new();
        for at in 0..self.drivers.len() {
            all.push(self.start(at).await);
        }
        all
    }

    /// Starts a process for a driver, on the node with this name.
    async fn start_as(&self, at: usize, name: &str, number: u64) -> JoinHandle<Result<(), RunError>> {
        self.start_with(at, name, number, |_| {}).await
    }

    /// Starts a process with the options that the program derives from its flags.
    async fn start_with(
        &self,
        at: usize,
        name: &str,
        number: u64,
        change: impl FnOnce(&mut Options),
    ) -> JoinHandle<Result<(), RunError>> {
        let node = OwnNode::query(&self.drivers[at], name).await.unwrap();
        let as_on_node = |options: &mut Options| {
            options.sidecar_rbac = true;
            options.coordination = Coordination::PerNode;
            options.node_name = Some(node.name().to_owned());
            options.node_segments = Some(node.segments().clone());
            let max = self.base_delay.max(Duration::from_secs(60));
            options.bid_delays = self.takes_immediate.then_some(BidDelays { base: self.base_delay, max });
            change(options);
        };
        let mut settings = Settings::default();
        (settings.strict_topology, settings.immediate_topology) = (true, false);
        settings.own_node = Some(node.clone());
        settings.capacity = self.capacity.clone();
        self.fixture.start_driver(number, &self.drivers[at], settings, as_on_node).await
    }

    fn creations(&self) -> Vec<Vec<CreateVolumeRequest>> {
        self.drivers.iter().map(Driver::requests).collect()
    }

    fn volumes(&self) -> Vec<usize> {
        self.drivers.iter().map(|driver| driver.volumes().len()).collect()
    }

    fn selected(&self, claim: &str) -> Option<String> {
        self.fixture.annotations(claim)[SELECTED].as_str().map(str::to_owned)
    }

    /// Sets the selected node, like the scheduler.
    fn select(&self, claim: &str, node: &str) {
        self.fixture.change_claim(claim, on_node(node));
    }

    fn remove_driver(&self, node: &str) {
        self.fixture.change("storage.k8s.io", "csinodes", "", node, json!({"spec": {"drivers": []}}));
    }

    /// Returns the attempts in a node's journal.
    fn recorded(&self, node: &str) -> Option<String> {
        let name = format!("{DRIVER}-journal-node-{node}");
        let lease = self.fixture.cluster.get("coordination.k8s.io", "leases", "default", &name).ok()?;
        let entries = lease["metadata"]["annotations"]["kube-provisioner/journal-entries"].as_str();
        Some(entries.unwrap_or_default().to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn each_node_handles_only_its_own_claims_and_volumes() {
    let fleet = fleet(3);
    let _running = fleet.start_all().await;
    let names: Vec<String> = (0..6).map(|at| format!("claim-{at}")).collect();
    let mut volumes = Vec::new();
    for (at, name) in names.iter().enumerate() {
        volumes.push(fleet.fixture.claim(name, "late", on_node(&format!("node-{}", at % 3))));
    }
    fleet.fixture.until("bound", || names.iter().all(|name| fleet.fixture.is_bound(name))).await;
    assert_eq!(fleet.volumes(), [2, 2, 2]);
    for (at, calls) in fleet.creations().into_iter().enumerate() {
        let segments = BTreeMap::from([(KEY.to_owned(), format!("node-{at}"))]);
        for call in calls {
            let requirement = call.accessibility_requirements.unwrap();
            assert_eq!(requirement.requisite, [Topology { segments: segments.clone() }]);
            assert_eq!(requirement.requisite, requirement.preferred);
        }
        assert!(fleet.recorded(&format!("node-{at}")).is_some());
    }
    let volume = fleet.fixture.volume(&volumes[1]).unwrap();
    assert_eq!(volume["metadata"]["annotations"].get("kube-provisioner/identity"), None);
    names.iter().for_each(|name| fleet.fixture.delete_claim(name));
    fleet.fixture.until("deleted", || volumes.iter().all(|name| fleet.fixture.volume(name).is_none())).await;
    assert_eq!(fleet.volumes(), [0, 0, 0]);
    let deletions = fleet.drivers.iter().map(|driver| driver.requests::<DeleteVolumeRequest>().len());
    assert_eq!(deletions.collect::<Vec<_>>(), [2, 2, 2], "each volume once, on its node");
}

/// Returns a PersistentVolume in external-provisioner's format whose claim no longer exists.
fn of_upstream(name: &str, place: &str, handle: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": KEY, "operator": "In", "values": [place]}]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {
            "name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER},
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "late",
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": handle},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "gone", "uid": "1-2-3"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn deletes_external_provisioners_volume_on_its_node() {
    let fleet = fleet(3);
    let _running = fleet.start_all().await;
    fleet.fixture.create(of_upstream("pvc-old", "node-2", "vol-7"));
    fleet.fixture.until("deleted", || fleet.fixture.volume("pvc-old").is_none()).await;
    let deletions = fleet.drivers.iter().map(|driver| driver.requests::<DeleteVolumeRequest>().len());
    assert_eq!(deletions.collect::<Vec<_>>(), [0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_node_keeps_the_volumes_of_its_place() {
    let fleet = fleet(2);
    let running = fleet.start_all().await;
    let volume = fleet.fixture.claim("data", "late", on_node("node-0"));
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    running[0].abort();
    fleet.fixture.delete_node("node-0");
    fleet.fixture.add_node("renamed", json!({KEY: "node-0"}));
    let _renamed = fleet.start_as(0, "renamed", 7).await;
    fleet.fixture.delete_claim("data");
    fleet.fixture.until("deleted", || fleet.fixture.volume(&volume).is_none()).await;
    assert_eq!(fleet.volumes(), [0, 0]);
    // A claim that selects the former name is rescheduled.
    fleet.fixture.claim("late", "late", on_node("node-0"));
    fleet.fixture.until("unselected", || fleet.selected("late").is_none()).await;
    fleet
        .fixture
        .wait_for_event("late", "The selected node node-0 does not exist; the scheduler is asked for another node")
        .await;
    fleet.select("late", "renamed");
    fleet.fixture.until("bound", || fleet.fixture.is_bound("late")).await;
    assert_eq!(fleet.volumes(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn one_node_takes_a_claim_with_immediate_binding() {
    for base_delay in [Duration::ZERO, Duration::from_secs(20)] {
        let mut fleet = fleet(8);
        fleet.base_delay = base_delay;
        let _running = fleet.start_all().await;
        let names: Vec<String> = (0..40).map(|at| format!("claim-{at}")).collect();
        let volumes: Vec<String> = names.iter().map(|name| fleet.fixture.claim(name, "now", json!({}))).collect();
        let started = Instant::now();
        fleet.fixture.until("bound", || names.iter().all(|name| fleet.fixture.is_bound(name))).await;
        assert!(started.elapsed() < base_delay + Duration::from_secs(10), "{:?}", started.elapsed());
        let calls: Vec<String> = fleet.creations().into_iter().flatten().map(|call| call.name).collect();
        assert_eq!(calls.len(), 40);
        assert_eq!(calls.iter().collect::<BTreeSet<_>>(), volumes.iter().collect());
        assert!(fleet.volumes().iter().all(|count| *count > 0) || base_delay.is_zero(), "{:?}", fleet.volumes());
        for (name, volume) in names.iter().zip(&volumes) {
            let volume = fleet.fixture.volume(volume).unwrap();
            let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
            assert_eq!(terms[0]["matchExpressions"][0]["values"][0].as_str().map(str::to_owned), fleet.selected(name));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_bids_occupy_no_worker() {
    let mut fleet = fleet(1);
    fleet.base_delay = Duration::from_secs(24 * 3600);
    let few = |options: &mut Options| (options.max_concurrent_calls, options.api_concurrency) = (1, 1);
    let _running = fleet.start_with(0, "node-0", 0, few).await;
    for at in 0..100 {
        fleet.fixture.claim(&format!("claim-{at}"), "now", json!({}));
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.drivers[0].requests::<GetCapacityRequest>().len(), 0);
    fleet.fixture.claim("data", "late", on_node("node-0"));
    fleet.fixture.soon("bound", || fleet.fixture.is_bound("data")).await;
    sleep(fleet.base_delay).await;
    fleet.fixture.until("all bound", || (0..100).all(|at| fleet.fixture.is_bound(&format!("claim-{at}")))).await;
}

#[tokio::test(start_paused = true)]
async fn claim_taken_concurrently_stays_on_its_node() {
    let (scheduled, cluster) = scheduler(None, "node-1");
    let fleet = fleet_on(cluster, 2);
    let _ = scheduled.set(fleet.fixture.cluster.clone());
    let _first = fleet.start(0).await;
    fleet.fixture.claim("data", "now", json!({}));
    fleet.fixture.until("selected", || fleet.selected("data").is_some()).await;
    let _second = fleet.start(1).await;
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    assert_eq!((fleet.selected("data").as_deref(), fleet.volumes()), (Some("node-1"), vec![0, 1]));
    assert!(fleet.creations()[0].is_empty());
}

#[tokio::test(start_paused = true)]
async fn full_node_does_not_take_a_claim() {
    let fleet = fleet(3);
    for at in [0, 2] {
        fleet.drivers[at].configure(|settings| settings.pools[0].size = SIZE - 1);
    }
    let _running = fleet.start_all().await;
    let names: Vec<String> = (0..10).map(|at| format!("claim-{at}")).collect();
    names.iter().for_each(|name| drop(fleet.fixture.claim(name, "now", json!({}))));
    fleet.fixture.until("bound", || names.iter().all(|name| fleet.fixture.is_bound(name))).await;
    assert_eq!(fleet.volumes(), [0, 10, 0]);
    assert!(fleet.creations()[0].is_empty() && fleet.creations()[2].is_empty());
    let asked = fleet.drivers[1].requests::<GetCapacityRequest>();
    assert_eq!(asked[0].accessible_topology.as_ref().unwrap().segments[KEY], "node-1");
    // No node has space, and the claim's event reports it. The claim is provisioned once there is space again.
    fleet.drivers[1].configure(|settings| settings.pools[0].size = 0);
    fleet.fixture.claim("large", "now", json!({}));
    fleet.fixture.wait_for_event("large", "The claim waits for a node on which csi-sim.example.com has room").await;
    sleep(Duration::from_secs(600)).await;
    let events = fleet.fixture.events("large");
    assert_eq!(
        events.iter().filter(|event| event.contains("waits for a node")).count(),
        1,
        "one for all nodes: {events:?}"
    );
    assert_eq!(fleet.selected("large"), None);
    fleet.drivers[2].configure(|settings| settings.pools[0].size = SIZE);
    fleet.fixture.until("bound", || fleet.fixture.is_bound("large")).await;
    assert_eq!(fleet.volumes(), [0, 10, 1]);
}

#[tokio::test(start_paused = true)]
async fn full_node_pauses_even_if_bids_have_no_delay() {
    let mut fleet = fleet(1);
    fleet.base_delay = Duration::ZERO;
    fleet.drivers[0].configure(|settings| settings.pools[0].size = SIZE - 1);
    let _running = fleet.start_all().await;
    fleet.fixture.claim("large", "now", json!({}));
    fleet.fixture.wait_for_event("large", "The claim waits for a node on which csi-sim.example.com has room").await;
    sleep(Duration::from_secs(60)).await;
    let asked = fleet.drivers[0].requests::<GetCapacityRequest>().len();
    assert!(asked < 20, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn excluded_node_does_not_take_a_claim() {
    let fleet = fleet(3);
    let allowed = json!([{"matchLabelExpressions": [{"key": KEY, "values": ["node-2", "node-9"]}]}]);
    fleet.fixture.create(class("some", "Immediate", allowed));
    let _running = fleet.start_all().await;
    for at in 0..5 {
        fleet.fixture.claim(&format!("claim-{at}"), "some", json!({}));
    }
    fleet.fixture.until("bound", || (0..5).all(|at| fleet.fixture.is_bound(&format!("claim-{at}")))).await;
    assert_eq!(fleet.volumes(), [0, 0, 5]);
    let elsewhere = json!([{"matchLabelExpressions": [{"key": KEY, "values": ["node-9"]}]}]);
    fleet.fixture.create(class("elsewhere", "Immediate", elsewhere));
    fleet.fixture.claim("excluded", "elsewhere", json!({}));
    fleet.fixture.wait_for_event("excluded", "or is excluded by the allowedTopologies of the class").await;
}

#[tokio::test(start_paused = true)]
async fn without_immediate_binding_another_program_selects_the_node() {
    let mut fleet = fleet(2);
    fleet.takes_immediate = false;
    let _running = fleet.start_all().await;
    fleet.fixture.claim("data", "now", json!({}));
    sleep(Duration::from_secs(600)).await;
    let events = fleet.fixture.events("data");
    assert!(
        fleet.selected("data").is_none() && events.iter().all(|event| event.starts_with("ExternalProvisioning ")),
        "{events:?}"
    );
    fleet.select("data", "node-1");
    fleet.fixture.soon("bound", || fleet.fixture.is_bound("data")).await;
    assert_eq!(fleet.volumes(), [0, 1]);
}

/// The driver does not report its capacity, and is full.
#[tokio::test(start_paused = true)]
async fn full_node_passes_the_claim_to_another_node() {
    let fleet = fleet(2);
    for driver in &fleet.drivers {
        driver
            .configure(|settings| settings.capabilities.retain(|one| *one != Capability::Controller(Rpc::GetCapacity)));
    }
    fleet.drivers[0].configure(|settings| settings.pools[0].size = 0);
    let first = fleet.start(0).await;
    fleet.fixture.claim("data", "now", json!({}));
    fleet.fixture.until("tried", || fleet.creations()[0].len() >= 2).await;
    fleet.fixture.wait_for_event("data", "the scheduler is asked for another node").await;
    let _second = fleet.start(1).await;
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    assert_eq!(fleet.volumes(), [0, 1]);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn claim_on_a_node_without_driver_is_rescheduled() {
    let fleet = fleet(2);
    fleet.fixture.add_node("bare", json!({KEY: "bare"}));
    fleet.remove_driver("bare");
    let _running = fleet.start_all().await;
    fleet.fixture.claim("data", "late", on_node("bare"));
    fleet.fixture.claim("any", "now", on_node("bare"));
    let started = Instant::now();
    fleet.fixture.until("unselected", || fleet.selected("data").is_none()).await;
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    fleet
        .fixture
        .wait_for_event(
            "data",
            "The selected node bare does not have the CSI driver csi-sim.example.com; the scheduler is asked",
        )
        .await;
    fleet.fixture.until("taken", || fleet.fixture.is_bound("any")).await;
    assert!(fleet.selected("any").is_some_and(|node| node != "bare"));
    fleet.select("data", "node-1");
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
}

#[tokio::test(start_paused = true)]
async fn attempt_stays_on_the_node_that_began_it() {
    for is_node_deleted in [false, true] {
        let fleet = fleet(2);
        let running = fleet.start_all().await;
        fleet.drivers[1].script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "busy"); 1000]);
        let volume = fleet.fixture.claim("data", "late", on_node("node-1"));
        fleet.fixture.until("asked", || fleet.creations()[1].len() == 2).await;
        running[1].abort();
        if is_node_deleted {
            fleet.fixture.delete_node("node-1");
        } else {
            fleet.remove_driver("node-1");
        }
        fleet.fixture.wait_for_event("data", &format!("the record with the command `journal drop {volume}`")).await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(fleet.selected("data").as_deref(), Some("node-1"));
        assert!(fleet.recorded("node-1").unwrap().contains(&volume), "the journal of the node stays");
        assert!(fleet.creations()[0].is_empty());
        let driver = driver_at("node-1");
        let mut fleet = fleet;
        fleet.drivers[1] = driver;
        let _again = fleet.start_as(1, "node-1", 11).await;
        fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
        assert_eq!(fleet.volumes(), [0, 1]);
    }
}

/// A user changes the selected node while the process there is down.
#[tokio::test(start_paused = true)]
async fn node_deletes_its_volume_of_a_moved_claim() {
    let fleet = fleet(2);
    let running = fleet.start_all().await;
    // The volumes of the two nodes then have different handles.
    fleet.fixture.claim("other", "late", on_node("node-1"));
    fleet.fixture.until("bound", || fleet.fixture.is_bound("other")).await;
    fleet.drivers[1].script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "busy").working(); 3]);
    let volume = fleet.fixture.claim("data", "late", on_node("node-1"));
    fleet.fixture.until("created", || fleet.volumes() == [0, 2]).await;
    running[1].abort();
    fleet.select("data", "node-0");
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    let _again = fleet.start_as(1, "node-1", 11).await;
    fleet.fixture.until("deleted", || fleet.volumes() == [1, 1]).await;
    let is_forgotten = || fleet.recorded("node-1").is_some_and(|entries| !entries.contains(&volume));
    fleet.fixture.until("forgotten", is_forgotten).await;
    assert!(fleet.fixture.is_bound("data") && fleet.fixture.volume(&volume).is_some());
}

#[tokio::test(start_paused = true)]
async fn restarted_process_continues_on_its_node() {
    for (number, is_claim_deleted) in (0..20).map(|number| (number, number % 2 == 0)) {
        let fleet = fleet(2);
        fleet.drivers.iter().for_each(|driver| driver.configure(|settings| settings.latency = Duration::from_secs(1)));
        let running = fleet.start_all().await;
        let name = fleet.fixture.claim("data", "late", on_node("node-1"));
        fleet.fixture.until("asked", || fleet.creations()[1].len() == 1).await;
        sleep(Duration::from_millis(number * 60)).await;
        running[1].abort();
        if is_claim_deleted {
            fleet.fixture.delete_claim("data");
        }
        sleep(Duration::from_secs(30)).await;
        let _again = fleet.start_as(1, "node-1", 11).await;
        sleep(Duration::from_secs(90)).await;
        let bound = usize::from(!is_claim_deleted);
        assert_eq!((fleet.volumes(), fleet.fixture.volume(&name).is_some()), (vec![0, bound], bound == 1), "{number}");
        assert!(fleet.creations()[0].is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn volume_deletion_waits_for_the_driver_of_its_node() {
    let fleet = fleet(2);
    let running = fleet.start_all().await;
    let volume = fleet.fixture.claim("data", "late", on_node("node-1"));
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    running[1].abort();
    fleet.remove_driver("node-1");
    fleet.fixture.delete_claim("data");
    fleet
        .fixture
        .wait_for_event(&volume, "is not registered on any node with the labels topology.example.com/node=node-1")
        .await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!((fleet.fixture.volume(&volume).is_some(), fleet.volumes()), (true, vec![0, 1]));
    assert!(fleet.drivers[0].requests::<DeleteVolumeRequest>().is_empty());
    let _again = fleet.start_as(1, "node-1", 11).await;
    fleet.fixture.until("deleted", || fleet.fixture.volume(&volume).is_none()).await;
    assert_eq!(fleet.volumes(), [0, 0]);
}

/// A cluster with a thousand nodes has a thousand replicas.
#[tokio::test(start_paused = true)]
async fn replica_never_reads_nodes() {
    let fleet = fleet_on(cluster().trace(), 2);
    let _running = fleet.start_all().await;
    fleet.fixture.claim("data", "late", on_node("node-1"));
    fleet.fixture.claim("any", "now", json!({}));
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data") && fleet.fixture.is_bound("any")).await;
    let trace = fleet.fixture.cluster.trace();
    let nodes: Vec<&str> = trace.lines().filter(|line| line.contains("sidecar-") && line.contains("nodes")).collect();
    assert!(nodes.is_empty(), "{nodes:#?}");
}

#[tokio::test(start_paused = true)]
async fn each_node_publishes_its_own_capacity() {
    let mut fleet = fleet(2);
    fleet.capacity = Some(CapacitySettings::new("default"));
    let running = fleet.start_all().await;
    let published = || {
        let objects = fleet.fixture.cluster.list("storage.k8s.io", "csistoragecapacities", Some("default")).unwrap();
        let mut all: Vec<_> = objects
            .iter()
            .map(|object| {
                let manager = &object["metadata"]["labels"]["csi.storage.k8s.io/managed-by"];
                let place = &object["nodeTopology"]["matchLabels"][KEY];
                [manager, place, &object["capacity"]].map(|text| text.as_str().unwrap().to_owned()).join(" ")
            })
            .collect();
        all.sort();
        all
    };
    let expected = |first: &str| {
        [format!("external-provisioner-node-0 node-0 {first}"), "external-provisioner-node-1 node-1 1Ti".to_owned()]
    };
    fleet.fixture.until("published", || published() == expected("1Ti")).await;
    fleet.fixture.claim("data", "late", on_node("node-0"));
    fleet.fixture.until("smaller", || published() == expected("1023Gi")).await;
    // This replica ignores the other node's objects.
    running[0].abort();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(published(), expected("1023Gi"));
}

/// Only the replica on that node knows which attempts need the source.
#[tokio::test(start_paused = true)]
async fn leftover_finalizer_is_removed_by_the_replica_of_its_node() {
    let fleet = fleet(2);
    let running = fleet.start_all().await;
    fleet.fixture.claim("data", "late", on_node("node-0"));
    fleet.fixture.until("bound", || fleet.fixture.is_bound("data")).await;
    running.iter().for_each(JoinHandle::abort);
    fleet.fixture.protect_claim("data");
    fleet.fixture.delete_claim("data");
    let _other = fleet.start_as(1, "node-1", 11).await;
    sleep(Duration::from_secs(2 * 3600)).await;
    assert!(fleet.fixture.is_claim_there("data"));
    let _own = fleet.start_as(0, "node-0", 10).await;
    fleet.fixture.until("gone", || !fleet.fixture.is_claim_there("data")).await;
}
