//! Loss of objects, and restores from backups.

use std::sync::PoisonError;

use kube_provisioner::protocol::{PROVISIONED_BY, RELEASE};
use kube_sim::{Target, Verb, object};
use serde_json::{Value, json};

use super::{CLAIMS, NAMESPACE, Users, VOLUMES};
use crate::plan::Copying;
use crate::process::ProcessEnvironment;

/// Annotations that the binder writes and Velero removes.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Objects at one point in time.
#[derive(Clone, Default)]
pub(super) struct Backup {
    claims: Vec<Value>,
    volumes: Vec<Value>,
    journals: Vec<Value>,
}

impl Users {
    pub(super) fn back_up(&self) {
        let volumes = self.list(VOLUMES).into_iter().filter(|volume| object::deletion_timestamp(volume).is_none());
        let backup = Backup {
            claims: self.list(CLAIMS),
            volumes: volumes.filter_map(|volume| self.with_owners(object::name(&volume))).collect(),
            journals: self.journals(),
        };
        *self.backup.lock().unwrap_or_else(PoisonError::into_inner) = backup;
    }

    pub(super) fn latest_backup(&self) -> Backup {
        self.backup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes the backup of this cluster to the users of the other one.
    pub(super) fn in_other_cluster(&self, with: impl FnOnce(&Users, &Backup)) {
        if let Some(others) = self.others.get().and_then(std::sync::Weak::upgrade) {
            with(&others, &self.latest_backup());
        }
    }

    /// Creates the objects of the backup that are missing in the cluster.
    pub(super) fn restore(&self, backup: &Backup, copying: Copying) {
        for volume in &backup.volumes {
            self.restore_volume(volume, copying);
        }
        for claim in &backup.claims {
            self.restore_claim(claim, copying);
        }
    }

    fn restore_volume(&self, volume: &Value, copying: Copying) {
        let name = object::name(volume);
        if self.cluster.get("", VOLUMES, "", name).is_ok() {
            return;
        }
        let mut copy = stripped(volume);
        if matches!(copying, Copying::Unbound | Copying::Velero) {
            let reference = object::object_mut(&mut copy["spec"], "claimRef");
            reference.remove("uid");
            reference.remove("resourceVersion");
        }
        if copying == Copying::Velero {
            object::remove_annotation(&mut copy, BOUND_BY_CONTROLLER);
            object::remove_annotation(&mut copy, PROVISIONED_BY);
        }
        {
            let judge = &mut *self.stage.judge();
            judge.process_changes(self.stage.now());
            judge.record_restored_volume(name);
        }
        self.create(&copy);
        if matches!(copying, Copying::Velero | Copying::Thorough) {
            let mut owners = object::meta(volume, "managedFields").cloned().unwrap_or_default();
            // In the simulation, a backup is seconds old. In reality, its age exceeds the difference between the clocks
            // of two API servers.
            for owner in owners.as_array_mut().into_iter().flatten() {
                owner["time"] = "2020-01-01T00:00:00Z".into();
            }
            self.patch(VOLUMES, name, &json!({"metadata": {"managedFields": owners}}));
        }
    }

    /// Restores the claim if it had a volume. A claim without a volume would not differ from a new one.
    fn restore_claim(&self, claim: &Value, copying: Copying) {
        let name = object::name(claim);
        if self.cluster.get("", CLAIMS, NAMESPACE, name).is_ok() {
            return;
        }
        if object::text_at(claim, &["spec", "volumeName"]).is_empty() {
            return;
        }
        let mut copy = stripped(claim);
        if matches!(copying, Copying::Unbound | Copying::Velero) {
            object::remove_annotation(&mut copy, BIND_COMPLETED);
            object::remove_annotation(&mut copy, BOUND_BY_CONTROLLER);
        }
        if let Ok(created) = self.cluster.create(&copy) {
            self.stage.judge().copied_claims.insert(object::uid(&created).to_owned());
        }
    }

    /// Replaces the current journals with the journals in the backup.
    pub(super) fn restore_journals(&self, backup: &Backup) {
        self.drop_journals();
        self.stage.restore_journals();
        for journal in &backup.journals {
            self.create(&stripped(journal));
        }
    }

    /// Removes a claim and its volume by force. The asset stays in the backend.
    pub(super) fn lose(&self, claim: usize) {
        let Some(volume) = self.volume_of(claim) else { return };
        let claim = format!("claim-{claim}");
        {
            let judge = &mut *self.stage.judge();
            judge.process_changes(self.stage.now());
            judge.record_forced_deletion(&volume);
        }
        self.delete("pods", &claim);
        for (plural, name) in [(VOLUMES, &volume), (CLAIMS, &claim)] {
            self.patch(plural, name, &json!({"metadata": {"finalizers": null}}));
            self.delete(plural, name);
        }
    }

    /// Removes all finalizers of a claim and its volume. Objects that were being deleted disappear.
    pub(super) fn strip(&self, claim: usize) {
        let Some(volume) = self.volume_of(claim) else { return };
        {
            let judge = &mut *self.stage.judge();
            judge.process_changes(self.stage.now());
            judge.strip(&volume);
        }
        for (plural, name) in [(VOLUMES, &volume), (CLAIMS, &format!("claim-{claim}"))] {
            self.patch(plural, name, &json!({"metadata": {"finalizers": null}}));
        }
    }

    /// In half of the runs, users want restored volumes to be deleted, and confirm this as events ask.
    pub(super) fn confirm_copies(&self, events: &[Value]) {
        if !self.stage.plan.seed.is_multiple_of(2) {
            return;
        }
        for volume in self.list(VOLUMES) {
            let (name, uid) = (object::name(&volume), object::uid(&volume));
            let about = |event: &&Value| event["involvedObject"]["uid"] == uid;
            let asked = |event: &Value| object::text_at(event, &["message"]).contains(&format!("{RELEASE}={uid}"));
            if object::annotation(&volume, RELEASE) != Some(uid) && events.iter().filter(about).any(asked) {
                self.stage.note(|| format!("users: the data of {name} may go"));
                self.stage.judge().record_deletion_consent(name);
                self.patch(VOLUMES, name, &json!({"metadata": {"annotations": {RELEASE: uid}}}));
            }
        }
    }

    /// A volume with its `managedFields`.
    fn with_owners(&self, name: &str) -> Option<Value> {
        let target = Target { group: "", plural: VOLUMES, namespace: "", name };
        let mut request = self.cluster.request(Verb::Get, &target).ok()?;
        request.managed_fields = true;
        self.cluster.call(request).ok()
    }
}

/// Removes the fields that are never restored.
fn stripped(object: &Value) -> Value {
    let mut copy = object.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "generation"] {
        object::remove_meta(&mut copy, field);
    }
    copy.as_object_mut().map(|copy| copy.remove("status"));
    copy
}
