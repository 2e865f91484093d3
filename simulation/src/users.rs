//! The cluster's users: their actions on claims, volumes, classes and journals.

mod backup;
mod nodes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use kube_provisioner::protocol::{FINALIZER, IDENTITY, PROVISIONED_BY};
use kube_sim::{Cluster, DeleteOptions, PatchKind, Target, object};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use self::backup::Backup;
use self::nodes::zone;
pub(crate) use self::nodes::{HOSTNAME, ZONE, zone_of};
use crate::PROVISIONER;
use crate::backend::AssetStage;
use crate::garble::GARBLED;
use crate::judge::LEASE_ENTRIES;
use crate::plan::{UserAction, When};
use crate::process::ProcessEnvironment;
use crate::stage::Stage;

pub(crate) const NAMESPACE: &str = "default";
/// The nodes. The last one never has a replica, and exists only if an action creates it.
pub(crate) const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
const CLAIMS: &str = "persistentvolumeclaims";
const CONFIG_MAPS: (&str, &str) = ("", "configmaps");
const LEASES: (&str, &str) = ("coordination.k8s.io", "leases");
const VOLUMES: &str = "persistentvolumes";
/// The finalizer with which another party holds an object.
const HOLD: &str = "example.com/hold";
/// Interval at which users check for problems that only they can solve.
const ATTENTION: Duration = Duration::from_secs(120);
/// Number of labels of a large claim: some 14 KB.
const LABELS: usize = 112;
/// The owner of conflicting volumes.
const OTHER: &str = "example.com/other";

pub(crate) struct Users {
    cluster: Cluster,
    stage: Arc<Stage>,
    start: Instant,
    /// The uids of the claims that were created last.
    uids: Mutex<BTreeMap<usize, String>>,
    backup: Mutex<Backup>,
    /// The users of the other cluster.
    others: OnceLock<Weak<Users>>,
}

impl Users {
    /// Creates the users, and the initial classes and nodes.
    pub(crate) fn new(cluster: &Cluster, stage: &Arc<Stage>) -> Self {
        let users = Self {
            cluster: cluster.clone(),
            stage: stage.clone(),
            start: Instant::now(),
            uids: Mutex::default(),
            backup: Mutex::default(),
            others: OnceLock::new(),
        };
        for class in 0..stage.plan.classes.len() {
            users.make_class(class, 0);
        }
        for node in 0..2 {
            users.make_node(node);
        }
        if stage.plan.foreigners {
            users.make_foreigners();
        }
        users
    }

    /// Allows restores into the other cluster.
    pub(crate) fn connect(&self, others: &Arc<Self>) {
        // It is set once per run.
        let _ = self.others.set(Arc::downgrade(others));
    }

    /// Executes the plan, until the storm is over.
    pub(crate) async fn act(&self) {
        let mut open: Vec<(When, UserAction)> = self.stage.plan.actions.clone();
        let end = self.start + self.stage.plan.storm;
        while Instant::now() < end {
            let moved = self.stage.moved.notified();
            let now = self.stage.now();
            let (steps, deletions, writes, saved) = {
                let mut judge = self.stage.judge();
                judge.process_changes(now);
                (judge.steps, judge.deletions, judge.writes, judge.saved)
            };
            let is_due = |when: &When| match when {
                When::At(time) => *time <= now,
                When::Step(count) => *count <= steps,
                When::Deletion(count) => *count <= deletions,
                When::Write(count) => *count <= writes,
                When::Saved(count) => *count <= saved,
            };
            let (due, later): (Vec<_>, Vec<_>) = open.into_iter().partition(|(when, _)| is_due(when));
            open = later;
            for (_, action) in due {
                self.execute(action);
                // An unbound claim must not be expanded yet.
                if let UserAction::Grow(claim, _) = action
                    && !self.is_bound(claim)
                {
                    open.push((When::At(now + Duration::from_secs(1)), action));
                }
                if let UserAction::Replace(claim) = action {
                    // This waits until other finalizers of the deleted object are removed.
                    let again = |after| (When::At(now + after), UserAction::Block(claim));
                    open.extend([again(Duration::from_millis(1)), again(Duration::from_millis(50))]);
                }
            }
            let next = open.iter().filter_map(|(when, _)| match when {
                When::At(time) => Some(self.start + *time),
                _ => None,
            });
            let next = next.min().unwrap_or(end).min(end);
            tokio::select! {
                biased;
                () = moved => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Removes all obstacles to the final state, and triggers a check of everything.
    pub(crate) fn settle(&self) {
        self.mend();
        self.settle_nodes();
        for plural in [CLAIMS, VOLUMES] {
            for held in self.list(plural).iter().filter(|held| object::finalizers(held).any(|name| name == HOLD)) {
                let rest: Vec<&str> = object::finalizers(held).filter(|name| *name != HOLD).collect();
                self.patch(plural, object::name(held), &json!({"metadata": {"finalizers": rest}}));
            }
        }
        for volume in self.list(VOLUMES) {
            // Check the server, because a restored volume may have lost its annotations.
            let other = volume["spec"]["nfs"]["server"] == "other";
            if other && object::name(&volume).starts_with("pvc-") {
                self.delete(VOLUMES, object::name(&volume));
            }
        }
        for volume in self.list(VOLUMES) {
            // The policy became Retain after the deletion had begun. In half of the runs, users want to delete it.
            let ours = object::finalizers(&volume).any(|name| name == FINALIZER);
            if ours && object::deletion_timestamp(&volume).is_some() && self.stage.plan.seed.is_multiple_of(2) {
                let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
                self.patch(VOLUMES, object::name(&volume), &policy);
            }
        }
        for class in 0..self.stage.plan.classes.len() {
            self.make_class(class, 0);
            let (group, name) = ("storage.k8s.io", format!("class-{class}"));
            let target = Target { group, plural: "storageclasses", namespace: "", name: &name };
            let patch = json!({"metadata": {"labels": {"touched": "after-the-storm"}}});
            // The object exists.
            let _ = self.cluster.patch(&target, None, PatchKind::Merge, &patch);
        }
    }

    /// Solves the problems that only a user can solve, as events ask. Never returns.
    pub(crate) async fn respond_to_events(&self) {
        loop {
            sleep_until(Instant::now() + ATTENTION).await;
            let events = self.list("events");
            self.confirm_copies(&events);
        }
    }

    fn execute(&self, action: UserAction) {
        self.stage.note(|| format!("users: {action:?}"));
        let claim_of = |claim: usize| format!("claim-{claim}");
        match action {
            UserAction::Create(claim) => self.create_claim(claim),
            UserAction::Delete(claim) => {
                self.delete("pods", &claim_of(claim));
                self.delete(CLAIMS, &claim_of(claim));
            }
            UserAction::DeleteVolume(claim) => {
                self.volume_of(claim).into_iter().for_each(|volume| self.delete_volume(&volume));
            }
            UserAction::DeleteSaved => {
                let saved = self.stage.judge().view.saved_last();
                saved.into_iter().for_each(|volume| self.delete_volume(&volume));
            }
            UserAction::Replace(claim) => {
                self.volume_of(claim).into_iter().for_each(|volume| self.delete_volume(&volume));
                self.block(claim);
            }
            UserAction::HoldClaim(claim) => self.hold(CLAIMS, &claim_of(claim)),
            UserAction::HoldVolume(claim) => {
                if let Some(volume) = self.volume_of(claim) {
                    self.hold(VOLUMES, &volume);
                }
            }
            UserAction::Touch(claim) => {
                let text = self.stage.now().as_micros().to_string();
                self.patch(CLAIMS, &claim_of(claim), &json!({"metadata": {"labels": {"touched": text}}}));
            }
            // The API server refuses this for an unbound claim, or if the class does not allow it.
            UserAction::Grow(claim, size) => {
                let request = json!({"spec": {"resources": {"requests": {"storage": format!("{size}Gi")}}}});
                self.patch(CLAIMS, &claim_of(claim), &request);
            }
            UserAction::Retain(claim, retain) => {
                let policy = if retain { "Retain" } else { "Delete" };
                if let Some(volume) = self.volume_of(claim) {
                    self.patch(VOLUMES, &volume, &json!({"spec": {"persistentVolumeReclaimPolicy": policy}}));
                }
            }
            UserAction::Block(claim) => self.block(claim),
            UserAction::DropClass(class) => {
                let (group, name) = ("storage.k8s.io", format!("class-{class}"));
                let target = Target { group, plural: "storageclasses", namespace: "", name: &name };
                // The object may no longer exist.
                let _ = self.cluster.delete(&target, DeleteOptions::default());
            }
            UserAction::MakeClass(class) => {
                self.execute(UserAction::DropClass(class));
                self.make_class(class, self.stage.now().as_millis());
            }
            UserAction::TouchJournal => self.each_journal(|journal| {
                object::set_annotation(journal, "example.com/touched", &self.stage.now().as_micros().to_string());
            }),
            UserAction::CorruptJournal => self.each_journal(|journal| {
                let in_lease = object::text_at(journal, &["metadata", "annotations", LEASE_ENTRIES]);
                let entries = format!("{in_lease}{}nonsense\n", object::text_at(journal, &["data", "entries"]));
                if journal["kind"] == "Lease" {
                    object::set_annotation(journal, LEASE_ENTRIES, &entries);
                } else {
                    drop(object::object_mut(journal, "data").insert("entries".to_owned(), entries.into()));
                }
            }),
            UserAction::DropJournal => self.drop_journals(),
            UserAction::Compact => self.cluster.forget_history(),
            UserAction::Backup => self.back_up(),
            UserAction::Restore(copying) => self.restore(&self.latest_backup(), copying),
            UserAction::RestoreJournals => self.restore_journals(&self.latest_backup()),
            UserAction::RestoreIntoOther(copying) => {
                self.in_other_cluster(|others, backup| others.restore(backup, copying));
            }
            UserAction::RestoreJournalsIntoOther => self.in_other_cluster(Self::restore_journals),
            UserAction::ForceDelete(claim) => self.lose(claim),
            UserAction::Strip(claim) => self.strip(claim),
            UserAction::ReplaceWithManifest(claim) => {
                let bare = json!({"metadata": {"labels": null, "annotations": null, "finalizers": null}});
                self.patch(CLAIMS, &claim_of(claim), &bare);
            }
            UserAction::MakeAsset(claim) => {
                let (volume, now) = (self.volume_of(claim), self.stage.now());
                volume.into_iter().for_each(|volume| self.stage.judge().record_manual_creation(now, &volume));
            }
            UserAction::RemoveAsset(claim) => self.take_over(claim, None),
            UserAction::TakeAsset(claim) => self.take_over(claim, Some(AssetStage::Exported)),
            UserAction::Garble(claim) => self.garble(CLAIMS, &claim_of(claim)),
            UserAction::GarbleVolume(claim) => {
                self.volume_of(claim).into_iter().for_each(|volume| self.garble(VOLUMES, &volume));
            }
            UserAction::Mend => self.mend(),
            UserAction::LoseNode(node) => self.lose_node(node),
            UserAction::MakeNode(node) => self.make_node(node),
            UserAction::Register(node, keys) => self.register(node, keys),
            UserAction::Unregister(node) => self.unregister(node),
            UserAction::Label(node, zone) => self.label(node, zone),
        }
    }

    fn take_over(&self, claim: usize, mark: Option<AssetStage>) {
        if let Some(volume) = self.volume_of(claim) {
            self.stage.judge().take_over(self.stage.now(), &volume, mark);
        }
    }

    fn garble(&self, plural: &str, name: &str) {
        self.patch(plural, name, &json!({"metadata": {"annotations": {GARBLED: "yes"}}}));
    }

    /// Makes all objects readable again.
    fn mend(&self) {
        for plural in [CLAIMS, VOLUMES] {
            for object in self.list(plural).iter().filter(|object| object::annotation(object, GARBLED).is_some()) {
                self.patch(plural, object::name(object), &json!({"metadata": {"annotations": {GARBLED: null}}}));
            }
        }
    }

    fn is_bound(&self, claim: usize) -> bool {
        let claim = self.cluster.get("", CLAIMS, NAMESPACE, &format!("claim-{claim}"));
        claim.is_ok_and(|claim| object::text_at(&claim, &["status", "phase"]) == "Bound")
    }

    fn create_claim(&self, claim: usize) {
        let class = self.stage.plan.claims[claim].class;
        let name = format!("claim-{claim}");
        let many = if self.stage.plan.claims[claim].large { LABELS } else { 0 };
        let labels: BTreeMap<String, String> =
            (0..many).map(|number| (format!("label-{number:056}"), "x".repeat(63))).collect();
        let created = self.cluster.create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": format!("class-{class}"),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }));
        if let Ok(created) = created {
            let uid = object::uid(&created).to_owned();
            self.uids.lock().unwrap_or_else(PoisonError::into_inner).insert(claim, uid);
        }
        if self.stage.plan.classes[class].waits {
            self.create(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "none"}],
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
                },
            }));
        }
    }

    fn delete_volume(&self, volume: &str) {
        let found = self.cluster.get("", VOLUMES, "", volume);
        if found.is_ok_and(|found| object::finalizers(&found).next().is_none()) {
            self.stage.judge().delete_unprotected(volume);
        }
        {
            // Without our finalizer it is unknown whether the asset still exists.
            let judge = &mut *self.stage.judge();
            judge.process_changes(self.stage.now());
            if judge.view.volumes.get(volume).is_some_and(|volume| !volume.protected) {
                judge.exempted.insert(volume.to_owned());
            }
            judge.by_hand.insert(volume.to_owned());
        }
        self.delete(VOLUMES, volume);
    }

    /// Creates released volumes that no process here may touch, with their assets.
    fn make_foreigners(&self) {
        let mut others = vec![("foreign-0", json!({PROVISIONED_BY: OTHER}))];
        // A CSI driver's name belongs to one installation.
        if !self.stage.plan.has_sidecar_rbac() {
            others.push(("foreign-1", json!({PROVISIONED_BY: PROVISIONER, IDENTITY: "elsewhere"})));
        }
        for (name, annotations) in others {
            self.stage.judge().adopt_foreigner(name);
            self.create(&json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "annotations": annotations},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "class-0",
                    "persistentVolumeReclaimPolicy": "Delete", "nfs": {"server": "other", "path": "/other"},
                    "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name, "uid": name},
                },
            }));
        }
    }

    fn block(&self, claim: usize) {
        let Some(volume) = self.volume_of(claim) else { return };
        self.create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": volume, "annotations": {PROVISIONED_BY: OTHER}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "other",
                "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "other", "path": "/other"},
            },
        }));
    }

    fn make_class(&self, class: usize, parameter: u128) {
        let planned = self.stage.plan.classes[class];
        let zones = self.stage.plan.topology.as_ref().map(|topology| &topology.allowed[class]);
        let zones: Vec<String> = zones.into_iter().flatten().copied().map(zone).collect();
        let mut object = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": format!("class-{class}")},
            "provisioner": PROVISIONER, "parameters": {"parameter": parameter.to_string()},
            "allowVolumeExpansion": planned.expands,
            "reclaimPolicy": if planned.retains { "Retain" } else { "Delete" },
            "volumeBindingMode": if planned.waits { "WaitForFirstConsumer" } else { "Immediate" },
        });
        if !zones.is_empty() {
            object["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]);
        }
        self.create(&object);
    }

    fn volume_of(&self, claim: usize) -> Option<String> {
        let uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        Some(self.stage.plan.volume_name(uids.get(&claim)?))
    }

    fn hold(&self, plural: &str, name: &str) {
        let namespace = if plural == CLAIMS { NAMESPACE } else { "" };
        let Ok(mut held) = self.cluster.get("", plural, namespace, name) else { return };
        if object::deletion_timestamp(&held).is_some() || object::finalizers(&held).any(|name| name == HOLD) {
            return;
        }
        let all: Vec<String> = object::finalizers(&held).map(str::to_owned).chain([HOLD.to_owned()]).collect();
        object::set_finalizers(&mut held, all);
        // No other client acts at this moment.
        let _ = self.cluster.update(&held);
    }

    fn journals(&self) -> Vec<Value> {
        let list = |(group, plural)| self.cluster.list(group, plural, None).unwrap_or_default();
        let is_journal = |object: &Value| object::label(object, "app.kubernetes.io/component") == Some("journal");
        [CONFIG_MAPS, LEASES].into_iter().flat_map(list).filter(is_journal).collect()
    }

    fn drop_journals(&self) {
        self.stage.judge().drop_journals(self.stage.now());
        for journal in self.journals() {
            let (namespace, name) = (object::namespace(&journal), object::name(&journal));
            let (group, plural) = if journal["kind"] == "Lease" { LEASES } else { CONFIG_MAPS };
            let target = Target { group, plural, namespace, name };
            // It existed a moment ago.
            let _ = self.cluster.delete(&target, DeleteOptions::default());
        }
    }

    fn each_journal(&self, change: impl Fn(&mut Value)) {
        for mut journal in self.journals() {
            change(&mut journal);
            // It existed a moment ago.
            let _ = self.cluster.update(&journal);
        }
    }

    fn list(&self, plural: &str) -> Vec<Value> {
        self.cluster.list("", plural, None).unwrap_or_default()
    }

    /// Creates the object, unless it exists already.
    fn create(&self, object: &Value) {
        let _ = self.cluster.create(object);
    }

    fn patch(&self, plural: &str, name: &str, patch: &Value) {
        // The object may no longer exist.
        let _ = self.cluster.patch(&target(plural, name), None, PatchKind::Merge, patch);
    }

    fn delete(&self, plural: &str, name: &str) {
        // The object may no longer exist.
        let _ = self.cluster.delete(&target(plural, name), DeleteOptions::default());
    }
}

fn target<'a>(plural: &'a str, name: &'a str) -> Target<'a> {
    Target { group: "", plural, namespace: if plural == VOLUMES { "" } else { NAMESPACE }, name }
}
