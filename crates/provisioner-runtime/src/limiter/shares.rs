//! Who holds permits, who waits for one, and whose turn it is. No clock, no tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Limits, fair_share};

/// Permits that groups share. Groups that neither hold nor wait for one are not remembered.
///
/// After [`release`](Self::release) and [`wait`](Self::wait) the caller calls [`admit`](Self::admit) until
/// nobody is admitted any more. What holds then: no waiter may have a permit, so nobody who comes later
/// overtakes one.
#[derive(Debug)]
pub(crate) struct Shares<W> {
    limits: Limits,
    held: usize,
    groups: HashMap<Arc<str>, Group<W>>,
    /// The groups with waiters, by how many permits they hold and by their turn.
    turns: BTreeMap<(usize, u64), Arc<str>>,
    waiting: usize,
    next_turn: u64,
}

#[derive(Debug)]
struct Group<W> {
    held: usize,
    /// Of the groups with waiters the lowest comes first.
    turn: u64,
    waiters: BTreeMap<u64, W>,
}

impl<W> Shares<W> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, held: 0, groups: HashMap::new(), turns: BTreeMap::new(), waiting: 0, next_turn: 0 }
    }

    /// Takes a permit if the group may have one. Returns the group's name, to release it.
    pub(crate) fn try_acquire(&mut self, group: &str) -> Option<Arc<str>> {
        let held = self.groups.get(group).map_or(0, |group| group.held);
        if !self.allows(held) {
            return None;
        }
        let name = self.remember(group);
        self.set_held(&name, held + 1);
        Some(name)
    }

    /// Gives a permit back.
    pub(crate) fn release(&mut self, group: &str) {
        if let Some(held) = self.groups.get(group).map(|group| group.held) {
            self.set_held(group, held.saturating_sub(1));
            self.tidy(group);
        }
    }

    /// Lets `waiter` wait for a permit of the group; the ticket is for [`cancel`](Self::cancel).
    pub(crate) fn wait(&mut self, group: &str, waiter: W) -> u64 {
        let (name, ticket) = (self.remember(group), self.turn());
        if let Some(group) = self.groups.get_mut(&name) {
            if group.waiters.is_empty() {
                group.turn = ticket;
                self.turns.insert((group.held, ticket), name);
            }
            group.waiters.insert(ticket, waiter);
            self.waiting += 1;
        }
        ticket
    }

    /// Takes somebody out of the wait; `None` when he has been admitted.
    pub(crate) fn cancel(&mut self, name: &str, ticket: u64) -> Option<W> {
        let group = self.groups.get_mut(name)?;
        let waiter = group.waiters.remove(&ticket)?;
        self.waiting -= 1;
        if group.waiters.is_empty() {
            self.turns.remove(&(group.held, group.turn));
        }
        self.tidy(name);
        Some(waiter)
    }

    /// Gives a permit to the waiter whose turn it is, if anybody may have one.
    pub(crate) fn admit(&mut self) -> Option<(Arc<str>, W)> {
        let (name, turn) = (self.next()?, self.turn());
        let group = self.groups.get_mut(&name)?;
        self.turns.remove(&(group.held, group.turn));
        let (_, waiter) = group.waiters.pop_first()?;
        (group.held, group.turn) = (group.held + 1, turn);
        (self.held, self.waiting) = (self.held + 1, self.waiting - 1);
        if !group.waiters.is_empty() {
            self.turns.insert((group.held, turn), Arc::clone(&name));
        }
        Some((name, waiter))
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many groups are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Of the groups that may take a permit, the one whose turn comes first. Groups that hold the same
    /// number are alike, and n permits make at most √2n different numbers.
    fn next(&self) -> Option<Arc<str>> {
        let mut first: Option<(u64, &Arc<str>)> = None;
        let mut from = 0;
        while let Some((&(held, turn), group)) = self.turns.range((from, 0)..).next()
            && self.allows(held)
        {
            if first.is_none_or(|(earlier, _)| turn < earlier) {
                first = Some((turn, group));
            }
            from = held + 1;
        }
        first.map(|(_, group)| Arc::clone(group))
    }

    /// Whether a group that holds so many may take one more.
    fn allows(&self, held: usize) -> bool {
        let Limits { total, per_group, one_each } = self.limits;
        let share = total == 0 || fair_share(held, 1, total.saturating_sub(self.held));
        (per_group == 0 || held < per_group) && (share || one_each && held == 0)
    }

    fn set_held(&mut self, name: &str, held: usize) {
        let Some(group) = self.groups.get_mut(name) else { return };
        self.held = self.held - group.held + held;
        if let Some(name) = self.turns.remove(&(group.held, group.turn)) {
            self.turns.insert((held, group.turn), name);
        }
        group.held = held;
    }

    fn remember(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.groups.get_key_value(name) {
            return Arc::clone(name);
        }
        let name: Arc<str> = name.into();
        self.groups.insert(Arc::clone(&name), Group { held: 0, turn: 0, waiters: BTreeMap::new() });
        name
    }

    fn tidy(&mut self, name: &str) {
        if self.groups.get(name).is_some_and(|group| group.held == 0 && group.waiters.is_empty()) {
            self.groups.remove(name);
        }
    }

    fn turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}
