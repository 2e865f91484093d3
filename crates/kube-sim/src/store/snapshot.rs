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
