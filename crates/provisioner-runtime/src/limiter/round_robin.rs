//! Turn-taking among the groups of a pool, or the tenants of a group.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Members by name. A member that neither holds a permit nor waits for one is not remembered.
#[derive(Debug)]
pub(super) struct RoundRobin<K, M> {
    members: HashMap<K, M>,
    /// The members that wait.
    places: BTreeMap<Place, K>,
    held: usize,
    waiting: usize,
}

/// The position of a member among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The number of permits it holds.
    pub(super) held: usize,
    /// The lowest number of permits that count against any of its waiters.
    pub(super) least: usize,
    /// The sequence number; the lowest is next.
    pub(super) sequence: u64,
}

pub(super) trait Member<K>: Default {
    /// Returns the number of permits it holds.
    fn held(&self) -> usize;
    /// Returns the number of its waiters.
    fn waiting(&self) -> usize;
    /// Returns its position while it waits. No two members have the same sequence.
    fn place(&self, name: &K) -> Place;
}

impl<K: Clone + Eq + Hash, M: Member<K>> RoundRobin<K, M> {
    pub(super) fn new() -> Self {
        Self { members: HashMap::new(), places: BTreeMap::new(), held: 0, waiting: 0 }
    }

    /// Returns the number of permits that all members hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of waiters of all members.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn get(&self, name: &K) -> Option<&M> {
        self.members.get(name)
    }

    /// Changes a member, creating it if it does not exist.
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

    /// Returns the fewest permits that count against any waiting member.
    pub(super) fn least(&self) -> usize {
        self.places.first_key_value().map_or(0, |(place, _)| place.least)
    }

    /// Returns the member whose turn it is, among the members that wait and may take a permit. A member that `may`
    /// allows would also be allowed if it held fewer permits. Of the members with equal `held` and `least`, only the
    /// first is checked, so the number of checks depends only on the number of permits.
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

    /// Returns the number of remembered members.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns all members in no particular order.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &M> {
        self.members.values()
    }
}
