//! The state of one kind of object, from a watch.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};

use kube_provisioner::Change;

/// The relevant fields of the watched objects, by object name.
pub(crate) struct WatchedObjects<T> {
    all: Option<BTreeMap<String, T>>,
    /// The objects of the list in progress. Converting a whole list to a map saves nearly half of the map's memory.
    listed: Vec<(String, T)>,
}

/// The effect of a change.
pub(crate) enum ChangedObjects<T> {
    Nothing,
    One { name: String, before: Option<T> },
    Many { before: BTreeMap<String, T> },
}

impl<T> Default for WatchedObjects<T> {
    fn default() -> Self {
        Self { all: None, listed: Vec::new() }
    }
}

impl<T: PartialEq> WatchedObjects<T> {
    /// Returns the objects, or `None` before the first complete list.
    pub(crate) fn all(&self) -> Option<&BTreeMap<String, T>> {
        self.all.as_ref()
    }

    /// Applies a change to the object with this name. An object without relevant fields counts as absent.
    pub(crate) fn apply(&mut self, change: Change<(String, Option<T>)>) -> ChangedObjects<T> {
        let (name, now) = match change {
            Change::Begin => {
                self.listed.clear();
                return ChangedObjects::Nothing;
            }
            Change::Listed((name, now)) => {
                self.listed.extend(now.map(|now| (name, now)));
                return ChangedObjects::Nothing;
            }
            Change::Ready => {
                let before = self.all.replace(std::mem::take(&mut self.listed).into_iter().collect());
                let is_same = before == self.all;
                return if is_same {
                    ChangedObjects::Nothing
                } else {
                    ChangedObjects::Many { before: before.unwrap_or_default() }
                };
            }
            Change::Applied((name, now)) => (name, now),
            Change::Deleted((name, _)) => (name, None),
        };
        let all = self.all.get_or_insert_default();
        if all.get(&name) == now.as_ref() {
            return ChangedObjects::Nothing;
        }
        let before = match now {
            Some(now) => all.insert(name.clone(), now),
            None => all.remove(&name),
        };
        ChangedObjects::One { name, before }
    }
}

/// Returns a number that is the same for equal values in all processes of this build.
pub(crate) fn hash(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
