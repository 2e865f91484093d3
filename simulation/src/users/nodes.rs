//! The nodes, their labels, and what the kubelet registers there for the CSI driver.

use kube_sim::{DeleteOptions, PatchKind, Target, object};
use serde_json::{Value, json};

use super::{NODES, Users};
use crate::backend::DRIVER;

/// The topology keys of the driver.
pub(crate) const ZONE: &str = "topology.example.com/zone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

const NODE_KIND: (&str, &str) = ("", "nodes");
const CSI_NODE_KIND: (&str, &str) = ("storage.k8s.io", "csinodes");

/// The zone of a node while nobody changes it.
pub(crate) fn zone_of(node: usize) -> usize {
    node % 2
}

pub(super) fn zone(number: usize) -> String {
    format!("zone-{number}")
}

impl Users {
    pub(super) fn make_node(&self, node: usize) {
        let name = NODES[node];
        let mut labels = json!({HOSTNAME: name});
        if self.stage.plan.topology.is_some() {
            labels[ZONE] = zone(zone_of(node)).into();
        }
        self.create(&json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
    }

    /// The garbage collector deletes its CSINode later.
    pub(super) fn lose_node(&self, node: usize) {
        self.remove(NODE_KIND, NODES[node]);
    }

    pub(super) fn label(&self, node: usize, number: Option<usize>) {
        let (group, plural) = NODE_KIND;
        let target = Target { group, plural, namespace: "", name: NODES[node] };
        let labels = json!({"metadata": {"labels": {ZONE: number.map(zone)}}});
        // It may be gone.
        let _ = self.cluster.patch(&target, None, PatchKind::Merge, &labels);
    }

    /// As the kubelet does it: a CSINode that is left of a former node of this name keeps its owner.
    pub(super) fn register(&self, node: usize, keys: usize) {
        let name = NODES[node];
        let keys = &[ZONE, HOSTNAME][..keys];
        let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": keys}]);
        let Some(found) = self.object(NODE_KIND, name) else { return };
        if self.set_drivers(name, &drivers) {
            return;
        }
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": object::uid(&found)});
        self.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"drivers": drivers},
        }));
    }

    pub(super) fn unregister(&self, node: usize) {
        self.set_drivers(NODES[node], &json!([]));
    }

    /// Whether there is a CSINode.
    fn set_drivers(&self, name: &str, drivers: &Value) -> bool {
        let Some(mut found) = self.object(CSI_NODE_KIND, name) else { return false };
        found["spec"]["drivers"] = drivers.clone();
        // Nobody else acts at this moment.
        let _ = self.cluster.update(&found);
        true
    }

    /// In the end the first node is there, and others may be gone for good. All that are there have their labels, and the driver
    /// is registered on them.
    pub(super) fn settle_nodes(&self) {
        let back = if self.stage.plan.seed.is_multiple_of(3) { 1 } else { 2 };
        (0..back).for_each(|node| self.make_node(node));
        // Without a replica, so its claims have to be freed.
        self.lose_node(2);
        let Some(topology) = &self.stage.plan.topology else { return };
        for (node, keys) in topology.keys.into_iter().enumerate() {
            self.label(node, Some(zone_of(node)));
            // It may be of a former node.
            self.remove(CSI_NODE_KIND, NODES[node]);
            self.register(node, keys);
        }
    }

    fn object(&self, (group, plural): (&str, &str), name: &str) -> Option<Value> {
        self.cluster.get(group, plural, "", name).ok()
    }

    fn remove(&self, (group, plural): (&str, &str), name: &str) {
        // It may be gone already.
        let _ = self.cluster.delete(&Target { group, plural, namespace: "", name }, DeleteOptions::default());
    }
}
