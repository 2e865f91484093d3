//! Who takes turns: the groups of a pool, or the tenants of a group.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Members by name. One that neither holds a permit nor waits for one is not remembered.
#[derive(Debug)]
pub(super) struct Turns<K, M> {
    members: HashMap<K, M>,
    /// Those that wait.
    places: BTreeMap<Place, K>,
    held: usize,
    waiting: usize,
}

/// Where a member stands among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// How many permits it holds.
    pub(super) held: usize,
    /// How many permits count for that one of its waiters for whom the fewest count.
    pub(super) least: usize,
    /// The lowest is next.
    pub(super) sequence: u64,
}

pub(super) trait Member<K>: Default {
    /// How many permits it holds.
    fn held(&self) -> usize;
    /// How many of its waiters wait.
    fn waiting(&self) -> usize;
    /// Where it stands while it waits. No two have the same sequence.
    fn place(&self, name: &K) -> Place;
}

impl<K: Clone + Eq + Hash, M: Member<K>> Turns<K, M> {
    pub(super) fn new() -> Self {
        Self { members: HashMap::new(), places: BTreeMap::new(), held: 0, waiting: 0 }
    }

    /// How many permits all members hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// How many waiters all members have.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn get(&self, name: &K) -> Option<&M> {
        self.members.get(name)
    }

    /// Changes a member, or makes one.
    pub(super) fn update<T>(&mut self, name: &K, change: impl FnOnce(&mut M) -> T) -> T {
        let (name, mut member) = self.members.remove_entry(name).unwrap_or_else(|| (name.clone(), M::default()));
        if member.waiting() > 0 {
            self.places.remove(&member.place(&name));
        }
        (self.held, self.waiting) = (self.held - member.held(), self.waiting - member.waiting());
        let result = change(&mut member);
        (self.held, self.waiting) = (self.held + member.held(), self.waiting + member.waiting());
        if member.waiting() > 0 {
            self.places.insert(member.place(&name), name.clone());
        }
        if member.held() > 0 || member.waiting() > 0 {
            self.members.insert(name, member);
        }
        result
    }

    /// The fewest permits that count for one that waits.
    pub(super) fn least(&self) -> usize {
        self.places.first_key_value().map_or(0, |(place, _)| place.least)
    }

    /// Of those that wait and may take a permit, the one whose turn it is. Who may, may with fewer permits too. Only the first
    /// of those with equally many is checked, so the number of cases depends on the number of permits alone.
    pub(super) fn next(&self, may: impl Fn(Place) -> bool) -> Option<K> {
        let mut first: Option<(u64, &K)> = None;
        let mut from = Place { held: 0, least: 0, sequence: 0 };
        while let Some((&place, name)) = self.places.range(from..).next() {
            let Place { held, least, sequence } = place;
            from = if may(place) {
                if first.is_none_or(|(earlier, _)| sequence < earlier) {
                    first = Some((sequence, name));
                }
                Place { held, least: least + 1, sequence: 0 }
            } else {
                Place { held: held + 1, least: 0, sequence: 0 }
            };
        }
        first.map(|(_, name)| name.clone())
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// All members, in no order.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &M> {
        self.members.values()
    }
}
