//! The objects of a resource at an earlier resourceVersion, computed by undoing later changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Storage, Stored};

/// A view of a [`Storage`] at a resourceVersion.
pub(crate) struct Snapshot<'a> {
    storage: &'a Storage,
    /// The differences from now: the state then, or `None` for an object that did not exist.
    then: BTreeMap<&'a str, Option<&'a Arc<Stored>>>,
}

impl<'a> Snapshot<'a> {
    /// `None` if the history does not go back that far.
    pub(crate) fn at(storage: &'a Storage, version: u64) -> Option<Self> {
        if version < storage.compacted() {
            return None;
        }
        let mut then = BTreeMap::new();
        for change in storage.changes_after(version).rev() {
            then.insert(change.object.key(), change.before.as_ref());
        }
        Some(Self { storage, then })
    }

    /// Like [`Storage::range`].
    pub(crate) fn range(&'a self, prefix: &'a str, from: &'a str) -> impl Iterator<Item = &'a Arc<Stored>> {
        let start = if from > prefix { from } else { prefix };
        let mut today = self.storage.range(prefix, from).peekable();
        let mut then = self
            .then
            .range::<str, _>((std::ops::Bound::Included(start), std::ops::Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .peekable();
        std::iter::from_fn(move || {
            loop {
                let changed = match (today.peek(), then.peek()) {
                    (Some(now), Some(&(key, _))) => *key <= now.key(),
                    (None, Some(_)) => true,
                    (_, None) => return today.next(),
                };
                if !changed {
                    return today.next();
                }
                let (key, state) = then.next()?;
                today.next_if(|now| now.key() == *key);
                if let Some(object) = state {
                    return Some(*object);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ChangeKind, HistoryEntry, Ownership};
    use super::*;
    use crate::ownership::Credit;
    use crate::resource::Resource;

    #[test]
    fn changes_are_undone() {
        let resource = Resource::builtin("", "persistentvolumes");
        let mut storage = Storage::new(Arc::clone(&resource), 100, 0);
        let state = |name: &str, version| {
            let ownership = Ownership::of_new(Credit::Server);
            Arc::new(Stored::new(&resource, &json!({"metadata": {"name": name}}), version, ownership))
        };
        let mut record = |kind, object: &Arc<Stored>, before: Option<&Arc<Stored>>| {
            storage.record(HistoryEntry { kind, object: Arc::clone(object), before: before.cloned() });
        };
        let (a1, b2, c3) = (state("a", 1), state("b", 2), state("c", 3));
        record(ChangeKind::Created, &a1, None);
        record(ChangeKind::Created, &b2, None);
        record(ChangeKind::Created, &c3, None);
        let b4 = state("b", 4);
        record(ChangeKind::Updated, &b4, Some(&b2));
        record(ChangeKind::Deleted, &state("a", 5), Some(&a1));
        record(ChangeKind::Updated, &state("b", 6), Some(&b4));
        let at = |version: u64, from: &'static str| -> Vec<String> {
            let snapshot = Snapshot::at(&storage, version).unwrap();
            let objects = snapshot.range("", from);
            objects.map(|object| format!("{}{}", object.name(), object.resource_version())).collect()
        };
        assert_eq!(at(6, ""), ["b6", "c3"]);
        assert_eq!(at(4, ""), ["a1", "b4", "c3"]);
        assert_eq!(at(2, ""), ["a1", "b2"]);
        assert_eq!(at(4, "b"), ["b4", "c3"]);
        assert_eq!(at(0, ""), [""; 0]);
        storage.compact(4);
        assert!(Snapshot::at(&storage, 3).is_none());
        assert!(Snapshot::at(&storage, 4).is_some());
    }
}
