//! Manual actions of users and administrators: they remove finalizers, abandon ObjectBuckets, change the store, and at
//! the end follow the instructions in events.

use std::time::Duration;

use kube_provisioner::bucket::objectbucket_api::names::generated_bucket_name;
use kube_sim::{DeleteOptions, PatchKind, Target};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::final_state;
use super::store::BucketOwner;
use super::users::{Kind, Users, target};
use super::{ADOPT_FOR, CLUSTER_ID, NAMESPACE, claimed_path, claimed_uid, text};
use crate::process::ProcessEnvironment;

/// Every waiting claim must have a reason within two minutes after the last pause of a process.
const REASON_LIMIT: Duration = Duration::from_secs(120 + 90);

#[derive(Clone, Copy, Debug)]
enum Disruption {
    LoseClaim,
    ForceClaim,
    ForceObject,
    MakeBucket,
    DeleteBucket,
    TakeBucket,
    Garble,
    GiveUp,
    Mend,
    BackUp,
    Restore,
}

impl Users {
    /// Performs an unexpected action.
    pub(super) fn surprise(&mut self) {
        let complications = self.world.complications;
        let mut actions: Vec<Disruption> = Vec::new();
        if complications.force {
            actions.extend([Disruption::LoseClaim, Disruption::ForceClaim, Disruption::ForceObject]);
        }
        if complications.by_hand {
            actions.extend([Disruption::MakeBucket, Disruption::DeleteBucket, Disruption::TakeBucket]);
        }
        if complications.unreadable {
            actions.extend([Disruption::Garble, Disruption::Garble, Disruption::GiveUp, Disruption::Mend]);
        }
        if complications.restore {
            // Some objects are lost before a restore.
            actions.extend([Disruption::BackUp, Disruption::LoseClaim, Disruption::ForceObject, Disruption::Restore]);
        }
        let Some(action) = self.surprises.choice(&actions).copied() else { return };
        let at = self.surprises.usize(0..self.wishes.len());
        match action {
            Disruption::LoseClaim => self.lose_claim(at),
            Disruption::ForceClaim => self.force_claim(at),
            Disruption::ForceObject => self.force_object(at),
            Disruption::MakeBucket | Disruption::DeleteBucket | Disruption::TakeBucket => self.change_store(at, action),
            Disruption::Garble => self.garble(at),
            Disruption::GiveUp => self.give_up_unreadable(at),
            Disruption::Mend => self.mend(),
            Disruption::BackUp => self.back_up(),
            Disruption::Restore => self.restore(),
        }
    }

    /// Removes a claim at once, so that no process sees its deletion begin.
    fn lose_claim(&mut self, at: usize) {
        let Some(uid) = self.wishes[at].uid.take() else { return };
        let name = self.wishes[at].name.clone();
        self.world.note(|| format!("{name} is lost"));
        self.world.ledger().record_lost(&uid);
        self.strip("objectbucketclaims", NAMESPACE, &name);
        let _ = self.cluster.delete(&target("objectbucket.io", "objectbucketclaims", &name), DeleteOptions::default());
    }

    /// Forces the deletion of a claim.
    fn force_claim(&mut self, at: usize) {
        let Some(uid) = self.wishes[at].uid.clone() else { return };
        let name = self.wishes[at].name.clone();
        self.remove(at);
        self.world.note(|| format!("the finalizers of {name} are taken off"));
        self.world.ledger().record_lost(&uid);
        self.strip("objectbucketclaims", NAMESPACE, &name);
    }

    fn force_object(&mut self, at: usize) {
        let name = format!("obc-{NAMESPACE}-{}", self.wishes[at].name);
        let Ok(object) = self.cluster.get("objectbucket.io", "objectbuckets", "", &name) else { return };
        self.world.note(|| format!("{name} is lost"));
        // The ObjectBucket of another provisioner may name no claim.
        let claimed = claimed_uid(&object);
        let inherited = self.inherited.clone().filter(|_| self.wishes[at].kind == Kind::Legacy);
        let uid = if claimed.is_empty() { inherited.unwrap_or_default() } else { claimed };
        self.world.ledger().record_forgotten(&uid);
        self.strip("objectbuckets", "", &name);
        self.end_object(&name);
    }

    /// Records that a user abandons an ObjectBucket: its backend state may be removed once its claim is deleted.
    pub(super) fn record_abandonment(&self, name: &str) {
        let Ok(object) = self.cluster.get("objectbucket.io", "objectbuckets", "", name) else { return };
        self.world.ledger().record_given_up(&claimed_uid(&object));
        // The ObjectBucket of another provisioner may name no claim, and belongs to the claim by its name.
        let of_name = |wish: &&super::users::Wish| name == format!("obc-{NAMESPACE}-{}", wish.name);
        if let Some(uid) = self.wishes.iter().find(of_name).and_then(|wish| wish.uid.as_ref()) {
            self.world.ledger().record_given_up(uid);
        }
    }

    /// Makes a claim unreadable, and deletes its ObjectBucket like a user who mistakes it for an unused one.
    fn give_up_unreadable(&mut self, at: usize) {
        self.garble_part(at, true, true);
        self.world.note(|| format!("the ObjectBucket of {} is deleted manually", self.wishes[at].name));
        self.delete_object(at);
    }

    fn strip(&self, plural: &str, namespace: &str, name: &str) {
        let target = Target { group: "objectbucket.io", plural, namespace, name };
        let _ = self.cluster.patch(&target, None, PatchKind::Merge, &json!({"metadata": {"finalizers": null}}));
    }

    fn end_object(&self, name: &str) {
        let target = Target { group: "objectbucket.io", plural: "objectbuckets", namespace: "", name };
        let _ = self.cluster.delete(&target, DeleteOptions::default());
    }

    /// Changes the store directly, as an administrator may do.
    fn change_store(&mut self, at: usize, action: Disruption) {
        let Some(uid) = self.wishes[at].uid.clone() else { return };
        let claim = self.cluster.get("objectbucket.io", "objectbucketclaims", NAMESPACE, &self.wishes[at].name);
        let named = claim.map(|claim| text(&claim, "/spec/bucketName").to_owned()).unwrap_or_default();
        let name = if named.is_empty() { generated_bucket_name("b", &uid) } else { named };
        let mut store = self.world.store();
        let found = store.buckets.get(&name).cloned();
        match (action, found) {
            (Disruption::MakeBucket, None) => drop(store.buckets.insert(name.clone(), BucketOwner::Foreign)),
            (Disruption::DeleteBucket, Some(BucketOwner::Ours { .. })) => drop(store.buckets.remove(&name)),
            (Disruption::TakeBucket, Some(BucketOwner::Ours { .. })) => {
                drop(store.buckets.insert(name.clone(), BucketOwner::Foreign));
            }
            _ => return,
        }
        drop(store);
        self.world.note(|| format!("the administrator: {action:?} {name}"));
        self.wishes[at].disturbed = true;
        // The bucket also belongs to the claim that created it.
        let owner = self.wishes[at].of.as_ref().map(|(owner, _)| owner.clone());
        self.wishes.iter_mut().filter(|wish| Some(&wish.name) == owner.as_ref()).for_each(|wish| wish.disturbed = true);
        if !matches!(action, Disruption::DeleteBucket) {
            self.world.ledger().by_hand.insert(name);
        }
    }

    /// Repairs unreadable objects during the calm, and follows or ignores the instructions in events.
    pub(super) async fn respond_to_events(&mut self) {
        while !self.garbled.is_empty() {
            self.mend();
        }
        if self.world.complications.restore && self.surprises.bool() {
            self.restore();
        }
        sleep(REASON_LIMIT).await;
        final_state::check_reasons_reported(&self.world, self);
        let objects = self.cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default();
        let mut adopted = Vec::new();
        for object in objects {
            let choice = self.surprises.u8(0..6);
            adopted.extend(self.answer(&object, choice));
        }
        sleep(REASON_LIMIT).await;
        self.remove_ownerless();
        for object in self.cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default() {
            // No process here handles the ObjectBuckets of another cluster, so a user also removes the finalizer.
            if !object["metadata"]["deletionTimestamp"].is_null() && self.is_elsewhere(&object) {
                self.strip("objectbuckets", "", text(&object, "/metadata/name"));
            }
        }
        for at in adopted {
            if self.surprises.u8(0..3) == 0 {
                self.remove(at);
            }
        }
    }

    fn is_elsewhere(&self, object: &Value) -> bool {
        object["metadata"]["annotations"][CLUSTER_ID].as_str().is_some_and(|cluster| cluster != self.id)
    }

    /// Resolves an ObjectBucket without a claim. Returns the claim that takes it over, if any.
    fn answer(&mut self, object: &Value, choice: u8) -> Option<usize> {
        let (name, uid) = (text(object, "/metadata/name").to_owned(), claimed_uid(object));
        let lives = self.wishes.iter().any(|wish| wish.uid.as_ref().is_some_and(|own| *own == uid));
        let path = claimed_path(object);
        if self.is_elsewhere(object) {
            match choice {
                0..3 => {
                    self.world.note(|| format!("{name} belongs to another cluster and is deleted manually"));
                    self.end_object(&name);
                }
                // This may have no effect.
                3 => self.annotate(&name, ADOPT_FOR, &path),
                _ => {}
            }
            return None;
        }
        if uid.is_empty() || lives || !object["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let of_path = |wish: &super::users::Wish| wish.uid.is_some() && path == format!("{NAMESPACE}/{}", wish.name);
        // A claim that has an ObjectBucket does not take over another one.
        let has_another = self.cluster.get(
            "objectbucket.io",
            "objectbucketclaims",
            NAMESPACE,
            path.rsplit('/').next().unwrap_or_default(),
        );
        let has_another = has_another.is_ok_and(|claim| ![&name, ""].contains(&text(&claim, "/spec/objectBucketName")));
        let claim = self.wishes.iter().position(of_path).filter(|_| !has_another);
        // If no object names the cluster of a bucket, assume that users know the cluster.
        let is_here = self.world.ledger().cluster_of(&uid).is_none_or(|cluster| cluster == self.number);
        match (claim, choice) {
            (Some(at), 0..4) if is_here => {
                let by = self.wishes[at].uid.clone().unwrap_or_default();
                self.world.note(|| format!("{name} is adopted by {path}"));
                self.world.ledger().record_adopted(&by, &uid);
                self.wishes[at].disturbed = true;
                self.annotate(&name, ADOPT_FOR, &path);
                return Some(at);
            }
            (_, 4) => {
                self.world.note(|| format!("{name} is deleted manually"));
                self.record_abandonment(&name);
                self.end_object(&name);
            }
            (None, 0 | 1) => {
                self.world.note(|| format!("{name} is abandoned"));
                self.record_abandonment(&name);
                self.world.ledger().record_forgotten(&uid);
                self.annotate(&name, "kube-provisioner/abandon", "true");
            }
            _ => {}
        }
        None
    }

    fn annotate(&self, object: &str, annotation: &str, value: &str) {
        let target = Target { group: "objectbucket.io", plural: "objectbuckets", namespace: "", name: object };
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        let _ = self.cluster.patch(&target, None, PatchKind::Merge, &patch);
    }

    /// Secrets and ConfigMaps from a backup have lost their owners. Claims refuse those that do not match.
    fn remove_ownerless(&self) {
        for at in (0..self.wishes.len()).filter(|at| self.wishes[*at].kind != Kind::BlockedBySecret) {
            for plural in ["secrets", "configmaps"] {
                let name = &self.delivered(plural, at);
                let Ok(object) = self.cluster.get("", plural, NAMESPACE, name) else { continue };
                if object["metadata"]["ownerReferences"].is_null() {
                    let _ = self.cluster.delete(&target("", plural, name), DeleteOptions::default());
                }
            }
        }
    }
}
