//! A table of the Secrets or ConfigMaps that claims' pods use, from the watch and from answers.

use provisioner_runtime::{Change, Table};

use super::delivered::{DeliveredFacts, WatchedDelivered};
use super::key::Key;

#[derive(Default)]
pub(super) struct DeliveredTable {
    table: Table<Box<str>, DeliveredFacts>,
    /// The newest resource version that the watch has shown. Writes up to this version are already known, and their
    /// objects may have been deleted since.
    shown: u64,
    /// The number of complete lists. A list shows a deletion only by the object's absence.
    pub(super) lists: u64,
    /// States of versions up to this one are older than the list that is being applied.
    pub(super) listing: u64,
}

impl DeliveredTable {
    /// Applies a watch event. `keys_at` returns the claims that an object at this path affects.
    pub(super) fn event(
        &mut self,
        keys_at: impl Fn(&str) -> Vec<Key>,
        event: Change<Option<WatchedDelivered>>,
    ) -> Vec<Key> {
        if let Change::Applied(Some(seen)) | Change::Deleted(Some(seen)) = &event {
            self.shown = self.shown.max(seen.facts.resource_version);
        }
        match event {
            Change::Begin => self.table.begin_snapshot(),
            Change::Listed(Some(seen)) | Change::Applied(Some(seen)) => {
                let keys = keys_at(&seen.path);
                return if self.put(seen) { keys } else { Vec::new() };
            }
            Change::Deleted(Some(seen)) => {
                let same = self.table.get(&*seen.path).is_some_and(|known| known.uid == seen.facts.uid);
                if same {
                    self.table.remove(&*seen.path);
                }
                return keys_at(&seen.path);
            }
            Change::Ready => {
                self.lists += 1;
                let gone = self.table.end_snapshot();
                return gone.iter().flat_map(|(path, _)| keys_at(path)).collect();
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn get(&self, path: &str) -> Option<&DeliveredFacts> {
        self.table.get(path)
    }

    /// Applies the result of a write, unless the watch is already newer. A list in progress decides whether the object
    /// still exists: if the list is older, the watch shows the write after it.
    pub(super) fn observe(&mut self, seen: Option<WatchedDelivered>) {
        if let Some(seen) = seen.filter(|seen| seen.facts.resource_version > self.shown && self.is_newer(seen)) {
            let awaits_listing = self.table.awaits_listing(&*seen.path);
            self.table.insert(seen.path.clone(), seen.facts);
            if awaits_listing {
                self.table.await_listing(seen.path);
            }
        }
    }

    fn put(&mut self, seen: WatchedDelivered) -> bool {
        // A watch that is behind may still show the previous object of this name.
        if !self.is_newer(&seen) {
            self.table.keep(&seen.path);
            return false;
        }
        self.table.insert(seen.path, seen.facts);
        true
    }

    fn is_newer(&self, seen: &WatchedDelivered) -> bool {
        let is_older = |known: &DeliveredFacts| {
            seen.facts.resource_version < known.resource_version && known.resource_version > self.listing
        };
        !self.table.get(&*seen.path).is_some_and(is_older)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::super::delivered::Deliverable as _;
    use super::*;

    const PATH: &str = "shop/photos";

    fn secret(resource_version: &str) -> Option<WatchedDelivered> {
        let metadata = json!({"namespace": "shop", "name": "photos", "uid": "s", "resourceVersion": resource_version});
        let secret: Secret = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        secret.to_watched()
    }

    fn knows(table: &DeliveredTable) -> bool {
        table.table.get(PATH).is_some()
    }

    #[test]
    fn a_late_answer_does_not_restore_a_deleted_object() {
        let (mut table, none) = (DeliveredTable::default(), |_: &str| Vec::new());
        table.observe(secret("4"));
        assert!(knows(&table));
        table.event(none, Change::Applied(secret("5")));
        table.event(none, Change::Deleted(secret("7")));
        table.observe(secret("5"));
        assert!(!knows(&table));
        table.observe(secret("8"));
        assert!(knows(&table));
    }

    /// The object was created, its watch was interrupted, and it was deleted before the list that closes the gap.
    #[test]
    fn a_list_removes_an_object_that_it_does_not_contain() {
        let (mut table, none) = (DeliveredTable::default(), |_: &str| Vec::new());
        table.event(none, Change::Begin);
        table.observe(secret("4"));
        assert!(knows(&table));
        table.event(none, Change::Ready);
        assert!(!knows(&table));
        // The list is older than the write: the watch shows the written object.
        table.event(none, Change::Applied(secret("4")));
        assert!(knows(&table));
    }

    #[test]
    fn a_listed_version_does_not_replace_a_newer_answer() {
        let (mut table, none) = (DeliveredTable::default(), |_: &str| Vec::new());
        table.event(none, Change::Begin);
        table.observe(secret("6"));
        table.event(none, Change::Listed(secret("4")));
        table.event(none, Change::Ready);
        assert_eq!(table.get(PATH).map(|known| known.resource_version), Some(6));
    }
}
