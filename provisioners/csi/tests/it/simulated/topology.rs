//! Drivers that limit volumes to some nodes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use csi_sim::{Capability, Driver, Method, Pool, Step};
use driver_rpc::Code;
use driver_rpc::csi::{CreateVolumeResponse, Topology, Volume};
use kube_provisioner::Options;
use kube_sim::{Before, Builder, Cluster, Verb};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, before, cluster};
use super::permissions::{READ, rule};
use super::sources::{of_claim, of_snapshot};

pub(super) const DRIVER: &str = "csi-sim.example.com";
pub(super) const SELECTED: &str = "volume.kubernetes.io/selected-node";

/// Returns a fixture whose driver has topology and chooses each volume's place.
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

/// The charts and StorageClasses of ceph-csi and HPE have these settings.
#[tokio::test(start_paused = true)]
async fn driver_chooses_the_place_without_immediate_topology() {
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
async fn volume_accessible_from_every_node_has_no_affinity() {
    // In the first case the driver reports this, in the second case the administrator configures it.
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

/// Returns a fixture whose driver has a pool in each of two zones, with a node in each zone.
pub(super) fn two_zones(cluster: Cluster) -> Fixture {
    let mut fixture = Fixture::on(cluster);
    let mut settings = csi_sim::Settings::default();
    settings.capabilities.extend(Capability::TOPOLOGY);
    settings.pools =
        ["a", "b"].map(|zone| Pool { name: zone.to_owned(), segments: in_zone(zone), size: 1 << 40 }).into();
    fixture.driver = Driver::new(settings);
    fixture.settings.retry_interval_max = Duration::from_secs(1800);
    fixture.create(class("late", "WaitForFirstConsumer", json!(null)));
    for zone in ["a", "b"] {
        fixture.add_node(&format!("node-{zone}"), json!({"zone": zone}));
    }
    fixture
}

fn in_zone(zone: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("zone".to_owned(), zone.to_owned())])
}

pub(super) fn class(name: &str, mode: &str, topologies: Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "volumeBindingMode": mode, "allowedTopologies": topologies,
    })
}

pub(super) fn node(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

pub(super) fn csi_node(name: &str, drivers: Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers},
    })
}

pub(super) fn registered(keys: &[&str]) -> Value {
    json!({"name": DRIVER, "nodeID": "id", "topologyKeys": keys})
}

pub(super) fn on_node(name: &str) -> Value {
    json!({"metadata": {"annotations": {SELECTED: name, "example.com/kept": "yes"}}})
}

impl Fixture {
    /// Returns the requisite and the preferred zones of each CreateVolume call.
    fn zones(&self) -> Vec<[String; 2]> {
        let zones = |places: &[Topology]| places.iter().map(|place| &*place.segments["zone"]).collect();
        let requirements = self.creations().into_iter().map(|call| call.accessibility_requirements.unwrap_or_default());
        requirements.map(|one| [zones(&one.requisite), zones(&one.preferred)]).collect()
    }

    pub(super) fn annotations(&self, claim: &str) -> Value {
        self.cluster.get("", "persistentvolumeclaims", "default", claim).unwrap()["metadata"]["annotations"].take()
    }

    /// Creates a node on which the driver has registered these labels' keys.
    pub(super) fn add_node(&self, name: &str, labels: Value) {
        let keys: Vec<_> = labels.as_object().unwrap().keys().map(String::as_str).collect();
        let csi_node = csi_node(name, json!([registered(&keys)]));
        self.create(node(name, labels));
        self.create(csi_node);
    }

    pub(super) fn delete_node(&self, name: &str) {
        self.delete("", "nodes", "", name);
        self.delete("storage.k8s.io", "csinodes", "", name);
    }

    /// Fails unless the condition becomes true within two seconds.
    pub(super) async fn soon(&self, what: &str, so: impl Fn() -> bool) {
        let start = Instant::now();
        self.until(what, so).await;
        assert!(start.elapsed() <= Duration::from_secs(2), "{what}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn volume_is_created_in_the_zone_of_the_selected_node() {
    for (strict, requisite, preferred) in [(false, "ab", "ba"), (true, "b", "b")] {
        let mut fixture = two_zones(cluster().build());
        fixture.settings.strict_topology = strict;
        let _running = fixture.start(1).await;
        let name = fixture.claim("data", "late", on_node("node-b"));
        fixture.until("bound", || fixture.is_bound("data")).await;
        assert_eq!(fixture.zones(), [[requisite, preferred]]);
        let required = &fixture.volume(&name).unwrap()["spec"]["nodeAffinity"]["required"];
        let term = json!({"key": "zone", "operator": "In", "values": ["b"]});
        assert_eq!(*required, json!({"nodeSelectorTerms": [{"matchExpressions": [term]}]}));
    }
}

#[tokio::test(start_paused = true)]
async fn burst_shares_node_reads_but_later_claims_see_changes() {
    const CLAIMS: usize = 200;
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let count = before(move |request| {
        let is_read = &*request.resource.plural == "csinodes" && request.verb == Verb::Get;
        counted.fetch_add(usize::from(is_read), Ordering::Relaxed);
        Before::Handle
    });
    let fixture = two_zones(cluster().interceptor(count).build());
    fixture.driver.configure(|settings| settings.latency = Duration::from_millis(20));
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("data-{number}")).collect();
    names.iter().for_each(|name| drop(fixture.claim(name, "late", on_node("node-a"))));
    let _running = fixture.start_with(1, |options| options.max_concurrent_calls = 10).await;
    fixture.until("bound", || names.iter().all(|name| fixture.is_bound(name))).await;
    let reads = reads.load(Ordering::Relaxed);
    assert!((1..CLAIMS / 4).contains(&reads), "{reads} reads");

    fixture.change("", "nodes", "", "node-a", json!({"metadata": {"labels": {"zone": "b"}}}));
    fixture.claim("later", "late", on_node("node-a"));
    fixture.until("bound", || fixture.is_bound("later")).await;
    assert_eq!(fixture.zones().last().unwrap(), &["b", "b"]);
}

#[tokio::test(start_paused = true)]
async fn stateful_set_claims_are_spread_over_zones() {
    let fixture = two_zones(cluster().build());
    let _running = fixture.start(1).await;
    for name in ["data-web-0", "data-web-1", "logs-web-1"] {
        fixture.claim(name, "fast", json!({}));
        fixture.until("bound", || fixture.is_bound(name)).await;
    }
    let [first, second, other] = fixture.zones().try_into().unwrap();
    assert_eq!(first[0], "ab");
    assert_ne!(first[1], second[1]);
    assert_eq!(second, other);
}

#[tokio::test(start_paused = true)]
async fn driver_receives_only_allowed_topologies() {
    let mut fixture = two_zones(cluster().build());
    let term = |key: &str, values: &[&str]| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
    fixture.create(class("zones", "Immediate", json!([term("zone", &["b", "c"])])));
    fixture.create(class("late-zones", "WaitForFirstConsumer", json!([term("zone", &["b", "c"])])));
    fixture.create(class("unknown", "WaitForFirstConsumer", json!([term("rack", &["7"])])));
    fixture.settings.immediate_topology = false;
    // The driver has not registered this key.
    fixture.change("", "nodes", "", "node-b", json!({"metadata": {"labels": {"rack": "7"}}}));
    let running = fixture.start(1).await;
    fixture.claim("now", "zones", json!({}));
    fixture.claim("late", "late-zones", on_node("node-b"));
    fixture.claim("unknown", "unknown", on_node("node-b"));
    fixture.until("bound", || fixture.is_bound("now") && fixture.is_bound("late")).await;
    assert_eq!(fixture.zones().iter().filter(|[requisite, _]| requisite == "bc").count(), 2);
    assert!(fixture.zones().contains(&["bc".to_owned(), "bc".to_owned()]));
    fixture
        .wait_for_event(
            "unknown",
            "the selected node has the topology zone=b, which the allowedTopologies of the class exclude",
        )
        .await;
    running.abort();
    fixture.settings.strict_topology = true;
    let _running = fixture.start(2).await;
    fixture.claim("strict", "late-zones", on_node("node-b"));
    fixture.until("bound", || fixture.is_bound("strict")).await;
    assert_eq!(fixture.zones().last().unwrap(), &["b", "b"]);
    assert_eq!(fixture.creations().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn reschedules_when_node_labels_no_longer_match() {
    for strict in [false, true] {
        let mut fixture = two_zones(cluster().build());
        fixture.settings.strict_topology = strict;
        let zones = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["b", "c"]}]}]);
        fixture.create(class("late-zones", "WaitForFirstConsumer", zones));
        let _running = fixture.start(1).await;
        fixture.claim("excluded", "late-zones", on_node("node-a"));
        fixture.soon("another node", || fixture.annotations("excluded").get(SELECTED).is_none()).await;
        let text = "the allowedTopologies of the class exclude the selected node node-a by its current labels";
        fixture.wait_for_event("excluded", text).await;
        assert_eq!(fixture.creations().len(), 0);
    }
}

fn with_rights_of_charts() -> Fixture {
    let fixture = two_zones(cluster().rbac().build());
    grant_rights_of_charts(&fixture, 1..=2);
    fixture
}

/// Most drivers' charts grant permission to update claims, but not to patch them.
pub(super) fn grant_rights_of_charts(fixture: &Fixture, numbers: RangeInclusive<u64>) {
    let rules = json!([
        rule("", &["persistentvolumes"], &[&READ, &["create", "patch", "delete"]]),
        rule("", &["persistentvolumeclaims"], &[&READ, &["update"]]),
        rule("storage.k8s.io", &["storageclasses", "csinodes", "volumeattachments"], &[&READ]),
        rule("", &["nodes"], &[&READ]),
        rule("", &["events"], &[&["create", "patch"]]),
        rule("storage.k8s.io", &["csistoragecapacities"], &[&READ, &["create", "update", "patch", "delete"]]),
        rule("coordination.k8s.io", &["leases"], &[&READ, &["create", "update"]]),
    ]);
    fixture.grant_role("driver", rules, numbers);
}

fn as_sidecar(options: &mut Options) {
    options.sidecar_rbac = true;
}

#[tokio::test(start_paused = true)]
async fn reschedules_when_the_selected_node_is_deleted() {
    for (group, plural) in [("", "nodes"), ("storage.k8s.io", "csinodes")] {
        let fixture = with_rights_of_charts();
        let _running = fixture.start_with(1, as_sidecar).await;
        fixture.claim("before", "late", on_node("node-b"));
        fixture.until("bound", || fixture.is_bound("before")).await;
        fixture.delete(group, plural, "", "node-b");
        fixture.claim("data", "late", on_node("node-b"));
        fixture.soon("unselected", || fixture.annotations("data").get(SELECTED).is_none()).await;
        assert_eq!(fixture.annotations("data")["example.com/kept"], "yes");
        fixture
            .wait_for_event(
                "data",
                "node-b of the selected node does not exist; the scheduler is asked for another node",
            )
            .await;
        assert_eq!(fixture.creations().len(), 1);
    }
}

// Rules: C27.
#[tokio::test(start_paused = true)]
async fn reschedules_when_the_zone_is_full() {
    let mut fixture = with_rights_of_charts();
    fixture.driver.configure(|settings| settings.pools[1].size = 0);
    fixture.settings.strict_topology = true;
    let _running = fixture.start_with(1, as_sidecar).await;
    fixture.claim("data", "late", on_node("node-b"));
    fixture.soon("unselected", || fixture.annotations("data").get(SELECTED).is_none()).await;
    fixture.wait_for_event("data", "the scheduler is asked for another node").await;
    // The scheduler selects another node.
    fixture.change_claim("data", on_node("node-a"));
    fixture.until("bound", || fixture.is_bound("data")).await;
    assert_eq!(fixture.zones(), [["b", "b"], ["a", "a"]]);
}

#[tokio::test(start_paused = true)]
async fn retries_on_the_new_node_if_the_attempt_ends_on_the_former_one() {
    let fixture = two_zones(cluster().build());
    let refused = |code| Step::refuse(code, "not here").after(Duration::from_secs(5));
    let steps = [Code::Aborted, Code::Aborted, Code::ResourceExhausted].map(refused);
    fixture.driver.script(Method::CreateVolume, steps);
    let _running = fixture.start_with(1, as_sidecar).await;
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("called", || fixture.creations().len() == 1).await;
    fixture.change_claim("data", on_node("node-a"));
    sleep(Duration::from_secs(120)).await;
    assert!(fixture.is_bound("data"), "{:?}", fixture.events("data"));
    assert!(!fixture.events("data").iter().any(|event| event.contains("asked for another node")));
}

/// Selects the node `next` for the claim `data` right before a sidecar updates a claim, while `former` is selected. It
/// begins once the built cluster is set.
pub(super) fn scheduler(former: Option<&'static str>, next: &'static str) -> (Arc<OnceLock<Cluster>>, Builder) {
    let built = Arc::new(OnceLock::<Cluster>::new());
    let scheduled = built.clone();
    let select = before(move |request| {
        if (&*request.resource.plural, request.verb) == ("persistentvolumeclaims", Verb::Update)
            && let Some(cluster) = scheduled.get()
        {
            let mut claim = cluster.get("", "persistentvolumeclaims", "default", "data").unwrap();
            if claim["metadata"]["annotations"][SELECTED].as_str() == former {
                kube_sim::merge_patch(&mut claim, on_node(next));
                cluster.update(&claim).unwrap();
            }
        }
        Before::Handle
    });
    (built, cluster().interceptor(select))
}

#[tokio::test(start_paused = true)]
async fn node_selected_concurrently_stays_selected() {
    let (scheduled, cluster) = scheduler(Some("node-b"), "node-a");
    let fixture = two_zones(cluster.build());
    let _ = scheduled.set(fixture.cluster.clone());
    fixture.delete_node("node-b");
    let _running = fixture.start_with(1, as_sidecar).await;
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("bound", || fixture.is_bound("data")).await;
    assert_eq!(fixture.annotations("data")[SELECTED], "node-a");
    assert_eq!(fixture.zones(), [["a", "a"]]);
}

#[tokio::test(start_paused = true)]
async fn notices_missing_labels_and_drivers_as_soon_as_they_appear() {
    const STORAGE: &str = "storage.k8s.io";
    let fixture = two_zones(cluster().build());
    fixture.create(node("bare", json!({"other": "x"})));
    fixture.create(csi_node("bare", json!([registered(&["zone"])])));
    fixture.create(node("rolling", json!({"zone": "b"})));
    fixture.create(csi_node("rolling", json!([{"name": "other.example.com", "nodeID": "id"}])));
    fixture.create(node("again", json!({"zone": "b"})));
    let mut former = csi_node("again", json!([registered(&["zone"])]));
    // The garbage collector deletes the CSINode of a former node. It leaves owners of unknown kinds.
    let uid = "11111111-2222-3333-4444-555555555555";
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Node", "name": "again", "uid": uid});
    former["metadata"]["ownerReferences"] = json!([owner]);
    fixture.create(former);
    let _running = fixture.start(1).await;
    for name in ["bare", "rolling", "again"] {
        fixture.claim(name, "late", on_node(name));
    }
    fixture.wait_for_event("bare", "the selected node bare lacks the label zone, which the CSI driver").await;
    fixture.wait_for_event("rolling", "has not registered on the selected node rolling yet").await;
    fixture.wait_for_event("again", "the CSINode again belongs to a deleted node of the same name").await;
    sleep(Duration::from_secs(4000)).await;
    assert!(fixture.creations().is_empty());
    fixture.change("", "nodes", "", "bare", json!({"metadata": {"labels": {"zone": "a"}}}));
    fixture.soon("label", || fixture.is_bound("bare")).await;
    fixture.change(STORAGE, "csinodes", "", "rolling", json!({"spec": {"drivers": [registered(&["zone"])]}}));
    fixture.soon("driver", || fixture.is_bound("rolling")).await;
    fixture.delete(STORAGE, "csinodes", "", "again");
    fixture.create(csi_node("again", json!([registered(&["zone"])])));
    fixture.soon("CSINode", || fixture.is_bound("again")).await;
}

#[tokio::test(start_paused = true)]
async fn claim_that_needs_any_node_waits_for_the_first_one() {
    let fixture = two_zones(cluster().build());
    ["a", "b"].iter().for_each(|zone| fixture.delete_node(&format!("node-{zone}")));
    let _running = fixture.start(1).await;
    fixture.claim("data", "fast", json!({}));
    fixture.wait_for_event("data", "no node has the labels of the topology keys").await;
    sleep(Duration::from_secs(4000)).await;
    fixture.create(csi_node("node-b", json!([registered(&["zone"])])));
    sleep(Duration::from_secs(60)).await;
    fixture.create(node("node-b", json!({"zone": "b"})));
    fixture.soon("bound", || fixture.is_bound("data")).await;
    assert_eq!(fixture.zones(), [["b", "b"]]);
}

/// The process dies during CreateVolume or before the volume is saved, the node is deleted, and another node appears.
#[tokio::test(start_paused = true)]
async fn every_call_repeats_the_requirement_of_the_first() {
    for (number, is_claim_deleted) in (0..20).map(|number| (number, number % 2 == 0)) {
        let fixture = with_rights_of_charts();
        fixture.driver.configure(|settings| settings.latency = Duration::from_millis(1000));
        let first = fixture.start_with(1, as_sidecar).await;
        let name = fixture.claim("data", "late", on_node("node-b"));
        fixture.until("asked", || fixture.creations().len() == 1).await;
        sleep(Duration::from_millis(number * 60)).await;
        first.abort();
        fixture.delete_node("node-b");
        fixture.add_node("node-c", json!({"zone": "c"}));
        if is_claim_deleted {
            fixture.delete_claim("data");
        }
        let second = fixture.start_with(2, as_sidecar).await;
        sleep(Duration::from_secs(90)).await;
        second.abort();
        assert!(fixture.zones().iter().all(|zones| *zones == ["ab", "ba"]), "{number}: {:?}", fixture.zones());
        if is_claim_deleted {
            assert!(fixture.driver.volumes().is_empty() && fixture.volume(&name).is_none(), "{number}");
        } else {
            assert_eq!((fixture.driver.volumes().len(), fixture.is_bound("data")), (1, true), "{number}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_for_a_deleted_node_continues_and_reports_it() {
    for code in [Code::Aborted, Code::DeadlineExceeded] {
        let fixture = two_zones(cluster().build());
        fixture.driver.script(Method::CreateVolume, vec![Step::refuse(code, "the agent does not answer"); 8]);
        let _running = fixture.start(1).await;
        let name = fixture.claim("data", "late", on_node("node-b"));
        fixture.until("asked", || fixture.creations().len() == 2).await;
        fixture.delete_node("node-b");
        fixture.wait_for_event("data", "begun for the node node-b, which no longer exists").await;
        fixture.wait_for_event("data", &format!("`journal drop {name}`")).await;
        assert_eq!(fixture.annotations("data")[SELECTED], "node-b");
        fixture.delete_claim("data");
        fixture.until("cleaned up", || fixture.creations().len() > 8 && fixture.driver.volumes().is_empty()).await;
        assert!(fixture.zones().iter().all(|zones| *zones == ["ab", "ba"]));
        assert!(fixture.volume(&name).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn affinity_uses_the_segments_of_the_answer() {
    let fixture = two_zones(cluster().build());
    let foreign = BTreeMap::from([("other.example.com/rack".to_owned(), "7".to_owned())]);
    let accessible_topology = [BTreeMap::new(), foreign, in_zone("b")].map(|segments| Topology { segments }).into();
    let volume = Volume { volume_id: "1".to_owned(), accessible_topology, ..Volume::default() };
    fixture.driver.script(Method::CreateVolume, [Step::answer(CreateVolumeResponse { volume: Some(volume) })]);
    let _running = fixture.start(1).await;
    let name = fixture.claim("data", "late", on_node("node-b"));
    fixture.until("saved", || fixture.volume(&name).is_some()).await;
    let term =
        |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    let terms = json!([term("other.example.com/rack", "7"), term("zone", "b")]);
    assert_eq!(fixture.volume(&name).unwrap()["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"], terms);
}

#[tokio::test(start_paused = true)]
async fn refused_copy_is_reported_with_source_and_zone() {
    let fixture = two_zones(cluster().build());
    fixture.define_snapshots();
    let _running = fixture.start(1).await;
    let volume = fixture.claim("source", "late", on_node("node-a"));
    fixture.until("bound", || fixture.is_bound("source")).await;
    fixture.snapshot("monday", &volume, json!({})).await;
    for (name, source, shown) in [
        ("clone", of_claim("source"), "source claim default/source"),
        ("restored", of_snapshot("monday"), "VolumeSnapshot default/monday"),
    ] {
        fixture.driver.script(Method::CreateVolume, [Step::refuse(Code::InvalidArgument, "the source is in zone a")]);
        let mut change = on_node("node-b");
        kube_sim::merge_patch(&mut change, source);
        fixture.claim(name, "late", change);
        let copy = format!("(for a copy of the {shown} in the topology zone=b)");
        fixture.wait_for_event(name, &format!("InvalidArgument: the source is in zone a {copy}")).await;
    }
}

/// With TopoLVM and LINSTOR, each node is a place.
#[tokio::test(start_paused = true)]
async fn the_places_of_a_large_cluster_fit_into_the_record() {
    let fixture = with_rights_of_charts();
    fixture.driver.configure(|settings| settings.pools[0].segments.clear());
    for number in 0..300 {
        let name = format!("node-{number:03}");
        fixture.add_node(&name, json!({"topology.example.com/host": name}));
    }
    fixture.driver.script(Method::CreateVolume, vec![Step::refuse(Code::Aborted, "busy"); 10]);
    let first = fixture.start_with(1, as_sidecar).await;
    let names: Vec<_> = (0..10).map(|number| format!("node-{:03}", number * 29)).collect();
    names.iter().for_each(|name| drop(fixture.claim(name, "late", on_node(name))));
    fixture.until("asked", || fixture.creations().len() >= 10).await;
    first.abort();
    let _second = fixture.start_with(2, as_sidecar).await;
    fixture.until("bound", || names.iter().all(|name| fixture.is_bound(name))).await;
    let mut asked = BTreeMap::new();
    for call in fixture.creations() {
        let requirement = call.accessibility_requirements.unwrap();
        assert!(requirement.requisite.len() >= 20);
        assert_eq!(requirement.requisite.len(), requirement.preferred.len());
        assert_eq!(*asked.entry(call.name).or_insert_with(|| requirement.clone()), requirement);
    }
    let preferred = asked.into_values().map(|one| one.preferred[0].segments["topology.example.com/host"].clone());
    assert_eq!(preferred.collect::<std::collections::BTreeSet<_>>(), names.into_iter().collect());
}
