//! The state of the cluster, derived from the changes of its store.

use std::collections::{BTreeMap, BTreeSet};

use kube_provisioner::protocol::{CLUSTER_ID, FINALIZER, IDENTITY, PROVISIONED_BY, SELECTED_NODE};
use kube_provisioner::quantity::parse_bytes;
use kube_sim::{Change, ChangeKind};
use serde::Deserialize;
use serde_json::Value;

use super::places::Segments;
use crate::PROVISIONER;
use crate::backend::Asset;
use crate::plan::Plan;
use crate::users::ZONE;

/// The entries of a journal that is stored in a Lease.
pub(crate) const LEASE_ENTRIES: &str = "kube-provisioner/journal-entries";
/// The uid of the object that a journal was written for.
const JOURNAL_UID: &str = "kube-provisioner/journal-uid";

/// The relevant state of the cluster.
#[derive(Default)]
pub(crate) struct ClusterView {
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// By uid.
    pub(crate) claims: BTreeMap<String, Claim>,
    /// The uids of claims that were deleted without ever having had a volume.
    unserved: BTreeSet<String>,
    /// The keys of each journal's entries.
    pub(crate) journals: BTreeMap<String, BTreeSet<String>>,
    /// By node, its zones, each with the version of its start; `None` while it has no zone or does not exist.
    pub(super) zones: BTreeMap<String, Vec<(u64, Option<String>)>>,
    /// The version of the latest change.
    pub(crate) version: u64,
    /// The last claim to use each name, when names contain a truncated UID.
    pub(crate) served: Option<BTreeMap<String, String>>,
}

/// Noteworthy consequences of a change.
pub(super) enum ChangeEffect {
    /// A volume of ours was created.
    Saved(String),
    /// A claim or a volume has a smaller size than before.
    Shrunk(String),
}

#[derive(Clone)]
pub(crate) struct Volume {
    /// The version in which it was saved.
    pub(crate) since: u64,
    pub(crate) ours: bool,
    /// The cluster in which it was created.
    pub(crate) cluster_id: Option<String>,
    /// The uid of its claim.
    pub(crate) claim: String,
    /// The version since which it is to be retained.
    pub(crate) retained_since: Option<u64>,
    pub(crate) deleting: bool,
    pub(crate) protected: bool,
    pub(crate) bound: bool,
    /// In bytes.
    pub(crate) capacity: u64,
    /// The number of its asset.
    pub(super) asset: String,
    /// The places of its `nodeAffinity`.
    pub(super) places: BTreeSet<Segments>,
}

pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) volume: String,
    pub(crate) bound: bool,
    pub(crate) deleting: bool,
    /// The requested and the actual size, in bytes.
    pub(crate) request: u64,
    pub(crate) capacity: u64,
    /// The nodes selected for it, in order, each with the version of its selection.
    pub(super) selected: Vec<(String, u64)>,
}

impl ClusterView {
    pub(super) fn of(plan: &Plan) -> Self {
        Self { served: plan.settings.uid_length.map(|_| BTreeMap::new()), ..Self::default() }
    }

    /// Applies a change.
    pub(super) fn apply(&mut self, change: &Change, exempted: &mut BTreeSet<String>) -> Option<ChangeEffect> {
        self.version = change.resource_version;
        let stored = change.object();
        let deleted = change.kind == ChangeKind::Deleted;
        let read = || serde_json::from_slice::<Object>(stored.bytes()).expect("the simulator stores valid objects");
        match change.resource.plural.as_str() {
            "persistentvolumes" if deleted => {
                let gone = self.volumes.remove(stored.name());
                // Only the PersistentVolume of a retained asset is deleted.
                if gone.is_some_and(|volume| volume.ours && volume.retained_since.is_some()) {
                    exempted.insert(stored.name().to_owned());
                }
            }
            "persistentvolumes" => {
                let before = self.volumes.get(stored.name());
                let volume = read().volume(before, self.version);
                // Finalizers cannot be added to an object that is being deleted, so changing the policy back to Delete
                // comes too late.
                let let_go = before.is_some_and(|before| before.protected) && !volume.protected;
                if volume.ours && volume.deleting && volume.retained_since.is_some() && let_go {
                    exempted.insert(stored.name().to_owned());
                }
                let seen = match change.kind {
                    ChangeKind::Created if volume.ours => Some(ChangeEffect::Saved(stored.name().to_owned())),
                    _ if before.is_some_and(|before| before.capacity > volume.capacity) => {
                        Some(ChangeEffect::Shrunk(stored.name().to_owned()))
                    }
                    _ => None,
                };
                self.volumes.insert(stored.name().to_owned(), volume);
                return seen;
            }
            "persistentvolumeclaims" if deleted => {
                let gone = self.claims.remove(stored.uid());
                self.unserved.extend(gone.filter(|claim| claim.volume.is_empty()).map(|_| stored.uid().to_owned()));
            }
            "persistentvolumeclaims" => {
                let object = read();
                let node = object.metadata.annotations.get(SELECTED_NODE).cloned();
                let mut claim = object.claim();
                claim.selected =
                    self.claims.get(stored.uid()).map(|before| before.selected.clone()).unwrap_or_default();
                claim.selected.extend(node.map(|node| (node, self.version)));
                claim.selected.dedup_by(|later, earlier| later.0 == earlier.0);
                let (name, capacity, bound) = (claim.name.clone(), claim.capacity, claim.bound);
                let before = self.claims.insert(stored.uid().to_owned(), claim);
                // A claim whose volume is lost no longer has a capacity.
                if bound && before.is_some_and(|before| before.capacity > capacity && before.bound) {
                    return Some(ChangeEffect::Shrunk(name));
                }
            }
            "nodes" => {
                let zone = stored.label(ZONE).filter(|_| !deleted).map(str::to_owned);
                self.zones.entry(stored.name().to_owned()).or_default().push((self.version, zone));
            }
            "configmaps" | "leases" if stored.label("app.kubernetes.io/component") != Some("journal") => {}
            "configmaps" | "leases" if deleted => drop(self.journals.remove(stored.name())),
            "configmaps" | "leases" => drop(self.journals.insert(stored.name().to_owned(), read().keys())),
            _ => {}
        }
        None
    }

    /// The volume of ours that was saved last.
    pub(crate) fn saved_last(&self) -> Option<String> {
        let ours = self.volumes.iter().filter(|(_, volume)| volume.ours);
        Some(ours.max_by_key(|(_, volume)| volume.since)?.0.clone())
    }

    /// Returns true if a volume of ours or a journal refers to the asset with this name.
    pub(crate) fn is_referenced(&self, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| volume.ours) || self.is_recorded(name)
    }

    /// Returns true if a journal refers to the asset with this name.
    pub(crate) fn is_recorded(&self, name: &str) -> bool {
        self.journals.values().any(|keys| keys.contains(name))
    }

    /// The class of the claim that this volume is or would be for.
    pub(crate) fn class_of(&self, volume: &str) -> Option<&str> {
        Some(&self.claims.get(self.claim_uid_of(volume))?.class)
    }

    /// The claim of this existing or future volume, if it is not being deleted and is unbound.
    pub(crate) fn waiting_claim_of(&self, volume: &str) -> Option<&str> {
        let claim = self.claims.get(self.claim_uid_of(volume))?;
        (!claim.deleting && claim.volume.is_empty()).then_some(claim.name.as_str())
    }

    /// Returns true if the claim of this existing or future volume is unbound, or was deleted unbound.
    pub(crate) fn was_never_bound(&self, volume: &str) -> bool {
        let uid = self.claim_uid_of(volume);
        self.claims.get(uid).map_or_else(|| self.unserved.contains(uid), |claim| claim.volume.is_empty())
    }

    /// The uid of the claim of an existing or future volume with this name; empty if there is none.
    pub(super) fn claim_uid_of<'a>(&'a self, volume: &'a str) -> &'a str {
        match &self.served {
            None => volume.strip_prefix("pvc-").unwrap_or_default(),
            Some(served) => served.get(volume).map(String::as_str).unwrap_or_default(),
        }
    }

    /// Returns true if the volume with this name belongs to another claim than the last one that used the name.
    pub(super) fn is_of_another(&self, volume: &str) -> bool {
        let claim = self.volumes.get(volume).map(|volume| &*volume.claim);
        self.served.is_some() && claim.is_some_and(|claim| *claim != *self.claim_uid_of(volume))
    }

    /// The claim that uses this asset and is not being deleted. A restored volume may refer to an earlier asset.
    pub(super) fn user_of(&self, name: &str, asset: Option<&Asset>) -> Option<&str> {
        let number = asset.filter(|asset| !asset.is_foreign()).map(|asset| asset.number.to_string());
        let is_its = |volume: &Volume| number.is_none_or(|number| volume.asset == number);
        self.volumes.get(name).is_none_or(is_its).then(|| self.living_claim_of(name)).flatten()
    }

    /// The claim that has this volume and is not being deleted.
    pub(crate) fn living_claim_of(&self, volume: &str) -> Option<&str> {
        // The binder does not bind a restored claim that names the volume of a former claim: that claim was deleted.
        let is_its = |uid: &String| self.volumes.get(volume).is_none_or(|volume| volume.claim == *uid);
        let lives = |(uid, claim): &(&String, &Claim)| {
            claim.volume == volume && !claim.deleting && (claim.bound || is_its(uid))
        };
        self.claims.iter().find(lives).map(|(_, claim)| claim.name.as_str())
    }
}

/// The relevant fields of any object.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    spec: Spec,
    status: Status,
    data: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    capacity: Storage,
    claim_ref: Option<Reference>,
    nfs: Nfs,
    csi: Csi,
    node_affinity: Value,
    persistent_volume_reclaim_policy: String,
    resources: Resources,
    storage_class_name: String,
    volume_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Storage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Storage {
    storage: String,
}

impl Storage {
    fn bytes(&self) -> u64 {
        parse_bytes(&self.storage).unwrap_or_default()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Nfs {
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Csi {
    volume_handle: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    capacity: Storage,
    phase: String,
}

impl Object {
    fn volume(self, before: Option<&Volume>, version: u64) -> Volume {
        let retained = self.spec.persistent_volume_reclaim_policy == "Retain";
        let retained_since = before.and_then(|before| before.retained_since);
        Volume {
            since: before.map_or(version, |before| before.since),
            ours: self.metadata.annotations.get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER)
                && self.metadata.annotations.get(IDENTITY).is_none_or(|identity| identity != "elsewhere"),
            cluster_id: self.metadata.annotations.get(CLUSTER_ID).cloned(),
            claim: self.spec.claim_ref.unwrap_or_default().uid,
            retained_since: retained.then(|| retained_since.unwrap_or(version)),
            deleting: self.metadata.deletion_timestamp.is_some(),
            bound: self.status.phase == "Bound",
            capacity: self.spec.capacity.bytes(),
            asset: self.spec.nfs.path.trim_start_matches("/exports/").to_owned() + &self.spec.csi.volume_handle,
            places: places(&self.spec.node_affinity),
            protected: self.metadata.finalizers.iter().any(|name| name == FINALIZER),
        }
    }

    fn claim(self) -> Claim {
        Claim {
            name: self.metadata.name,
            class: self.spec.storage_class_name,
            request: self.spec.resources.requests.bytes(),
            capacity: self.status.capacity.bytes(),
            volume: self.spec.volume_name,
            bound: self.status.phase == "Bound",
            deleting: self.metadata.deletion_timestamp.is_some(),
            selected: Vec::new(),
        }
    }

    /// The keys of a journal: one line per entry, the key first. See the journal of `provisioner-runtime`.
    fn keys(self) -> BTreeSet<String> {
        // A restored journal has no owner until a process has taken it over.
        if self.metadata.annotations.get(JOURNAL_UID).is_some_and(|uid| *uid != self.metadata.uid) {
            return BTreeSet::new();
        }
        let entries = self.data.get("entries").or_else(|| self.metadata.annotations.get(LEASE_ENTRIES));
        let entries = entries.map(String::as_str).unwrap_or_default();
        let keys = entries.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned()));
        keys.collect()
    }
}

/// The labels of each term.
fn places(affinity: &Value) -> BTreeSet<Segments> {
    let list = |object: &Value, field: &str| object[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let label = |wanted: &Value| (text(&wanted["key"]), text(&wanted["values"][0]));
    let terms = list(&affinity["required"], "nodeSelectorTerms");
    terms.iter().map(|term| list(term, "matchExpressions").iter().map(label).collect()).collect()
}
