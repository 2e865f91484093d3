//! Claims whose selected node does not exist, or has no replica that reconciles them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_provisioner::protocol::SELECTED_NODE;
use kube_provisioner::{
    Capabilities, Coordination, DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner,
    Volume,
};
use kube_sim::{Attributes, Authorizer, Cluster, Decision, DeleteOptions, PatchKind, Subresource, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::fixture::{CLAIMS, Fixture, Script, VOLUMES, volume};

/// A waiting claim shows the reason within this time.
const EVENT_LIMIT: Duration = Duration::from_secs(120);

/// Starts replicas on the new nodes `node-1` and `node-2`, and creates a class with WaitForFirstConsumer.
fn per_node(mut fixture: Fixture) -> Fixture {
    fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    fixture.options.coordination = Coordination::PerNode;
    for (number, node) in [(1, "node-1"), (2, "node-2")] {
        put_node(&fixture, node);
        fixture.options.node_name = Some(node.to_owned());
        drop(fixture.start(number));
    }
    fixture
}

/// Denies reading nodes.
struct NoNodes;

impl Authorizer for NoNodes {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let allowed = (attributes.verb, attributes.resource) != ("get", "nodes");
        Decision { allowed, reason: "is not allowed to read nodes".to_owned() }
    }

    fn rules(&self, _: &str, _: &[String], _: &str) -> Value {
        Value::Null
    }
}

// Rules: G40.
#[tokio::test(start_paused = true)]
async fn per_node_replicas_do_not_share_an_identity() {
    let mut fixture = Fixture::new(Script::default());
    fixture.options.coordination = Coordination::PerNode;
    fixture.options.node_name = Some("node-1".to_owned());
    for identity in ["storage", "node-10"] {
        fixture.options.identity = Some(identity.to_owned());
        let refused = fixture.start(1).await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("must contain the node's name, node-1"), "{refused}");
    }
}

pub(crate) fn put_node(fixture: &Fixture, name: &str) {
    fixture.cluster.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).unwrap();
}

fn node(name: &str) -> Target<'_> {
    Target { group: "", plural: "nodes", namespace: "", name }
}

pub(crate) fn claim(fixture: &Fixture, name: &str, node: &str) {
    fixture.claim_with(name, "late", json!({"metadata": {"annotations": {SELECTED_NODE: node}}}));
}

pub(crate) fn selected(fixture: &Fixture, claim: &str) -> Option<String> {
    let claim = fixture.get(CLAIMS, claim).unwrap();
    claim["metadata"]["annotations"][SELECTED_NODE].as_str().map(str::to_owned)
}

// Rules: G64.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_removed_from_its_claim() {
    let fixture = per_node(Fixture::new(Script::default()));
    claim(&fixture, "data", "gone");
    let took = fixture.until("the scheduler may choose again", || selected(&fixture, "data").is_none()).await;
    assert!(took < EVENT_LIMIT, "{took:?}");
    fixture.until("it has an event", || !fixture.events("data").is_empty()).await;
    fixture.patch(CLAIMS, "data", json!({"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}));
    fixture.until("the next node provisions it", || fixture.calls.count("provision data") == 1).await;
    sleep(Duration::from_secs(600)).await;
    let texts = fixture.events("data");
    let moved = "The selected node gone does not exist; the scheduler is asked for another node";
    assert_eq!(texts.iter().filter(|text| text.contains(moved)).count(), 1, "{texts:?}");
}

/// Idle requests matter, since a cluster with a thousand nodes has a thousand such replicas.
#[tokio::test(start_paused = true)]
async fn an_idle_per_node_replica_sends_only_watches() {
    let fixture = per_node(Fixture::on(Cluster::builder().hide_managed_fields().trace().build(), Script::default()));
    let claims: Vec<String> = (0..50).map(|at| format!("claim-{at}")).collect();
    claims.iter().for_each(|name| claim(&fixture, name, "node-1"));
    fixture.until("all are bound", || claims.iter().all(|name| fixture.is_bound(name))).await;
    sleep(Duration::from_secs(600)).await;
    let before = fixture.cluster.trace().lines().count();
    sleep(Duration::from_secs(3600)).await;
    let trace = fixture.cluster.trace();
    let ours: Vec<&str> = trace.lines().skip(before).filter(|line| line.contains(" ours-1 ")).collect();
    // Each of the three watches lasts five to ten minutes.
    assert!((18..=39).contains(&ours.len()), "{} requests: {ours:#?}", ours.len());
    assert!(ours.iter().all(|line| line.contains(" watch ")), "{ours:#?}");
}

// Rules: G64.
#[tokio::test(start_paused = true)]
async fn an_unreadable_node_is_not_treated_as_deleted() {
    let cluster = Cluster::builder().hide_managed_fields().authorizer(Arc::new(NoNodes)).build();
    let fixture = per_node(Fixture::on(cluster, Script::default()));
    claim(&fixture, "data", "gone");
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(selected(&fixture, "data").as_deref(), Some("gone"));
    let texts = fixture.events("data");
    assert!(texts.iter().all(|text| text.contains("is not allowed to read nodes")) && !texts.is_empty(), "{texts:?}");
}

// Rules: G64.
#[tokio::test(start_paused = true)]
async fn a_claim_reports_why_its_node_does_not_provision_it() {
    let fixture = per_node(Fixture::new(Script::default()));
    put_node(&fixture, "virtual");
    put_node(&fixture, "down");
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    fixture.cluster.patch(&node("down"), Some(Subresource::Status), PatchKind::Merge, &status).unwrap();
    put_node(&fixture, "crashing");
    fixture
        .cluster
        .create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "example.com-fixture-journal-node-crashing", "namespace": "default"},
        }))
        .unwrap();
    sleep(Duration::from_secs(10)).await;
    for node in ["virtual", "down", "crashing"] {
        claim(&fixture, &format!("on-{node}"), node);
    }
    sleep(EVENT_LIMIT).await;
    let texts = ["virtual", "down", "crashing"].map(|node| fixture.events(&format!("on-{node}")));
    for (texts, expected) in texts.iter().zip([
        "Warning ProvisioningFailed: No replica of example.com/fixture has run on the selected node virtual",
        "Warning ProvisioningFailed: The selected node down is not ready",
        "Normal Provisioning: The replica of example.com/fixture on the selected node crashing has not provisioned the volume",
    ]) {
        assert!(texts.len() == 1 && texts[0].starts_with(expected), "expected one event: {texts:?}");
    }
    assert_eq!(selected(&fixture, "on-virtual").as_deref(), Some("virtual"), "only an administrator can decide");
    // The node is deleted later.
    fixture.cluster.delete(&node("virtual"), DeleteOptions::default()).unwrap();
    fixture.until("the scheduler may choose again", || selected(&fixture, "on-virtual").is_none()).await;
}

// Rules: G77.
#[tokio::test(start_paused = true)]
async fn other_nodes_report_nothing_if_the_nodes_replica_refuses() {
    let fixture = per_node(Fixture::new(Script::default()));
    let block = json!({"metadata": {"annotations": {SELECTED_NODE: "node-2"}}, "spec": {"volumeMode": "Block"}});
    fixture.claim_with("data", "late", block);
    fixture.until("it is refused", || !fixture.events("data").is_empty()).await;
    sleep(Duration::from_secs(1800)).await;
    let texts = fixture.events("data");
    assert!(texts.len() == 1 && texts[0].contains("does not support block volume"), "{texts:?}");
}

// Rules: G64.
#[tokio::test(start_paused = true)]
async fn other_nodes_report_nothing_if_the_nodes_replica_provisions() {
    let fixture = per_node(Fixture::new(Script::default()));
    claim(&fixture, "data", "node-1");
    fixture.until("it is provisioned", || fixture.calls.count("provision data") == 1).await;
    sleep(Duration::from_secs(600)).await;
    let texts = fixture.events("data");
    assert!(texts.len() == 1 && texts[0].contains("ProvisioningSucceeded"), "{texts:?}");
}

/// A provisioner whose nodes have separate storage. Its calls take the time `takes`, or fail.
struct NodeLocal {
    node: &'static str,
    takes: Option<Duration>,
    assets: Assets,
}

/// The assets, as pairs of node and name.
type Assets = Arc<Mutex<BTreeSet<(&'static str, String)>>>;

impl Provisioner for NodeLocal {
    type Parameters = ();

    async fn provision(&self, request: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
        self.assets.lock().unwrap().insert((self.node, request.name.clone()));
        sleep(self.takes.ok_or_else(|| ProvisionError::retry("the disk is busy"))?).await;
        Ok(volume(&request.name))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Err(DeleteError::retry("no volume is deleted"))
    }

    async fn clean_up(&self, attempt: ProvisionRequest<()>) -> Result<(), DeleteError> {
        self.assets.lock().unwrap().remove(&(self.node, attempt.name));
        Ok(())
    }

    fn capabilities() -> Capabilities {
        Capabilities::default().node_local()
    }
}

impl Hooks for NodeLocal {}

// Rules: G49.
#[tokio::test(start_paused = true)]
async fn a_moved_claim_keeps_only_the_asset_of_its_volume() {
    let minutes = |count: u64| Some(Duration::from_secs(60 * count));
    for (first, second, expected) in
        [(None, minutes(0), "node-2"), (minutes(2), minutes(0), "node-2"), (minutes(1), minutes(2), "node-1")]
    {
        let mut fixture = Fixture::new(Script::default());
        fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
        fixture.options.coordination = Coordination::PerNode;
        let assets = Assets::default();
        for (number, node, takes) in [(1, "node-1", first), (2, "node-2", second)] {
            put_node(&fixture, node);
            fixture.options.node_name = Some(node.to_owned());
            drop(fixture.start_author(number, NodeLocal { node, takes, assets: assets.clone() }));
        }
        let on = |node: &str| json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
        let name = fixture.claim_with("data", "late", on("node-1"));
        fixture.until("begun", || !assets.lock().unwrap().is_empty()).await;
        fixture.patch(CLAIMS, "data", on("node-2"));
        fixture.until("bound", || fixture.is_bound("data")).await;
        let expected = BTreeSet::from([(expected, name)]);
        fixture.until("one asset remains", || *assets.lock().unwrap() == expected).await;
        fixture.until("the entries are removed", || fixture.entries().is_empty()).await;
        assert!(fixture.is_bound("data"));
    }
}

/// Both nodes may have used the same asset, which now belongs to the volume.
#[tokio::test(start_paused = true)]
async fn possibly_shared_storage_is_kept_when_a_claim_moves() {
    let script = Script {
        provision: Box::new(|request| {
            Box::pin(async move {
                match request.selected_node.as_deref() {
                    Some("node-1") => Err(ProvisionError::retry("the backend is busy")),
                    _ => Ok(volume(&request.name)),
                }
            })
        }),
        ..Script::default()
    };
    let fixture = per_node(Fixture::new(script));
    claim(&fixture, "data", "node-1");
    fixture.until("begun", || fixture.calls.count("provision data") == 1).await;
    fixture.patch(CLAIMS, "data", json!({"metadata": {"annotations": {SELECTED_NODE: "node-2"}}}));
    fixture.until("bound", || fixture.is_bound("data")).await;
    fixture.until("the entries are removed", || fixture.entries().is_empty()).await;
    assert_eq!(fixture.calls.count("clean_up"), 0);
}

/// If one of twenty replicas is down, another replica checks the node in the next round.
#[tokio::test(start_paused = true)]
async fn one_replica_at_a_time_checks_the_node_of_a_released_volume() {
    const NODES: u64 = 20;
    let cluster = Cluster::builder().hide_managed_fields().trace().build();
    let mut fixture = Fixture::on(cluster, Script::default());
    fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    fixture.options.coordination = Coordination::PerNode;
    let mut replicas = Vec::new();
    for number in 0..NODES {
        let node = format!("node-{number:02}");
        put_node(&fixture, &node);
        fixture.options.node_name = Some(node.clone());
        replicas.push(fixture.start(number));
        claim(&fixture, &format!("on-{node}"), &node);
    }
    fixture.until("all are bound", || (0..NODES).all(|number| fixture.is_bound(&format!("on-node-{number:02}")))).await;
    let volume = fixture.get(CLAIMS, "on-node-07").unwrap()["spec"]["volumeName"].as_str().unwrap().to_owned();
    replicas[7].abort();
    fixture.delete(CLAIMS, "on-node-07");
    let looks = || fixture.cluster.trace().lines().filter(|line| line.contains(" get nodes node-07: ")).count();
    let before = looks();
    let mut counts = Vec::new();
    for _ in 0..10 {
        sleep(Duration::from_secs(300)).await;
        counts.push(looks() - before);
    }
    assert_eq!(
        counts,
        (0..10).collect::<Vec<_>>(),
        "expected one check per period, after a period for the node's own replica"
    );
    fixture.cluster.delete(&node("node-07"), DeleteOptions::default()).unwrap();
    let gone = "is on the node node-07, which no longer exists";
    let took =
        fixture.until("the event exists", || fixture.events(&volume).iter().any(|text| text.contains(gone))).await;
    assert!(took <= Duration::from_secs(301), "{took:?}");
    assert!(fixture.get(VOLUMES, &volume).is_some());
}

// Rules: G64.
/// With a Lease, the only replica reads the node before it makes a call.
#[tokio::test(start_paused = true)]
async fn an_attempt_on_a_removed_node_is_kept() {
    let script = Script {
        provision: Box::new(|request| {
            Box::pin(async move {
                if request.resumed {
                    Ok(volume(&request.name))
                } else {
                    Err(ProvisionError::retry("the backend is busy"))
                }
            })
        }),
        ..Script::default()
    };
    let fixture = Fixture::new(script);
    fixture.class("late", json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    let _running = fixture.start(1);
    claim(&fixture, "nothing-made", "gone");
    fixture.until("the scheduler may choose again", || selected(&fixture, "nothing-made").is_none()).await;
    assert_eq!(fixture.calls.count("provision"), 0);
    put_node(&fixture, "there");
    claim(&fixture, "begun", "there");
    fixture.until("it is begun", || fixture.calls.count("provision begun") == 1).await;
    fixture.cluster.delete(&node("there"), DeleteOptions::default()).unwrap();
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(selected(&fixture, "begun").as_deref(), Some("there"));
    let reports_node = |text: &String| text.contains("The selected node there does not exist");
    assert!(fixture.events("begun").iter().any(reports_node), "{:?}", fixture.events("begun"));
    put_node(&fixture, "there");
    fixture.until("it is bound", || fixture.is_bound("begun")).await;
}
