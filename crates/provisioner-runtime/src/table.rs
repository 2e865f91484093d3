//! A compact map that a watch feeds.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

use crate::watch::Change;

/// Maps with less capacity are never shrunk, because moving them is not worth it.
const SMALL: usize = 256;

/// The known state of every object of a kind: a map that can be compared with a new list.
///
/// A watch that restarts lists everything, but does not report what was deleted in the meantime. So call
/// [`begin_snapshot`](Self::begin_snapshot), [`insert`](Self::insert) everything listed, and
/// [`end_snapshot`](Self::end_snapshot) returns the entries that were not listed. Until then, all earlier entries can
/// still be looked up.
///
/// # Memory
///
/// An entry costs `size_of::<(K, V)>()` + 1 bytes, times 1.15 to 2.3 depending on how full the map is, plus what the
/// key and the value allocate. Snapshots add no data per entry; during a snapshot there are two maps, of which one
/// shrinks while the other grows. After a snapshot, and when entries are removed, unused capacity is released.
///
/// ```
/// # use provisioner_runtime::Table;
/// let mut table = Table::new();
/// table.insert("a", 1);
/// table.insert("b", 2);
///
/// table.begin_snapshot();
/// table.insert("b", 3);
/// assert_eq!(table.get(&"a"), Some(&1));
/// assert_eq!(table.end_snapshot(), [("a", 1)]);
/// assert_eq!(table.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Table<K, V> {
    current: HashMap<K, V>,
    /// During a snapshot: entries from before it that have not been listed yet.
    unseen: HashMap<K, V>,
    in_snapshot: bool,
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { current: HashMap::new(), unseen: HashMap::new(), in_snapshot: false }
    }

    /// Stores `value` and returns the one it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let unseen = if self.in_snapshot { self.unseen.remove(&key) } else { None };
        if unseen.is_some() {
            shrink_if_sparse(&mut self.unseen);
        }
        self.current.insert(key, value).or(unseen)
    }

    /// Returns true if a snapshot has begun and has not listed this key yet. If you store a response now, call
    /// [`await_listing`](Self::await_listing) afterwards: the list may be newer, and may lack the object.
    pub fn awaits_listing<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.in_snapshot && !self.current.contains_key(key)
    }

    /// Marks an entry that was just stored as not seen.
    pub fn await_listing(&mut self, key: K) {
        if self.in_snapshot
            && let Some(value) = self.current.remove(&key)
        {
            self.unseen.insert(key, value);
        }
    }

    /// Marks an entry as seen without changing it, for a listed object that is older than the known one.
    pub fn keep(&mut self, key: &K)
    where
        K: Clone,
    {
        if let Some(value) = self.unseen.remove(key) {
            shrink_if_sparse(&mut self.unseen);
            self.current.insert(key.clone(), value);
        }
    }

    /// Removes an entry and returns its value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let value = self.current.remove(key);
        if value.is_some() {
            shrink_if_sparse(&mut self.current);
            return value;
        }
        self.unseen.remove(key)
    }

    /// Returns the value of `key`.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.current.get(key).or_else(|| self.unseen.get(key))
    }

    /// Returns the value of `key` for modification.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.current.get_mut(key).or_else(|| self.unseen.get_mut(key))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.current.len() + self.unseen.len()
    }

    /// Returns true if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all entries in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.current.iter().chain(&self.unseen)
    }

    /// Begins a snapshot: entries count as seen once they are inserted. A call during a snapshot restarts it.
    pub fn begin_snapshot(&mut self) {
        self.in_snapshot = true;
        let seen = mem::take(&mut self.current);
        if self.unseen.is_empty() {
            self.unseen = seen;
        } else {
            self.unseen.extend(seen);
        }
    }

    /// Ends the snapshot: removes and returns the entries not seen since [`begin_snapshot`](Self::begin_snapshot),
    /// ordered by key.
    ///
    /// Removes nothing if no snapshot has begun.
    pub fn end_snapshot(&mut self) -> Vec<(K, V)>
    where
        K: Ord,
    {
        self.in_snapshot = false;
        let mut gone: Vec<_> = mem::take(&mut self.unseen).into_iter().collect();
        gone.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.current.shrink_to_fit();
        gone
    }

    /// Applies a change of a watch whose objects were read as a key and a value. `None` as the value removes the entry.
    /// Returns the keys of the changed entries.
    pub fn apply(&mut self, change: Change<(K, Option<V>)>) -> Vec<K>
    where
        K: Clone + Ord,
    {
        let (key, value) = match change {
            Change::Begin => {
                self.begin_snapshot();
                return Vec::new();
            }
            Change::Listed(entry) | Change::Applied(entry) => entry,
            Change::Deleted((key, _)) => (key, None),
            Change::Ready => return self.end_snapshot().into_iter().map(|(key, _)| key).collect(),
        };
        let changes = match value {
            Some(value) => {
                self.insert(key.clone(), value);
                true
            }
            None => self.remove(&key).is_some(),
        };
        changes.then_some(key).into_iter().collect()
    }
}

impl<K: Eq + Hash, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Halves the map's capacity when three quarters of it are unused, so that the cost per removal is constant.
fn shrink_if_sparse<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > SMALL && map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kept_entries_survive_a_snapshot() {
        let mut table = Table::new();
        table.insert("a", 1);
        table.insert("b", 2);
        table.begin_snapshot();
        table.keep(&"a");
        table.keep(&"c");
        assert_eq!(table.end_snapshot(), [("b", 2)]);
        assert_eq!((table.get("a"), table.len()), (Some(&1), 1));
    }

    #[test]
    fn all_entries_can_be_looked_up_during_a_snapshot() {
        let mut table = filled(3);
        table.begin_snapshot();
        table.insert(1, 10);
        *table.get_mut(&2).expect("not listed yet, still known") += 20;
        let mut all: Vec<(u32, u32)> = table.iter().map(|(key, value)| (*key, *value)).collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 0), (1, 10), (2, 22)]);
        assert_eq!(table.len(), 3);
    }

    /// Inserts a value the way caches apply responses.
    fn insert_unlisted<K: Eq + Hash + Copy, V>(table: &mut Table<K, V>, key: K, value: V) -> Option<V> {
        let awaits_listing = table.awaits_listing(&key);
        let before = table.insert(key, value);
        if awaits_listing {
            table.await_listing(key);
        }
        before
    }

    #[test]
    fn memory_per_entry_is_as_documented() {
        for count in [1_000, 10_000, 57_344, 57_345, 100_000] {
            let mut table = filled(count);
            for _ in 0..3 {
                table.begin_snapshot();
                (0..count).for_each(|key| {
                    table.insert(key, key);
                });
                assert_eq!(table.end_snapshot(), []);
                assert!(table.unseen.capacity() == 0);
                // A map of this kind is never more than 7/8 full, and doubles when it would exceed that.
                let cost = f64::from(u32::try_from(table.current.capacity()).unwrap()) * 8.0 / 7.0;
                let factor = cost / f64::from(count);
                assert!((1.14..2.31).contains(&factor), "{count}: {factor}");
            }
        }
    }

    #[test]
    fn snapshot_uses_less_than_twice_the_capacity() {
        let mut table = filled(100_000);
        let before = table.current.capacity();
        table.begin_snapshot();
        let mut most = 0;
        for key in 0..100_000 {
            table.insert(key, key);
            most = most.max(table.current.capacity() + table.unseen.capacity());
        }
        assert!(most < 2 * before, "{most} {before}");
    }

    #[test]
    fn removals_release_capacity() {
        let mut table = filled(100_000);
        (0..99_000).for_each(|key| {
            table.remove(&key);
        });
        assert_eq!(table.len(), 1_000);
        assert!(table.current.capacity() < 8_000);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u8),
        InsertUnlisted(u8, u8),
        Remove(u8),
        Begin,
        End,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..20_u8, any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
            3 => (0..20_u8, any::<u8>()).prop_map(|(key, value)| Step::InsertUnlisted(key, value)),
            3 => (0..20_u8).prop_map(Step::Remove),
            1 => Just(Step::Begin),
            1 => Just(Step::End),
        ]
    }

    proptest! {
        /// The reference map stores with each value whether it was seen.
        #[test]
        fn behaves_like_a_map_with_seen_flags(steps in prop::collection::vec(step(), 1..200)) {
            let mut table = Table::new();
            let mut reference = HashMap::<u8, (u8, bool)>::new();
            let mut in_snapshot = false;
            for step in steps {
                match step {
                    Step::Insert(key, value) => {
                        let expected = reference.insert(key, (value, true)).map(|(value, _)| value);
                        prop_assert_eq!(table.insert(key, value), expected);
                    }
                    Step::InsertUnlisted(key, value) => {
                        let seen = !in_snapshot || reference.get(&key).is_some_and(|(_, seen)| *seen);
                        let expected = reference.insert(key, (value, seen)).map(|(value, _)| value);
                        prop_assert_eq!(insert_unlisted(&mut table, key, value), expected);
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(table.remove(&key), reference.remove(&key).map(|(value, _)| value));
                    }
                    Step::Begin => {
                        in_snapshot = true;
                        table.begin_snapshot();
                        reference.values_mut().for_each(|(_, seen)| *seen = false);
                    }
                    Step::End => {
                        in_snapshot = false;
                        let mut gone = table.end_snapshot();
                        gone.sort_unstable();
                        let mut expected: Vec<(u8, u8)> =
                            reference.extract_if(|_, (_, seen)| !*seen).map(|(k, (v, _))| (k, v)).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(gone, expected);
                    }
                }
                prop_assert_eq!(table.len(), reference.len());
                for key in 0..20 {
                    prop_assert_eq!(table.get(&key), reference.get(&key).map(|(value, _)| value));
                }
            }
        }
    }

    fn filled(count: u32) -> Table<u32, u32> {
        let mut table = Table::new();
        (0..count).for_each(|key| {
            table.insert(key, key);
        });
        table
    }
}
