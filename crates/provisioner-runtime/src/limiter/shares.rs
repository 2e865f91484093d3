//! Who holds permits, who waits for one, and who is next. No clock, no tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Limits, fair_share};

/// Permits that groups share. Groups that neither hold nor wait for one are not remembered.
///
/// After [`release`](Self::release) and [`wait`](Self::wait) the caller calls [`admit`](Self::admit) until
/// it returns `None`. Then no waiter may have a permit, so nobody who comes later overtakes one.
#[derive(Debug)]
pub(crate) struct Shares<W> {
    limits: Limits,
    held: usize,
    groups: HashMap<Arc<str>, Group<W>>,
    /// The groups with waiters, by how many permits they hold and by their number.
    waiting_groups: BTreeMap<(usize, u64), Arc<str>>,
    waiting: usize,
    next_sequence: u64,
}

#[derive(Debug)]
struct Group<W> {
    held: usize,
    /// Among groups with waiters the lowest is next.
    sequence: u64,
    waiters: BTreeMap<u64, W>,
}

impl<W> Shares<W> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, held: 0, groups: HashMap::new(), waiting_groups: BTreeMap::new(), waiting: 0, next_sequence: 0 }
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
        let (name, ticket) = (self.remember(group), self.sequence());
        if let Some(group) = self.groups.get_mut(&name) {
            if group.waiters.is_empty() {
                group.sequence = ticket;
                self.waiting_groups.insert((group.held, ticket), name);
            }
            group.waiters.insert(ticket, waiter);
            self.waiting += 1;
        }
        ticket
    }

    /// Takes a waiter out of the wait; `None` when it has been admitted.
    pub(crate) fn cancel(&mut self, name: &str, ticket: u64) -> Option<W> {
        let group = self.groups.get_mut(name)?;
        let waiter = group.waiters.remove(&ticket)?;
        self.waiting -= 1;
        if group.waiters.is_empty() {
            self.waiting_groups.remove(&(group.held, group.sequence));
        }
        self.tidy(name);
        Some(waiter)
    }

    /// Gives a permit to the next waiter, if any waiter may have one.
    pub(crate) fn admit(&mut self) -> Option<(Arc<str>, W)> {
        let (name, sequence) = (self.next()?, self.sequence());
        let group = self.groups.get_mut(&name)?;
        self.waiting_groups.remove(&(group.held, group.sequence));
        let (_, waiter) = group.waiters.pop_first()?;
        (group.held, group.sequence) = (group.held + 1, sequence);
        (self.held, self.waiting) = (self.held + 1, self.waiting - 1);
        if !group.waiters.is_empty() {
            self.waiting_groups.insert((group.held, sequence), Arc::clone(&name));
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

    /// Of the groups that may take a permit, the one with the lowest number. Only the first of those that hold equally
    /// many is looked at, and n permits make at most √2n such cases.
    fn next(&self) -> Option<Arc<str>> {
        let mut first: Option<(u64, &Arc<str>)> = None;
        let mut from = 0;
        while let Some((&(held, sequence), group)) = self.waiting_groups.range((from, 0)..).next()
            && self.allows(held)
        {
            if first.is_none_or(|(earlier, _)| sequence < earlier) {
                first = Some((sequence, group));
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
        if let Some(name) = self.waiting_groups.remove(&(group.held, group.sequence)) {
            self.waiting_groups.insert((held, group.sequence), name);
        }
        group.held = held;
    }

    fn remember(&mut self, name: &str) -> Arc<str> {
        if let Some((name, _)) = self.groups.get_key_value(name) {
            return Arc::clone(name);
        }
        let name: Arc<str> = name.into();
        self.groups.insert(Arc::clone(&name), Group { held: 0, sequence: 0, waiters: BTreeMap::new() });
        name
    }

    fn tidy(&mut self, name: &str) {
        if self.groups.get(name).is_some_and(|group| group.held == 0 && group.waiters.is_empty()) {
            self.groups.remove(name);
        }
    }

    fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }
}
