//! The nodes, their labels, and the CSI driver's registrations by the kubelet.

use kube_sim::{DeleteOptions, PatchKind, Target, object};
use serde_json::{Value, json};

use super::{NODES, Users};
use crate::backend::DRIVER;

/// The topology keys of the driver.
pub(crate) const ZONE: &str = "topology.example.com/zone";
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The two objects of a node.
#[derive(Clone, Copy)]
enum Kind {
    Node,
    CsiNode,
}

impl Kind {
    fn target(self, name: &str) -> Target<'_> {
        let (group, plural) = match self {
            Self::Node => ("", "nodes"),
            Self::CsiNode => ("storage.k8s.io", "csinodes"),
        };
        Target { group, plural, namespace: "", name }
    }
}

/// The initial zone of a node.
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

    /// Deletes a node. The garbage collector deletes its CSINode later.
    pub(super) fn lose_node(&self, node: usize) {
        self.remove(Kind::Node, NODES[node]);
    }

    pub(super) fn label(&self, node: usize, number: Option<usize>) {
        let labels = json!({"metadata": {"labels": {ZONE: number.map(zone)}}});
        // The node may not exist.
        let _ = self.cluster.patch(&Kind::Node.target(NODES[node]), None, PatchKind::Merge, &labels);
    }

    /// Registers the driver like the kubelet: a CSINode left from a former node of this name keeps its owner.
    pub(super) fn register(&self, node: usize, keys: usize) {
        let name = NODES[node];
        let keys = &[ZONE, HOSTNAME][..keys];
        let drivers = json!([{"name": DRIVER, "nodeID": name, "topologyKeys": keys}]);
        let Some(found) = self.object(Kind::Node, name) else { return };
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

    /// Sets the drivers of a CSINode; returns `false` if it does not exist.
    fn set_drivers(&self, name: &str, drivers: &Value) -> bool {
        let Some(mut found) = self.object(Kind::CsiNode, name) else { return false };
        found["spec"]["drivers"] = drivers.clone();
        // Ignore the result: the simulated users act one at a time, so there are no conflicts.
        let _ = self.cluster.update(&found);
        true
    }

    /// Brings the nodes to their final state. The first node exists, and others may have been deleted. All existing
    /// nodes have their labels, and the driver is registered on them.
    pub(super) fn settle_nodes(&self) {
        let back = if self.stage.plan.seed.is_multiple_of(3) { 1 } else { 2 };
        (0..back).for_each(|node| self.make_node(node));
        // The node has no replica, so its claims must be released.
        self.lose_node(2);
        let Some(topology) = &self.stage.plan.topology else { return };
        for (node, keys) in topology.keys.into_iter().enumerate() {
            self.label(node, Some(zone_of(node)));
            // The CSINode may belong to a former node.
            self.remove(Kind::CsiNode, NODES[node]);
            self.register(node, keys);
        }
    }

    fn object(&self, kind: Kind, name: &str) -> Option<Value> {
        let Target { group, plural, .. } = kind.target(name);
        self.cluster.get(group, plural, "", name).ok()
    }

    fn remove(&self, kind: Kind, name: &str) {
        // The object may not exist.
        let _ = self.cluster.delete(&kind.target(name), DeleteOptions::default());
    }
}
