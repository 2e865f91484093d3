//! Claims and ObjectBuckets that become unreadable, and readable again.

use kube_sim::{PatchKind, Subresource, Target};
use serde_json::{Value, json};

use super::complications::Definitions;
use super::users::Users;
use super::{NAMESPACE, text};
use crate::process::ProcessEnvironment;

/// An object with content that no reader expects.
pub(crate) struct Garbled {
    plural: &'static str,
    name: String,
    uid: String,
    part: Part,
    /// The original content.
    good: Value,
    bad: Value,
}

#[derive(Clone, Copy)]
struct Part {
    pointer: &'static str,
    subresource: Option<Subresource>,
}

impl Users {
    /// Makes the claim or its ObjectBucket unreadable, in part or as a whole.
    pub(super) fn garble(&mut self, at: usize) {
        let (of_claim, deep) = (self.surprises.bool(), self.surprises.bool());
        self.garble_part(at, of_claim, deep);
    }

    pub(super) fn garble_part(&mut self, at: usize, of_claim: bool, deep: bool) {
        let (plural, name) = if of_claim {
            ("objectbucketclaims", self.wishes[at].name.clone())
        } else {
            ("objectbuckets", format!("obc-{NAMESPACE}-{}", self.wishes[at].name))
        };
        let spec = |pointer| Part { pointer, subresource: None };
        let status = |pointer| Part { pointer, subresource: Some(Subresource::Status) };
        // Only definitions without a schema accept all of these values.
        let loose = self.world.complications.definitions == Definitions::Loose;
        let parts: &[(Part, Value)] = match of_claim {
            true if loose && deep => &[(spec("/spec"), json!("none")), (status("/status"), json!("none"))],
            false if loose && deep => &[
                (spec("/spec"), json!("none")),
                (spec("/spec/endpoint"), json!(["none"])),
                (status("/status"), json!(7)),
            ],
            true => &[
                (spec("/spec/additionalConfig"), json!({"limit": {"at": ["most", 5]}})),
                (spec("/spec/additionalConfig"), json!({"limit": true})),
                (status("/status/conditions"), json!("none")),
                (status("/status/conditions"), json!([{"type": "Ready"}, 3])),
                (status("/status/phase"), json!({"is": "Bound"})),
            ],
            false => &[
                (spec("/spec/claimRef"), json!({"uid": 7, "name": ["a"], "namespace": {}})),
                (spec("/spec/claimRef"), json!({"uid": {"of": "a claim"}})),
                (spec("/spec/additionalState"), json!({"kind": {"of": 1}})),
                (spec("/metadata/annotations/kube-provisioner~1bucket"), json!("{\"source\": 7}")),
                (status("/status/phase"), json!(7)),
            ],
        };
        let (part, bad) = parts[self.surprises.usize(0..parts.len())].clone();
        let Some((uid, good)) = self.value_at(plural, &name, part) else { return };
        if self.garbled.iter().any(|other| (other.plural, &other.name) == (plural, &name)) {
            return;
        }
        self.world.note(|| format!("{name}: {} becomes {bad}", part.pointer));
        let garbled = Garbled { plural, name, uid, part, good, bad };
        if self.write(&garbled, &garbled.good, &garbled.bad) {
            self.garbled.push(garbled);
        }
    }

    pub(super) fn is_garbled(&self, uid: &str) -> bool {
        self.garbled.iter().any(|garbled| garbled.uid == uid)
    }

    /// Makes one of the objects readable again.
    pub(super) fn mend(&mut self) {
        let Some(garbled) = self.garbled.pop() else { return };
        let found = self.value_at(garbled.plural, &garbled.name, garbled.part);
        let Some((_, now)) = found.filter(|(uid, _)| *uid == garbled.uid) else { return };
        let good = match (&now, &garbled.good) {
            (now, good) if *now == garbled.bad => good.clone(),
            // In the meantime, a patch has replaced the whole value, and takes precedence.
            (Value::Object(now), Value::Object(good)) => {
                Value::Object(good.clone().into_iter().chain(now.clone()).collect())
            }
            _ => return,
        };
        self.world.note(|| format!("{}: {} is corrected", garbled.name, garbled.part.pointer));
        self.write(&garbled, &now, &good);
    }

    /// The current value, with the object's uid.
    fn value_at(&self, plural: &'static str, name: &str, part: Part) -> Option<(String, Value)> {
        let namespace = if plural == "objectbuckets" { "" } else { NAMESPACE };
        let object = self.cluster.get("objectbucket.io", plural, namespace, name).ok()?;
        let value = object.pointer(part.pointer).cloned().unwrap_or_default();
        Some((text(&object, "/metadata/uid").to_owned(), value))
    }

    /// Replaces `old` with `new`.
    fn write(&self, garbled: &Garbled, old: &Value, new: &Value) -> bool {
        let namespace = if garbled.plural == "objectbuckets" { "" } else { NAMESPACE };
        let target = Target { group: "objectbucket.io", plural: garbled.plural, namespace, name: &garbled.name };
        // In a JSON patch a value replaces the existing value as a whole.
        let operation = if old.is_null() { "add" } else { "replace" };
        let patch = if new.is_null() {
            json!([{"op": "remove", "path": garbled.part.pointer}])
        } else {
            json!([{"op": operation, "path": garbled.part.pointer, "value": new}])
        };
        self.cluster.patch(&target, garbled.part.subresource, PatchKind::Json, &patch).is_ok()
    }
}
