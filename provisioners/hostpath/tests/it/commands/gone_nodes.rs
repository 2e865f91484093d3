//! The command that abandons volumes of nodes that no longer exist.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use kube_sim::{After, Cluster, Interceptor, Request, Verb};
use serde_json::{Value, json};

use super::world::*;

fn volume(world: &World, name: &str, claim: &Value) {
    volume_since(world, name, claim, "2026-01-01T00:00:00Z");
}

fn volume_since(world: &World, name: &str, claim: &Value, since: &str) {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER,
            "hostpath-provisioner/node": "gone", "hostpath-provisioner/node-gone-since": since}},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": world.path(name)}, "claimRef": claim}});
    world.cluster.create(&volume).unwrap();
}

fn is_deleted(world: &World, volume: &str) -> bool {
    let found = world.cluster.get("", "persistentvolumes", "", volume);
    found.map_or(true, |volume| volume["metadata"]["deletionTimestamp"].is_string())
}

#[test]
fn a_volume_that_cannot_be_abandoned_does_not_block_others() {
    let world = World::new();
    volume(&world, "pv-1", &json!({"namespace": "shop"}));
    volume(&world, "pv-2", &json!({"namespace": "shop", "name": "data", "uid": "uid"}));
    let (ok, text) = world.run(&["gone-nodes", "--delete", "--grace", "0s"], "");
    assert!(!ok && text.contains("volumes were not changed (1 in total)"), "{text}");
    assert!(line(&text, "pv-1").starts_with("pv-1: ") && line(&text, "pv-2").contains("abandoned"), "{text}");
    assert!(!is_deleted(&world, "pv-1") && is_deleted(&world, "pv-2"));
}

/// A released volume outlives the namespace of its claim.
#[test]
fn lists_a_volume_whose_claims_namespace_was_deleted() {
    let world = World::new();
    volume_since(&world, "pv-1", &json!({"namespace": "shop", "name": "data", "uid": "uid"}), "");
    let (ok, text) = world.run(&["gone-nodes"], "");
    assert!(ok && text.contains("pv-1: the node gone of this volume no longer exists"), "{text}");
}

/// Registers the node again after the nodes were listed.
#[derive(Default)]
struct Returns(OnceLock<Cluster>);

impl Interceptor for Returns {
    fn after<'a>(&'a self, request: &'a Request, _: u16) -> Pin<Box<dyn Future<Output = After> + Send + 'a>> {
        let is_listed = request.verb == Verb::List && request.resource.plural == "nodes";
        if let Some(cluster) = self.0.get().filter(|_| is_listed) {
            // When the nodes are listed again, the node already exists.
            let _ = cluster.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gone"}}));
        }
        Box::pin(async { After::Deliver })
    }
}

#[test]
fn a_node_that_returns_during_a_run_keeps_its_volumes() {
    let returns = Arc::new(Returns::default());
    let world = World::behind(returns.clone());
    assert!(returns.0.set(world.cluster.clone()).is_ok());
    volume(&world, "pv-1", &json!({"namespace": "shop", "name": "data", "uid": "uid"}));
    let (ok, text) = world.run(&["gone-nodes", "--delete", "--grace", "0s"], "");
    assert!(ok && text.contains("pv-1: the node gone is back"), "{text}");
    assert!(!is_deleted(&world, "pv-1"));
}

#[test]
fn a_gone_since_time_in_the_future_extends_the_grace_period() {
    let world = World::new();
    let claim = json!({"namespace": "shop", "name": "data", "uid": "uid"});
    volume_since(&world, "pv-1", &claim, "2999-01-01T00:00:00Z");
    let (ok, text) = world.run(&["gone-nodes", "--delete", "--grace", "1h"], "");
    assert!(ok && text.contains("has not existed since 2999"), "{text}");
    assert!(!is_deleted(&world, "pv-1"));
}

/// Adopted volumes keep the name of their former provisioner.
#[test]
fn lists_volumes_of_additional_provisioner_names() {
    let world = World::new();
    volume(&world, "pv-1", &json!({"namespace": "shop", "name": "data", "uid": "uid"}));
    for (names, lists) in [("example.com/a", false), (&*format!("example.com/a,{PROVISIONER}"), true)] {
        let arguments = ["gone-nodes", "--provisioner-name=example.com/b", "--additional-provisioner-names", names];
        let (ok, text) = world.run(&arguments, "");
        assert!(ok && text.contains("pv-1: ") == lists, "{names}: {text}");
    }
}
