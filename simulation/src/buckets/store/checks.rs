//! Checks that the controller never asks the author's code to remove something that is still needed.

use serde_json::Value;

use super::{Author, Call, claims_of, uid_of};
use crate::buckets::{NAMESPACE, encoded, record_of, text};
use crate::judge::Invariant;
use crate::process::ProcessEnvironment;

impl Author {
    /// Checks that a bucket in use stays, unless a user has asked to remove it.
    pub(super) fn check_unused(&self, call: &Call, bucket: &str) {
        let ledger = self.world.ledger();
        let is_used = |(of, user): &&(String, String)| {
            let entry = ledger.entry(uid_of(user));
            of == bucket && entry.is_some_and(|entry| !entry.forgotten) && !ledger.may_end(uid_of(user))
        };
        let user = self.world.store().grants.iter().find(is_used).map(|(_, user)| user.clone());
        drop(ledger);
        if let Some(user) = user {
            let seen = format!("{} removes the bucket of {}, which {user} uses", self.process.name, call.claim);
            self.world.report_violation(Invariant::Untouched, seen);
        }
    }

    /// Checks that a user has requested the removal, and that the claim is deleted or being deleted.
    pub(super) fn check_removal(&self, call: &Call, what: &str) {
        let Some(cluster) = self.world.cluster(self.cluster) else { return };
        let claim = cluster.get("objectbucket.io", "objectbucketclaims", NAMESPACE, &call.claim.name);
        let ledger = self.world.ledger();
        let lives = claim.is_ok_and(|claim| {
            ledger.origin(text(&claim, "/metadata/uid")) == call.claim.uid
                && claim["metadata"]["deletionTimestamp"].is_null()
        });
        let may_end = ledger.may_end(&call.claim.uid);
        // Only the deleted ObjectBucket recorded whether the attempt was finished.
        let is_unknown = what == "the user" && ledger.entry(&call.claim.uid).is_some_and(|entry| entry.forgotten);
        drop(ledger);
        // An attempt ends when the bucket that it is to use is removed, or when its own bucket is refused.
        let objects = cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default();
        let is_unfinished = |object: &&Value| {
            let record = record_of(object);
            let ends = record["owner"].is_object() || record["source"].is_string() && what == "the user";
            ends && record["made"] != true && claims_of(object).contains(&call.claim.uid)
        };
        if is_unknown || objects.iter().any(|object| is_unfinished(&object)) {
            return;
        }
        if lives || !may_end {
            let why = if lives { "which lives" } else { "although no user requested that" };
            let seen = format!("{} removes {what} of {}, {why}", self.process.name, call.claim);
            self.world.report_violation(Invariant::Untouched, seen);
        }
    }

    /// Checks that the key in the claim's current Secret stays.
    pub(super) fn check_keys(&self, call: &Call, kept: Option<&str>) {
        let Some(cluster) = self.world.cluster(self.cluster) else { return };
        let secrets = cluster.list("", "secrets", None).unwrap_or_default();
        let ledger = self.world.ledger();
        let is_ours = |secret: &Value| ledger.origin(text(secret, "/metadata/ownerReferences/0/uid")) == call.claim.uid;
        // A Secret with a name that the claim requested before may be created late, and no pod reads it.
        let objects = cluster.list("objectbucket.io", "objectbuckets", None).unwrap_or_default();
        let object = objects.iter().find(|object| claims_of(object).contains(&call.claim.uid));
        let named = object.map(|object| record_of(object)["delivered"]["secret"].clone()).unwrap_or_default();
        let name = named.as_str().unwrap_or(&call.claim.name);
        let ids: Vec<String> = secrets
            .iter()
            .filter(|secret| is_ours(secret) && text(secret, "/metadata/name") == name)
            .map(|secret| text(secret, "/data/AWS_ACCESS_KEY_ID").to_owned())
            .collect();
        // Without the ObjectBucket, it is unknown which key was the current one.
        let forgotten = ledger.entry(&call.claim.uid).is_some_and(|entry| entry.has_unknown_keys);
        drop(ledger);
        let store = self.world.store();
        let keys = store.users.get(&call.user).into_iter().flatten();
        let taken = keys.into_iter().find(|key| Some(key.as_str()) != kept && ids.contains(&encoded(key))).cloned();
        drop(store);
        if let Some(key) = taken.filter(|_| !forgotten) {
            let seen = format!("{} removes the key {key} of {}, which its Secret has", self.process.name, call.claim);
            self.world.report_violation(Invariant::Untouched, seen);
        }
    }
}
