//! The rules, from objects as the API server sends them to decisions. The comment `Rules` above a
//! test names the rows of `docs/book/pages/reference/behaviour.md` that it covers.

mod cache;
mod claims;
mod event_table;
mod growth;
mod namesakes;
mod reports;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use kube_sim::merge_patch;
use provisioner_runtime::watch::Change;
use provisioner_runtime::{Backoff, Cache as _};
use serde_json::{Value, json};

use super::cache::VolumeCache;
use super::class::read_class;
use super::decide::{Rules, decide};
use super::decision::Decision;
use super::facts::{ClaimFacts, OurClass, Pending, WaitingClaim};
use super::journal_entry;
use super::key::Key;
use super::names::VolumeNames;
use super::node_topology::NodeTopology;
use super::partial;
use super::safeguards::Safeguards;
use crate::controller::shared::names::ProvisionerNames;
use crate::controller::shared::watched::WatchedClass;
use crate::prepared::Prepared;
use crate::{
    Capabilities, DeleteError, Hooks, ProvisionError, ProvisionRequest, ProvisionedVolume, Provisioner, Volume,
};

const OURS: &str = "foo.bar/baz";
const OTHER: &str = "abc.def/ghi";

/// Parses an object from text, as a watch does.
fn sent<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// A provisioner that accepts every claim except those named `vetoed`, and has one parameter.
pub(super) struct Plain;

#[derive(serde::Deserialize)]
pub(super) struct Parameters {
    #[serde(default, rename = "server")]
    _server: String,
}

impl Provisioner for Plain {
    type Parameters = Parameters;

    async fn provision(&self, request: ProvisionRequest<Parameters>) -> Result<Volume, ProvisionError> {
        Ok(Volume::nfs("server", format!("/{}", request.name)))
    }

    async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> {
        Ok(())
    }
}

impl Hooks for Plain {
    fn accepts(&self, claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim) -> bool {
        claim.metadata.name.as_deref() != Some("vetoed")
    }
}

/// A cache with our rules, filled by the test.
struct Fixture {
    rules: Arc<Rules>,
    cache: VolumeCache,
}

impl Fixture {
    fn new() -> Self {
        Self::with(OURS, &[], Capabilities::default(), true)
    }

    fn named(own: &str, additional: &[&str]) -> Self {
        Self::with(own, additional, Capabilities::default(), true)
    }

    fn without_finalizer() -> Self {
        Self::with(OURS, &[], Capabilities::default(), false)
    }

    fn able(capabilities: Capabilities) -> Self {
        Self::with(OURS, &[], capabilities, true)
    }

    fn with(own: &str, additional: &[&str], capabilities: Capabilities, finalizer: bool) -> Self {
        let additional = additional.iter().map(ToString::to_string).collect();
        let names = ProvisionerNames { own: own.to_owned(), additional };
        let rules = Arc::new(Rules {
            names,
            volume_names: VolumeNames::Usual,
            capabilities,
            finalizer,
            identity: Some("here".into()),
            cluster_id: "this".into(),
            node: None,
            node_topology: None,
            bids: None,
            safeguards: Safeguards::default(),
        });
        Self { cache: VolumeCache::new(rules.clone()), rules }
    }

    /// Makes the fixture the replica of one node among many.
    fn on_node(self, node: &str) -> Self {
        let rules = Rules { identity: Some(node.into()), node: Some(node.into()), ..(*self.rules).clone() };
        let rules = Arc::new(rules);
        let cache = VolumeCache::new(rules.clone());
        Self { rules, cache }.class(waiting_class())
    }

    /// Makes the fixture the replica of a node whose place decides about volumes. With `bids`, it takes claims that do
    /// not wait for a pod.
    fn in_place(self, node: &str, key: &str, value: &str, bids: bool) -> Self {
        let node_topology = NodeTopology::new(node, [(key.to_owned(), value.to_owned())].into());
        let bids = bids.then(|| Backoff::fixed(Duration::from_secs(1)));
        let (identity, node_topology) = (Some(node_topology.identity()), Some(node_topology));
        let rules = Arc::new(Rules { identity, node: Some(node.into()), node_topology, bids, ..(*self.rules).clone() });
        Self { cache: VolumeCache::new(rules.clone()), rules }
    }

    fn class(mut self, class: Value) -> Self {
        self.class_event(Change::Applied(sent(class)));
        self
    }

    fn class_event(&mut self, event: Change<WatchedClass>) -> Vec<Key> {
        self.cache.class_event(read_class(event, &self.rules, &Plain))
    }

    fn claim(mut self, claim: Value) -> Self {
        self.put_claim(claim);
        self
    }

    fn volume(mut self, volume: Value) -> Self {
        self.put_volume(volume);
        self
    }

    fn put_claim(&mut self, claim: Value) -> Vec<Key> {
        self.cache.claim_event(Change::Applied(sent(claim)), 0)
    }

    fn put_volume(&mut self, volume: Value) -> Vec<Key> {
        self.cache.volume_event(Change::Applied(sent(volume)), 0)
    }

    fn decision(&self, volume: &str) -> Decision {
        decide(&self.cache.facts(&Key::of_volume(volume)), &self.rules)
    }

    /// Returns the decision about the claim of [`claim`].
    fn about_claim(&self) -> Decision {
        self.decision("pvc-uid-1-1")
    }

    /// Returns the decision about the volume of [`volume`].
    fn about_volume(&self) -> Decision {
        self.decision("volume-1")
    }
}

/// Returns an attempt for a claim of class `gold`.
pub(super) fn pending() -> Pending {
    let class = serde_json::json!({
        "metadata": {"name": "gold", "uid": "class-uid", "resourceVersion": "3"},
        "provisioner": "example.com/disks", "parameters": {"server": "a"}, "reclaimPolicy": "Delete",
    });
    let class: k8s_openapi::api::storage::v1::StorageClass = serde_json::from_value(class).unwrap();
    let claim = json!({
        "metadata": {
            "annotations": {"path": "/exports/db", "volume.kubernetes.io/selected-node": "node-1"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "db"}, "name": "data", "namespace": "shop",
            "ownerReferences": [{"kind": "StatefulSet", "name": "db"}], "resourceVersion": "17",
            "uid": "0a1b2c3d-0000-4fff-8001-00000000000a",
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let read: partial::ClaimFields = serde_json::from_value(claim.clone()).unwrap();
    let facts = ClaimFacts::read(&read).unwrap();
    let snapshot = journal_entry::snapshot(&class, 7);
    Pending {
        claim: Arc::new(WaitingClaim {
            fingerprint: 0,
            facts,
            resource_version: "17".into(),
            since: tokio::time::Instant::now(),
            seen: tokio::time::Instant::now(),
            object: Some(claim.to_string().into()),
        }),
        class: Arc::new(OurClass::read(class, 7, (&Plain, &Capabilities::default()), snapshot)),
        token: "0123456789abcdef".into(),
        prepared: Prepared::default(),
        begun: tokio::time::Instant::now(),
        taken_over: false,
    }
}

/// Merges `change` into `base`; `null` removes a field.
pub(super) fn with(mut base: Value, change: Value) -> Value {
    merge_patch(&mut base, change);
    base
}

/// Returns class `class-1`: ours, Delete, Immediate.
fn class(change: Value) -> Value {
    with(
        json!({"metadata": {"name": "class-1", "uid": "class-uid", "resourceVersion": "1"}, "provisioner": OURS,
            "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
        change,
    )
}

fn waiting_class() -> Value {
    class(json!({"volumeBindingMode": "WaitForFirstConsumer"}))
}

/// Returns claim `default/claim-1`, which requests 1Mi of `class-1` from us.
fn claim(change: Value) -> Value {
    with(
        json!({
            "metadata": {"name": "claim-1", "namespace": "default", "uid": "uid-1-1", "resourceVersion": "10",
                "annotations": {"volume.beta.kubernetes.io/storage-provisioner": OURS}},
            "spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "class-1",
                "resources": {"requests": {"storage": "1Mi"}}},
            "status": {"phase": "Pending"},
        }),
        change,
    )
}

/// Returns NFS volume `volume-1`, provisioned by us.
fn volume(phase: &str, policy: &str, change: Value) -> Value {
    with(
        json!({
            "metadata": {"name": "volume-1", "uid": "volume-uid", "resourceVersion": "20",
                "annotations": {"pv.kubernetes.io/provisioned-by": OURS}},
            "spec": {"persistentVolumeReclaimPolicy": policy, "nfs": {"server": "s", "path": "/p"},
                "claimRef": {"namespace": "default", "name": "gone", "uid": "uid-gone"}},
            "status": {"phase": phase},
        }),
        change,
    )
}
