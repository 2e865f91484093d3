//! `gone-nodes` abandons volumes of nodes that no longer exist.

use serde_json::{Value, json};

use super::world::*;

fn volume(world: &World, name: &str, claim: &Value) {
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER,
            "hostpath-provisioner/node": "gone", "hostpath-provisioner/node-gone-since": "2026-01-01T00:00:00Z"}},
        "spec": {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": world.path(name)}, "claimRef": claim}});
    world.cluster.create(&volume).unwrap();
}

#[test]
fn a_volume_that_cannot_be_abandoned_blocks_no_other() {
    let world = World::new();
    volume(&world, "pv-1", &json!({"namespace": "shop"}));
    volume(&world, "pv-2", &json!({"namespace": "shop", "name": "data", "uid": "uid"}));
    let (ok, text) = world.run(&["gone-nodes", "--delete", "--grace", "0s"], "");
    assert!(!ok && text.contains("1 volumes are left as they were"), "{text}");
    assert!(line(&text, "pv-1").starts_with("pv-1: ") && line(&text, "pv-2").contains("abandoned"), "{text}");
    let is_deleted = |name: &str| match world.cluster.get("", "persistentvolumes", "", name) {
        Ok(volume) => volume["metadata"]["deletionTimestamp"].is_string(),
        Err(_) => true,
    };
    assert!(!is_deleted("pv-1") && is_deleted("pv-2"));
}
