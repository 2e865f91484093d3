//! Indexes: sets of keys by a common property.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Removes an element of one of the sets, and the set when it is empty.
pub(crate) fn remove_entry<N, Q, T>(sets: &mut HashMap<N, BTreeSet<T>>, name: &Q, element: &T)
where
    N: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
    T: Ord,
{
    if let Some(set) = sets.get_mut(name) {
        set.remove(element);
        if set.is_empty() {
            sets.remove(name);
        }
    }
}
