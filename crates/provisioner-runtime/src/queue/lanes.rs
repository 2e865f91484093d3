//! Lanes: bounded concurrency for a part of the keys, and who waits for a place in which.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Lane;

/// All lanes with a place taken, promised or waited for; others are not remembered.
///
/// What holds after every method that gives a place back and the calls of [`Lanes::resume`] that follow
/// it: while a key is parked, all places of its lane are taken or promised, so somebody will free one.
#[derive(Debug)]
pub(super) struct Lanes<K> {
    lanes: HashMap<Arc<str>, LaneState<K>>,
    parked: usize,
    next_turn: u64,
}

impl<K> Lanes<K> {
    pub(super) fn new() -> Self {
        Self { lanes: HashMap::new(), parked: 0, next_turn: 0 }
    }

    /// Takes a place; `promised` says that the caller was woken for one. False when the lane is full.
    pub(super) fn enter(&mut self, lane: &Lane, promised: bool) -> bool {
        let state = self.state(lane);
        if promised {
            state.promised = state.promised.saturating_sub(1);
        } else if !state.has_room() {
            return false;
        }
        state.held += 1;
        true
    }

    /// Gives a taken place back.
    pub(super) fn leave(&mut self, name: &str) {
        if let Some(state) = self.lanes.get_mut(name) {
            state.held = state.held.saturating_sub(1);
        }
        self.tidy(name);
    }

    /// Gives back a place that was promised and not taken.
    pub(super) fn decline(&mut self, name: &str) {
        if let Some(state) = self.lanes.get_mut(name) {
            state.promised = state.promised.saturating_sub(1);
        }
        self.tidy(name);
    }

    /// Lets `key` wait for a place; returns its turn.
    pub(super) fn park(&mut self, lane: &Lane, key: K) -> u64 {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.parked += 1;
        self.state(lane).parked.insert(turn, key);
        turn
    }

    /// Takes a key out of the wait.
    pub(super) fn unpark(&mut self, name: &str, turn: u64) {
        if let Some(state) = self.lanes.get_mut(name)
            && state.parked.remove(&turn).is_some()
        {
            self.parked -= 1;
        }
        self.tidy(name);
    }

    /// If the lane has room, promises a place to the key that waits longest and returns it.
    pub(super) fn resume(&mut self, name: &str) -> Option<K> {
        let state = self.lanes.get_mut(name)?;
        if !state.has_room() {
            return None;
        }
        let (_, key) = state.parked.pop_first()?;
        state.promised += 1;
        self.parked -= 1;
        Some(key)
    }

    /// How many keys are parked.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// How many lanes are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// The lane's state; its limit is always the one named last.
    fn state(&mut self, lane: &Lane) -> &mut LaneState<K> {
        let state = self.lanes.entry(Arc::clone(&lane.name)).or_default();
        state.limit = lane.limit;
        state
    }

    fn tidy(&mut self, name: &str) {
        if self.lanes.get(name).is_some_and(LaneState::is_idle) {
            self.lanes.remove(name);
        }
    }
}

#[derive(Debug)]
struct LaneState<K> {
    limit: usize,
    /// Places taken.
    held: usize,
    /// Places kept for keys that were woken and have not come yet.
    promised: usize,
    parked: BTreeMap<u64, K>,
}

impl<K> LaneState<K> {
    fn has_room(&self) -> bool {
        self.limit == 0 || self.held + self.promised < self.limit
    }

    fn is_idle(&self) -> bool {
        self.held == 0 && self.promised == 0 && self.parked.is_empty()
    }
}

impl<K> Default for LaneState<K> {
    fn default() -> Self {
        Self { limit: 0, held: 0, promised: 0, parked: BTreeMap::new() }
    }
}
