//! Tests of CSIStorageCapacity objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_provisioner::CapacitySettings;
use csi_sim::{Method, Step};
use driver_rpc::Code;
use driver_rpc::csi::{GetCapacityRequest, GetCapacityResponse};
use kube_sim::{Before, Cluster, Verb};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::fixture::{Fixture, before, cluster};
use super::topology::{DRIVER, SELECTED, class, csi_node, node, on_node, registered, two_zones};

const GROUP: &str = "storage.k8s.io";
const PLURAL: &str = "csistoragecapacities";
/// The capacity of an empty pool.
const POOL: &str = "1Ti";

/// Returns a fixture whose driver has two zones and reports its capacity.
fn fixture() -> Fixture {
    with_capacity(cluster().build())
}

fn with_capacity(cluster: Cluster) -> Fixture {
    let mut fixture = two_zones(cluster);
    fixture.settings.capacity = Some(CapacitySettings::new("default"));
    fixture
}

impl Fixture {
    fn capacities(&self) -> Vec<Value> {
        self.cluster.list(GROUP, PLURAL, Some("default")).unwrap()
    }

    /// Returns the class, zone and capacity of each object.
    fn published(&self) -> BTreeSet<String> {
        let text = |object: &Value| {
            let zone = &object["nodeTopology"]["matchLabels"]["zone"];
            let [class, zone, capacity] = [&object["storageClassName"], zone, &object["capacity"]];
            [class, zone, capacity].map(|text| text.as_str().unwrap_or("-")).join(" ")
        };
        let all: Vec<_> = self.capacities().iter().map(text).collect();
        let different: BTreeSet<_> = all.iter().cloned().collect();
        // A duplicate object exists only for a moment.
        if different.len() == all.len() { different } else { BTreeSet::from(["twice".to_owned()]) }
    }

    async fn wait_for_capacities(&self, expected: &[&str]) {
        let expected: BTreeSet<_> = expected.iter().map(|text| (*text).to_owned()).collect();
        let start = Instant::now();
        while self.published() != expected {
            assert!(start.elapsed() < Duration::from_secs(600), "{:?} instead of {expected:?}", self.published());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Like [`Self::wait_for_capacities`], but within two seconds.
    async fn wait_briefly_for_capacities(&self, expected: &[&str]) {
        let start = Instant::now();
        self.wait_for_capacities(expected).await;
        assert!(start.elapsed() <= Duration::from_secs(2), "{expected:?}: {:?}", start.elapsed());
    }

    fn capacity_request_count(&self) -> usize {
        self.driver.requests::<GetCapacityRequest>().len()
    }

    /// Creates a pod, and returns its uid.
    fn pod(&self, name: &str) -> String {
        let pod = self.cluster.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }));
        pod.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn change_capacity(&self, name: &str, change: Value) {
        self.change(GROUP, PLURAL, "default", name, change);
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Returns an object in external-provisioner's format.
fn object(name: &str, class: &str, selector: Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {
            "name": name, "namespace": "default",
            "labels": {
                "csi.storage.k8s.io/drivername": DRIVER, "csi.storage.k8s.io/managed-by": "external-provisioner",
            },
        },
        "storageClassName": class, "nodeTopology": selector, "capacity": "5Gi",
    })
}

fn zone(zone: &str) -> Value {
    json!({"matchLabels": {"zone": zone}})
}

#[tokio::test(start_paused = true)]
async fn each_class_and_segment_has_an_object() {
    let mut fixture = fixture();
    fixture.add_node("second-in-a", json!({"zone": "a"}));
    fixture.create(node("without-driver", json!({"zone": "c"})));
    fixture.create(csi_node("without-node", json!([registered(&["zone"])])));
    fixture.create(node("without-label", json!({})));
    fixture.create(csi_node("without-label", json!([registered(&["zone"])])));
    fixture.create(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "other"},
        "provisioner": "other.example.com", "volumeBindingMode": "WaitForFirstConsumer"}));
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let mut owners = Value::Null;
    let mut own = |kind: &str, name: &str, api_version: &str, spec: &Value| {
        let object = json!({
            "apiVersion": api_version, "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owners.take()},
        });
        let uid = fixture.cluster.create(&object).unwrap()["metadata"]["uid"].take();
        owners = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
        owners.clone()
    };
    let replicas = json!({
        "selector": {"matchLabels": {"app": "driver"}}, "template": {"metadata": {"labels": {"app": "driver"}}, "spec": pod},
    });
    let owner = own("Deployment", "driver", "apps/v1", &replicas);
    own("ReplicaSet", "driver-1", "apps/v1", &replicas);
    own("Pod", "driver-1-x", "v1", &pod);
    let capacity = fixture.settings.capacity.as_mut().unwrap();
    capacity.owner = Some(("driver-1-x".to_owned(), 2));
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    let mut first = fixture.capacities().remove(0);
    let metadata = first["metadata"].take();
    assert!(metadata["name"].as_str().unwrap().starts_with("csisc-"), "{metadata}");
    let expected = object("", "", json!(null));
    assert_eq!(metadata["labels"], expected["metadata"]["labels"]);
    assert_eq!(metadata["ownerReferences"], owner);
    assert_eq!(first["maximumVolumeSize"], POOL);
    let requests = fixture.driver.requests::<GetCapacityRequest>();
    assert!(requests[0].volume_capabilities.is_empty() && requests[0].accessible_topology.is_some());
}

#[tokio::test(start_paused = true)]
async fn publishes_nothing_without_the_owner() {
    let mut fixture = fixture();
    fixture.settings.capacity.as_mut().unwrap().owner = Some(("missing".to_owned(), 1));
    let running = fixture.start(1).await;
    sleep(Duration::from_secs(60)).await;
    assert!(fixture.capacities().is_empty() && fixture.capacity_request_count() == 0);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn objects_follow_changes_of_classes() {
    let fixture = fixture();
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    let allowed = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]);
    fixture.create(class("in-b", "WaitForFirstConsumer", allowed));
    let unknown = json!([{"matchLabelExpressions": [{"key": "rack", "values": ["7"]}]}]);
    fixture.create(class("rack", "WaitForFirstConsumer", unknown));
    let expected = ["late a 1Ti", "late b 1Ti", "in-b b 1Ti", "rack a 1Ti", "rack b 1Ti"];
    fixture.wait_briefly_for_capacities(&expected).await;
    fixture.delete(GROUP, "storageclasses", "", "late");
    fixture.wait_briefly_for_capacities(&expected[2..]).await;
    let mut again = class("late", "WaitForFirstConsumer", json!(null));
    again["parameters"] = json!({"tier": "fast", "csi.storage.k8s.io/fstype": "xfs"});
    fixture.create(again.clone());
    fixture.wait_briefly_for_capacities(&expected).await;
    let last = fixture.driver.requests::<GetCapacityRequest>().pop().unwrap();
    assert_eq!(json!(last.parameters), again["parameters"]);
}

#[tokio::test(start_paused = true)]
async fn publishes_for_immediate_binding_if_enabled() {
    let mut fixture = fixture();
    fixture.settings.capacity.as_mut().unwrap().for_immediate_binding = true;
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti", "fast a 1Ti", "fast b 1Ti"]).await;
}

#[tokio::test(start_paused = true)]
async fn objects_follow_changes_of_nodes() {
    let fixture = fixture();
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    fixture.add_node("node-c", json!({"zone": "c"}));
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti", "late c 0"]).await;
    fixture.delete("", "nodes", "", "node-a");
    fixture.wait_briefly_for_capacities(&["late b 1Ti", "late c 0"]).await;
    fixture.change("", "nodes", "", "node-c", json!({"metadata": {"labels": {"zone": "a"}}}));
    fixture.wait_briefly_for_capacities(&["late b 1Ti", "late a 1Ti"]).await;
    fixture.change("", "nodes", "", "node-b", json!({"metadata": {"labels": {"zone": null}}}));
    fixture.wait_briefly_for_capacities(&["late a 1Ti"]).await;
    fixture.change(GROUP, "csinodes", "", "node-c", json!({"spec": {"drivers": null}}));
    fixture.wait_briefly_for_capacities(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn driver_without_topology_keys_has_one_object() {
    let mut fixture = Fixture::new();
    fixture.settings.capacity = Some(CapacitySettings::new("default"));
    fixture.create(class("late", "WaitForFirstConsumer", json!(null)));
    for name in ["one", "two"] {
        fixture.create(node(name, json!({"zone": name})));
        fixture.create(csi_node(name, json!([{"name": DRIVER, "nodeID": name}])));
    }
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late - 1Pi"]).await;
    assert_eq!(fixture.capacities()[0]["nodeTopology"], json!({}));
    sleep(Duration::from_secs(300)).await;
    assert_eq!(fixture.capacities().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn recreates_objects_that_others_delete_or_change() {
    let fixture = fixture();
    fixture.create(object("near-a", "late", zone("a")));
    let mut foreign = object("foreign", "late", zone("a"));
    foreign["metadata"]["labels"] = json!({"csi.storage.k8s.io/drivername": DRIVER});
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    // The program takes over the existing object.
    assert!(fixture.cluster.get(GROUP, PLURAL, "default", "near-a").is_ok());
    fixture.delete(GROUP, PLURAL, "default", "near-a");
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    let taken = name(&fixture.capacities()[0]);
    fixture.change_capacity(&taken, json!({"metadata": {"labels": {"csi.storage.k8s.io/managed-by": "me"}}}));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(fixture.capacities().len(), 3);
    fixture.delete(GROUP, PLURAL, "default", &taken);
    fixture.create(foreign);
    // Obsolete objects are deleted: a duplicate, one for an unknown class, and those for nodes unknown to the driver.
    fixture.create(object("z-second", "late", zone("a")));
    fixture.create(object("unknown", "unknown", zone("a")));
    fixture.create(object("wider", "late", json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]})));
    fixture.create(object("nowhere", "late", json!(null)));
    fixture.until("three", || fixture.capacities().len() == 3).await;
    fixture.delete(GROUP, PLURAL, "default", "foreign");
    fixture.wait_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
}

#[tokio::test(start_paused = true)]
async fn replaces_the_controller_and_keeps_other_metadata() {
    let mut fixture = fixture();
    let mut former = object("former", "late", zone("a"));
    let reference = |name: &str, uid: &str, controller: bool| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": controller});
    let (own, friend) = (fixture.pod("driver-0"), fixture.pod("friend"));
    former["metadata"]["ownerReferences"] =
        json!([reference("friend", &friend, false), reference("friend", "gone", true)]);
    former["metadata"]["annotations"] = json!({"example.com/kept": "yes"});
    former["capacity"] = json!(POOL);
    former["maximumVolumeSize"] = json!(POOL);
    fixture.create(former);
    fixture.settings.capacity.as_mut().unwrap().owner = Some(("driver-0".to_owned(), 0));
    let _running = fixture.start(1).await;
    fixture
        .until("owned", || {
            let object = fixture.cluster.get(GROUP, PLURAL, "default", "former").unwrap();
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.iter().any(|owner| owner["uid"] == own.as_str())
        })
        .await;
    let object = fixture.cluster.get(GROUP, PLURAL, "default", "former").unwrap();
    let owners = json!([reference("friend", &friend, false), reference("driver-0", &own, true)]);
    assert_eq!(object["metadata"]["ownerReferences"], owners);
    assert_eq!(object["metadata"]["annotations"]["example.com/kept"], "yes");
}

#[tokio::test(start_paused = true)]
async fn created_and_deleted_volumes_update_capacity_at_once() {
    let fixture = fixture();
    let _running = fixture.start(1).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("bound", || fixture.is_bound("data")).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1023Gi"]).await;
    // Without a refresh, the driver is asked for each segment once a minute.
    let asked = fixture.capacity_request_count();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.capacity_request_count() - asked, 20);
    fixture.delete_claim("data");
    fixture.until("deleted", || fixture.driver.volumes().is_empty()).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    fixture.driver.configure(|settings| settings.pools[0].size = 1 << 41);
    let start = Instant::now();
    fixture.wait_for_capacities(&["late a 2Ti", "late b 1Ti"]).await;
    assert!(start.elapsed() <= Duration::from_secs(61), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn publishes_a_full_zone_before_rescheduling() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let changed = order.clone();
    let record = before(move |request| {
        let kind = &*request.resource.plural;
        if [PLURAL, "persistentvolumeclaims"].contains(&kind) && [Verb::Update, Verb::Create].contains(&request.verb) {
            changed.lock().unwrap().push(kind.to_owned());
        }
        Before::Handle
    });
    let mut fixture = with_capacity(cluster().interceptor(record).build());
    fixture.settings.strict_topology = true;
    let _running = fixture.start_with(1, |options| options.sidecar_rbac = true).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    fixture.driver.configure(|settings| settings.pools[1].size = 0);
    order.lock().unwrap().clear();
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("unselected", || fixture.annotations("data").get(SELECTED).is_none()).await;
    assert_eq!(fixture.published(), BTreeSet::from(["late a 1Ti".to_owned(), "late b 0".to_owned()]));
    assert_eq!(*order.lock().unwrap(), [PLURAL, "persistentvolumeclaims"]);
}

#[tokio::test(start_paused = true)]
async fn reschedules_even_if_get_capacity_hangs() {
    let mut fixture = fixture();
    fixture.settings.strict_topology = true;
    let _running = fixture.start_with(1, |options| options.sidecar_rbac = true).await;
    fixture.wait_briefly_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    fixture.driver.configure(|settings| settings.pools[1].size = 0);
    fixture.driver.script(Method::GetCapacity, vec![Step::hang(); 1000]);
    let start = Instant::now();
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("unselected", || fixture.annotations("data").get(SELECTED).is_none()).await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn failing_segment_does_not_block_others() {
    let fixture = fixture();
    fixture.driver.script(Method::GetCapacity, vec![Step::refuse(Code::Internal, "no"); 4]);
    let _running = fixture.start(1).await;
    let start = Instant::now();
    fixture.wait_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    // Both segments back off for 1 s and 2 s, in parallel.
    assert!(start.elapsed() > Duration::from_secs(2) && start.elapsed() < Duration::from_secs(5));
    let asked = fixture.capacity_request_count();
    fixture.driver.script(Method::GetCapacity, vec![Step::refuse(Code::Internal, "no"); 1000]);
    sleep(Duration::from_secs(3600)).await;
    let asked = fixture.capacity_request_count() - asked;
    assert!((100..150).contains(&asked), "{asked} calls in an hour for two segments and a poll interval of a minute");
    // Provisioning continues.
    fixture.claim("data", "late", on_node("node-b"));
    fixture.until("bound", || fixture.is_bound("data")).await;
}

#[tokio::test(start_paused = true)]
async fn class_deleted_during_get_capacity_leaves_no_object() {
    let fixture = fixture();
    fixture.driver.script(Method::GetCapacity, vec![Step::work().after(Duration::from_secs(10)); 2]);
    let _running = fixture.start(1).await;
    sleep(Duration::from_secs(3)).await;
    fixture.delete(GROUP, "storageclasses", "", "late");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.capacities(), [Value::Null; 0]);
}

#[tokio::test(start_paused = true)]
async fn class_recreated_during_get_capacity_gets_its_new_capacity() {
    let fixture = fixture();
    let former = GetCapacityResponse { available_capacity: 5 << 30, ..GetCapacityResponse::default() };
    fixture.driver.script(Method::GetCapacity, [Step::answer(former).after(Duration::from_secs(10))]);
    let _running = fixture.start(1).await;
    fixture.until("asked", || fixture.capacity_request_count() == 1).await;
    fixture.delete(GROUP, "storageclasses", "", "late");
    let mut again = class("late", "WaitForFirstConsumer", json!(null));
    again["parameters"] = json!({"tier": "fast"});
    fixture.create(again);
    let start = Instant::now();
    fixture.wait_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
    // The next poll is up to a minute away.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let requests = fixture.driver.requests::<GetCapacityRequest>();
    assert!(requests[0].parameters.is_empty());
    assert!(requests[1..].iter().all(|request| request.parameters["tier"] == "fast"), "{requests:?}");
}

/// The time limit of a request may pass before the API server creates the object.
#[tokio::test(start_paused = true)]
async fn object_created_after_a_timeout_is_adopted_or_deleted() {
    for is_class_deleted in [false, true] {
        let is_first = AtomicBool::new(true);
        let late = before(move |request| {
            let is_creation = request.resource.plural == PLURAL && request.verb == Verb::Create;
            let is_cut = is_creation && is_first.swap(false, Ordering::Relaxed);
            if is_cut { Before::BreakAndHandle(Duration::from_secs(20)) } else { Before::Handle }
        });
        let fixture = with_capacity(cluster().interceptor(late).build());
        let _running = fixture.start(1).await;
        fixture.wait_for_capacities(&["late a 1Ti", "late b 1Ti"]).await;
        let mut expected = vec!["late a 1Ti", "late b 1Ti"];
        if is_class_deleted {
            fixture.delete(GROUP, "storageclasses", "", "late");
            expected.clear();
        }
        sleep(Duration::from_secs(60)).await;
        fixture.wait_briefly_for_capacities(&expected).await;
        sleep(Duration::from_secs(100)).await;
        assert_eq!(fixture.capacities().len(), expected.len());
    }
}

#[tokio::test(start_paused = true)]
async fn killed_processes_leave_one_object_per_segment() {
    let mut fixture = fixture();
    fixture.settings.capacity.as_mut().unwrap().poll_interval = Duration::from_secs(1);
    for number in 1..=20_u32 {
        fixture.driver.configure(|settings| settings.pools[0].size = (1 << 40) + (i64::from(number) << 30));
        let running = fixture.start(number.into()).await;
        sleep(Duration::from_millis(700 + 40 * u64::from(number))).await;
        running.abort();
        if number % 3 == 0 {
            fixture.capacities().iter().for_each(|object| fixture.delete(GROUP, PLURAL, "default", &name(object)));
        }
    }
    let _running = fixture.start(21).await;
    fixture.wait_for_capacities(&["late a 1044Gi", "late b 1Ti"]).await;
    sleep(Duration::from_secs(100)).await;
    assert_eq!(fixture.capacities().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn slow_driver_with_a_thousand_segments_is_polled_fairly() {
    let mut fixture = fixture();
    let capacity = fixture.settings.capacity.as_mut().unwrap();
    capacity.poll_interval = Duration::from_secs(1);
    for number in 0..998 {
        let name = format!("node-{number}");
        fixture.add_node(&name, json!({"zone": format!("z{number}")}));
    }
    fixture.driver.configure(|settings| settings.latency = Duration::from_millis(20));
    let _running = fixture.start(1).await;
    let start = Instant::now();
    fixture.until("all", || fixture.capacities().len() == 1000).await;
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    let asked = fixture.capacity_request_count();
    sleep(Duration::from_secs(40)).await;
    let rate = (fixture.capacity_request_count() - asked) / 40;
    assert!((45..=50).contains(&rate), "{rate} calls per second");
    // Every segment gets its turn, and a new segment does not wait for all others.
    let requests = fixture.driver.requests::<GetCapacityRequest>();
    let places = |requests: &[GetCapacityRequest]| {
        let places = requests.iter().map(|request| json!(request.accessible_topology.as_ref().unwrap().segments));
        places.map(|place| place.to_string()).collect::<BTreeSet<_>>().len()
    };
    assert_eq!(places(&requests[requests.len() - 1100..]), 1000);
    fixture.add_node("new", json!({"zone": "new"}));
    let is_there = || fixture.capacities().iter().any(|object| object["nodeTopology"] == zone("new"));
    fixture.soon("new", is_there).await;
}

/// A situation in `capacity.jsonl`, which `testbed/csi-capacity/record.sh` records from external-provisioner.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    immediate: bool,
    no_owner: bool,
    segments: Vec<Value>,
    classes: Option<Vec<RecordedClass>>,
    objects: Option<Vec<RecordedObject>>,
    steps: Option<Vec<RecordedStep>>,
    results: Vec<BTreeSet<RecordedObject>>,
}

#[derive(Deserialize)]
struct RecordedClass {
    name: String,
    driver: String,
    #[serde(default)]
    immediate: bool,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default, rename_all = "camelCase")]
struct RecordedObject {
    /// Empty for an object that the program created.
    name: String,
    class: String,
    segment: BTreeMap<String, String>,
    capacity: String,
    largest: String,
    managed_by: String,
    owned: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum RecordedStep {
    AddSegment(Value),
    RemoveSegment(Value),
    AddClass(RecordedClass),
    RemoveClass(String),
    /// Deletes the objects for this zone.
    Delete(String),
    Relabel(String),
    Sizes(BTreeMap<String, i64>),
    Create(RecordedObject),
}

impl RecordedClass {
    fn object(&self) -> Value {
        let mode = if self.immediate { "Immediate" } else { "WaitForFirstConsumer" };
        let mut class = class(&self.name, mode, json!(null));
        if self.driver == "other-driver" {
            class["provisioner"] = json!("other.example.com");
        }
        class
    }
}

impl RecordedObject {
    fn object(&self, owner: &Value) -> Value {
        let mut object = object(&self.name, &self.class, json!({"matchLabels": self.segment}));
        object["capacity"] = json!(self.capacity);
        if !self.largest.is_empty() {
            object["maximumVolumeSize"] = json!(self.largest);
        }
        match &*self.managed_by {
            "" => {}
            "none" => object["metadata"]["labels"] = json!({}),
            other => object["metadata"]["labels"]["csi.storage.k8s.io/managed-by"] = json!(other),
        }
        if self.owned {
            object["metadata"]["ownerReferences"] = json!([owner]);
        }
        object
    }

    fn of(object: &Value, owner: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let owners = object["metadata"]["ownerReferences"].as_array();
        Self {
            name: Some(name(object)).filter(|name| !name.starts_with("csisc-")).unwrap_or_default(),
            class: text(&object["storageClassName"]),
            segment: serde_json::from_value(object["nodeTopology"]["matchLabels"].clone()).unwrap_or_default(),
            capacity: text(&object["capacity"]),
            largest: text(&object["maximumVolumeSize"]),
            managed_by: text(&object["metadata"]["labels"]["csi.storage.k8s.io/managed-by"]),
            owned: owners.is_some_and(|owners| owners.contains(owner)),
        }
    }
}

impl Fixture {
    fn add_segment(&self, segment: &Value) {
        self.add_node(&node_of(segment), segment.clone());
    }

    fn step(&self, step: &RecordedStep, owner: &Value) {
        let in_zone = |zone: &str| {
            let mut objects = self.capacities();
            objects.retain(|object| object["nodeTopology"]["matchLabels"]["zone"] == zone);
            objects.into_iter().map(|object| name(&object))
        };
        match step {
            RecordedStep::AddSegment(segment) => self.add_segment(segment),
            RecordedStep::RemoveSegment(segment) => self.delete("", "nodes", "", &node_of(segment)),
            RecordedStep::AddClass(class) => self.create(class.object()),
            RecordedStep::RemoveClass(name) => self.delete(GROUP, "storageclasses", "", name),
            RecordedStep::Delete(zone) => in_zone(zone).for_each(|name| self.delete(GROUP, PLURAL, "default", &name)),
            RecordedStep::Relabel(zone) => {
                let labels = json!({"metadata": {"labels": {"csi.storage.k8s.io/managed-by": "manual"}}});
                in_zone(zone).for_each(|name| self.change_capacity(&name, labels.clone()));
            }
            RecordedStep::Sizes(sizes) => self.driver.configure(|settings| {
                for pool in &mut settings.pools {
                    pool.size = *sizes.get(&pool.name).unwrap_or(&pool.size);
                }
            }),
            RecordedStep::Create(object) => self.create(object.object(owner)),
        }
    }
}

fn node_of(segment: &Value) -> String {
    segment.as_object().unwrap().values().map(|value| value.as_str().unwrap()).collect::<Vec<_>>().join("-")
}

#[tokio::test(start_paused = true)]
async fn objects_match_external_provisioner_in_recorded_situations() {
    let lines = include_str!("capacity.jsonl").lines();
    let mut count = 0;
    for line in lines {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let mut fixture = fixture();
        for zone in ["a", "b"] {
            fixture.delete("", "nodes", "", &format!("node-{zone}"));
        }
        fixture.delete(GROUP, "storageclasses", "", "late");
        fixture.delete(GROUP, "storageclasses", "", "fast");
        fixture.driver.configure(|settings| {
            (settings.pools[0].size, settings.pools[1].size) = (1 << 30, 2 << 30);
        });
        let uid = fixture.pod("driver-0");
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "driver-0", "uid": uid, "controller": true});
        let capacity = fixture.settings.capacity.as_mut().unwrap();
        capacity.for_immediate_binding = recorded.immediate;
        capacity.owner = (!recorded.no_owner).then(|| ("driver-0".to_owned(), 0));
        recorded.segments.iter().for_each(|segment| fixture.add_segment(segment));
        recorded.classes.iter().flatten().for_each(|class| fixture.create(class.object()));
        recorded.objects.iter().flatten().for_each(|object| fixture.create(object.object(&owner)));
        let running = fixture.start(1).await;
        let mut steps = recorded.steps.iter().flatten();
        for result in &recorded.results {
            sleep(Duration::from_secs(70)).await;
            let objects: Vec<_> =
                fixture.capacities().iter().map(|object| RecordedObject::of(object, &owner)).collect();
            assert_eq!(objects.len(), result.len(), "{line}");
            assert_eq!(objects.into_iter().collect::<BTreeSet<_>>(), *result, "{line}");
            if let Some(step) = steps.next() {
                fixture.step(step, &owner);
            }
        }
        running.abort();
        count += 1;
    }
    assert!(count >= 40, "{count}");
}
