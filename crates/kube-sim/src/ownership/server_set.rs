//! Fields that the server sets in an object from a client. The client does not own them.

use serde_json::{Value, json};

use crate::object::at;
use crate::resource::{Resource, Special};

/// A set of fields of a resource that the server has set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSet(u8);

/// A field, or a text in a list.
struct ServerSetField {
    parent: &'static [&'static str],
    field: &'static str,
    item: &'static str,
}

/// Returns the fields that admission and the strategies set.
fn fields(resource: &Resource) -> &'static [ServerSetField] {
    const fn field(parent: &'static [&'static str], field: &'static str) -> ServerSetField {
        ServerSetField { parent, field, item: "" }
    }
    const fn finalizer(item: &'static str) -> ServerSetField {
        ServerSetField { parent: &["metadata"], field: "finalizers", item }
    }
    const CLAIM: [ServerSetField; 4] = [
        finalizer("kubernetes.io/pvc-protection"),
        field(&["spec"], "storageClassName"),
        field(&["spec"], "dataSource"),
        field(&["spec"], "dataSourceRef"),
    ];
    const VOLUME: [ServerSetField; 2] =
        [finalizer("kubernetes.io/pv-protection"), field(&["status"], "lastPhaseTransitionTime")];
    match resource.special {
        Special::Claim => &CLAIM,
        Special::Volume => &VOLUME,
        Special::AttributesClass => const { &[finalizer("kubernetes.io/vac-protection")] },
        Special::Namespace => const { &[field(&["spec"], "finalizers")] },
        Special::Node => const { &[field(&["spec"], "taints")] },
        _ => &[],
    }
}

impl ServerSet {
    /// The empty set.
    pub(crate) const NOTHING: Self = Self(0);

    /// Returns the fields that the client did not change; for a new object, those that it left out.
    pub(crate) fn unchanged_by_client(resource: &Resource, old: Option<&Value>, sent: &Value) -> Self {
        Self(u8::MAX).holds(resource, old, sent, |before, after| before == after)
    }

    /// Returns the subset of fields that have changed.
    #[must_use]
    pub(crate) fn changed_since(self, resource: &Resource, old: Option<&Value>, kept: &Value) -> Self {
        self.holds(resource, old, kept, |before, after| before != after)
    }

    /// Returns the object as the client sent it.
    pub(crate) fn undo(self, resource: &Resource, old: Option<&Value>, mut kept: Value) -> Value {
        for (index, field) in fields(resource).iter().enumerate().filter(|(index, _)| self.0 & (1 << index) != 0) {
            assert!(index < 8, "the tables above are short");
            field.set(&mut kept, old.and_then(|old| field.get(at(old, field.parent)?)));
        }
        kept
    }

    /// Returns the subset of fields for which `holds` is true.
    fn holds(
        self,
        resource: &Resource,
        old: Option<&Value>,
        new: &Value,
        holds: impl Fn(Option<&Value>, Option<&Value>) -> bool,
    ) -> Self {
        let mut bits = 0;
        let (mut path, mut before, mut after): (&[&str], _, _) = (&[], old, Some(new));
        for (index, field) in fields(resource).iter().enumerate().filter(|(index, _)| self.0 & (1 << index) != 0) {
            // Usually the field has the same parent as the previous one.
            if field.parent != path {
                path = field.parent;
                (before, after) = (old.and_then(|old| at(old, path)), at(new, path));
            }
            if holds(before.and_then(|parent| field.get(parent)), after.and_then(|parent| field.get(parent))) {
                bits |= 1 << index;
            }
        }
        Self(bits)
    }
}

impl ServerSetField {
    fn get<'a>(&self, parent: &'a Value) -> Option<&'a Value> {
        let value = parent.get(self.field)?;
        match self.item {
            "" => Some(value),
            item => value.as_array()?.iter().find(|other| *other == item),
        }
    }

    fn set(&self, object: &mut Value, value: Option<&Value>) {
        let parent = self.parent.iter().try_fold(object, |value, key| value.get_mut(*key));
        let Some(Value::Object(members)) = parent else { return };
        if !self.item.is_empty() {
            let Some(Value::Array(list)) = members.get_mut(self.field) else { return };
            list.retain(|other| other != self.item);
            if value.is_some() {
                list.push(json!(self.item));
            }
            if list.is_empty() {
                members.remove(self.field);
            }
            return;
        }
        match value {
            Some(value) => drop(members.insert(self.field.to_owned(), value.clone())),
            None => drop(members.remove(self.field)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_restores_the_object_as_sent() {
        let resource = Resource::builtin("", "persistentvolumeclaims");
        let sent = json!({"metadata": {"name": "a", "finalizers": ["x/y"]}, "spec": {"storageClassName": "fast"}});
        let kept = json!({
            "metadata": {"name": "a", "finalizers": ["x/y", "kubernetes.io/pvc-protection"]},
            "spec": {"storageClassName": "fast", "dataSource": {"kind": "A"}},
        });
        let set = ServerSet::unchanged_by_client(&resource, None, &sent).changed_since(&resource, None, &kept);
        assert_eq!(set.undo(&resource, None, kept.clone()), sent);
        let same =
            ServerSet::unchanged_by_client(&resource, Some(&kept), &kept).changed_since(&resource, Some(&kept), &kept);
        assert_eq!(same, ServerSet::NOTHING);
        assert_eq!(same.undo(&resource, Some(&kept), kept.clone()), kept);
    }
}
