//! The cluster as its store's changes tell it.

use std::collections::{BTreeMap, BTreeSet};

use kube_provisioner::protocol::{FINALIZER, IDENTITY, PROVISIONED_BY};
use kube_sim::{Change, ChangeKind};
use serde::Deserialize;

use crate::PROVISIONER;

/// What matters of the cluster.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) volumes: BTreeMap<String, Volume>,
    /// By uid.
    pub(crate) claims: BTreeMap<String, Claim>,
    /// The uids of claims that went without ever having had a volume.
    unserved: BTreeSet<String>,
    /// The keys of each journal's entries.
    pub(crate) journals: BTreeMap<String, BTreeSet<String>>,
    /// Of the latest change.
    pub(crate) version: u64,
}

#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) ours: bool,
    /// The uid of its claim.
    pub(crate) claim: String,
    /// Since which version it is to be kept.
    pub(crate) retained_since: Option<u64>,
    pub(crate) deleting: bool,
    pub(crate) protected: bool,
    pub(crate) bound: bool,
}

pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) volume: String,
    pub(crate) bound: bool,
    pub(crate) deleting: bool,
}

impl Picture {
    /// Takes in a change. The name of a volume of ours that is new is returned.
    pub(crate) fn apply(&mut self, change: &Change, forgiven: &mut BTreeSet<String>) -> Option<String> {
        self.version = change.resource_version;
        let stored = change.object();
        let deleted = change.kind == ChangeKind::Deleted;
        let read = || serde_json::from_slice::<Object>(stored.bytes()).expect("the simulator stores valid objects");
        match change.resource.plural.as_str() {
            "persistentvolumes" if deleted => {
                let gone = self.volumes.remove(stored.name());
                // What is to be kept loses its volume, and only that.
                if gone.is_some_and(|volume| volume.ours && volume.retained_since.is_some()) {
                    forgiven.insert(stored.name().to_owned());
                }
            }
            "persistentvolumes" => {
                let before = self.volumes.get(stored.name()).and_then(|volume| volume.retained_since);
                let volume = read().volume(before, self.version);
                let created = (change.kind == ChangeKind::Created && volume.ours).then(|| stored.name().to_owned());
                self.volumes.insert(stored.name().to_owned(), volume);
                return created;
            }
            "persistentvolumeclaims" if deleted => {
                let gone = self.claims.remove(stored.uid());
                self.unserved.extend(gone.filter(|claim| claim.volume.is_empty()).map(|_| stored.uid().to_owned()));
            }
            "persistentvolumeclaims" => drop(self.claims.insert(stored.uid().to_owned(), read().claim())),
            "configmaps" if stored.label("app.kubernetes.io/component") != Some("journal") => {}
            "configmaps" if deleted => drop(self.journals.remove(stored.name())),
            "configmaps" => drop(self.journals.insert(stored.name().to_owned(), read().keys())),
            _ => {}
        }
        None
    }

    /// Whether a volume or a journal knows of the asset with this name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| volume.ours) || self.is_noted(name)
    }

    /// Whether a journal knows of the asset with this name.
    pub(crate) fn is_noted(&self, name: &str) -> bool {
        self.journals.values().any(|keys| keys.contains(name))
    }

    /// The claim that this volume is or would be for, which is not being deleted and has none yet.
    pub(crate) fn waiting_claim_of(&self, volume: &str) -> Option<&str> {
        let claim = self.claims.get(uid_in(volume))?;
        (!claim.deleting && claim.volume.is_empty()).then_some(claim.name.as_str())
    }

    /// Whether the claim that this volume is or would be for has none, or went without one.
    pub(crate) fn was_never_bound(&self, volume: &str) -> bool {
        let uid = uid_in(volume);
        self.claims.get(uid).map_or_else(|| self.unserved.contains(uid), |claim| claim.volume.is_empty())
    }

    /// The claim that has this volume and is not being deleted.
    pub(crate) fn living_claim_of(&self, volume: &str) -> Option<&str> {
        let lives = |claim: &&Claim| claim.volume == volume && !claim.deleting;
        self.claims.values().find(lives).map(|claim| claim.name.as_str())
    }
}

/// The uid of the claim that a volume of this name is or would be for; empty where it is for none.
pub(super) fn uid_in(volume: &str) -> &str {
    volume.strip_prefix("pvc-").unwrap_or_default()
}

/// As much of any object as matters.
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
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    claim_ref: Option<Reference>,
    persistent_volume_reclaim_policy: String,
    volume_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl Object {
    fn volume(self, retained_since: Option<u64>, version: u64) -> Volume {
        let retained = self.spec.persistent_volume_reclaim_policy == "Retain";
        Volume {
            ours: self.metadata.annotations.get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER)
                && self.metadata.annotations.get(IDENTITY).is_none_or(|identity| identity != "elsewhere"),
            claim: self.spec.claim_ref.unwrap_or_default().uid,
            retained_since: retained.then(|| retained_since.unwrap_or(version)),
            deleting: self.metadata.deletion_timestamp.is_some(),
            bound: self.status.phase == "Bound",
            protected: self.metadata.finalizers.iter().any(|name| name == FINALIZER),
        }
    }

    fn claim(self) -> Claim {
        Claim {
            name: self.metadata.name,
            volume: self.spec.volume_name,
            bound: self.status.phase == "Bound",
            deleting: self.metadata.deletion_timestamp.is_some(),
        }
    }

    /// See the journal of `provisioner-runtime`: a line per entry, the key first.
    fn keys(self) -> BTreeSet<String> {
        let entries = self.data.get("entries").map(String::as_str).unwrap_or_default();
        let keys = entries.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned()));
        keys.collect()
    }
}
