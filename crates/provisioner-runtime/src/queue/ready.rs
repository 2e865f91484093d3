//! The keys that are ready to be handed out, in order.

use std::collections::BTreeMap;

use super::Priority;

/// Number of keys from other priorities that may be handed out in a row while a key of this priority waits.
///
/// The queue promises eight. More urgent levels have lower limits, so that they keep the promise when a less urgent
/// level is overdue at the same time and is served first.
const MAX_PASSED_OVER: [u32; LEVELS] = [6, 7, 8];

const LEVELS: usize = 3;

/// The position of a key among the ready ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) priority: Priority,
    sequence: i64,
}

/// First in, first out within a priority; more urgent priorities first, but without starving the others.
#[derive(Debug)]
pub(super) struct Ready<K> {
    levels: [BTreeMap<i64, K>; LEVELS],
    /// Keys handed out from other levels since a key of this level was last handed out, while this level had one
    /// waiting.
    passed_over: [u32; LEVELS],
    next_back: i64,
    next_front: i64,
}

impl<K: Clone> Ready<K> {
    pub(super) fn new() -> Self {
        Self {
            levels: [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()],
            passed_over: [0; LEVELS],
            next_back: 0,
            // The front has its own numbers, all below zero: the first key put there stays the first.
            next_front: i64::MIN,
        }
    }

    /// Adds a key behind all others of this priority.
    pub(super) fn push(&mut self, key: K, priority: Priority) -> Slot {
        let sequence = self.next_back;
        self.next_back += 1;
        self.put(key, Slot { priority, sequence })
    }

    /// Adds a key before all others, except those that were put to the front earlier.
    pub(super) fn push_front(&mut self, key: K) -> Slot {
        let sequence = self.next_front;
        self.next_front += 1;
        self.put(key, Slot { priority: Priority::Change, sequence })
    }

    /// Moves a key to a more urgent priority, where it is placed by its age. Never moves a key to a less urgent one.
    pub(super) fn raise(&mut self, slot: Slot, priority: Priority) -> Slot {
        if priority >= slot.priority {
            return slot;
        }
        match self.remove(slot) {
            Some(key) => self.put(key, Slot { priority, ..slot }),
            None => slot,
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<K> {
        let level = slot.priority as usize;
        let key = self.levels[level].remove(&slot.sequence);
        if self.levels[level].is_empty() {
            self.passed_over[level] = 0;
        }
        key
    }

    /// Takes the next key.
    pub(super) fn pop(&mut self) -> Option<K> {
        let waiting = |level: &usize| !self.levels[*level].is_empty();
        let overdue = |level: &usize| self.passed_over[*level] >= MAX_PASSED_OVER[*level];
        let level = (0..LEVELS).rev().filter(waiting).find(overdue).or_else(|| (0..LEVELS).find(waiting))?;
        let (_, key) = self.levels[level].pop_first()?;
        for (other, count) in self.passed_over.iter_mut().enumerate() {
            *count = if other == level || self.levels[other].is_empty() { 0 } else { *count + 1 };
        }
        Some(key)
    }

    pub(super) fn len(&self) -> usize {
        self.levels.iter().map(BTreeMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.iter().all(BTreeMap::is_empty)
    }

    /// Returns a few keys, including the one that became ready first.
    pub(super) fn oldest_candidates(&self) -> impl Iterator<Item = &K> {
        // Within a level, a smaller number is older. The front is numbered separately.
        let front = self.levels.iter().filter_map(|level| level.first_key_value());
        let back = self.levels.iter().filter_map(|level| level.range(0..).next());
        front.chain(back).map(|(_, key)| key)
    }

    fn put(&mut self, key: K, slot: Slot) -> Slot {
        self.levels[slot.priority as usize].insert(slot.sequence, key);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use Priority::{Change, Resync, Retry};

    #[test]
    fn first_in_first_out_within_a_priority() {
        let mut ready = Ready::new();
        for key in [3, 1, 2] {
            ready.push(key, Retry);
        }
        assert_eq!(drain(&mut ready), [3, 1, 2]);
    }

    #[test]
    fn more_urgent_priorities_come_first() {
        let mut ready = Ready::new();
        ready.push("resync", Resync);
        ready.push("retry", Retry);
        ready.push("change", Change);
        assert_eq!(drain(&mut ready), ["change", "retry", "resync"]);
    }

    #[test]
    fn keys_pushed_to_the_front_come_first_in_push_order() {
        let mut ready = Ready::new();
        ready.push("change", Change);
        ready.push_front("first");
        ready.push_front("second");
        assert_eq!(drain(&mut ready), ["first", "second", "change"]);
    }

    #[test]
    fn a_raised_key_is_placed_by_its_age() {
        let mut ready = Ready::new();
        let old = ready.push("old", Resync);
        ready.push("young", Change);
        let slot = ready.raise(old, Change);
        assert_eq!(slot.priority, Change);
        assert_eq!(ready.raise(slot, Resync), slot);
        assert_eq!(drain(&mut ready), ["old", "young"]);
    }

    #[test]
    fn counts_passed_over_turns_only_while_a_key_waits() {
        let mut ready = Ready::new();
        for key in 0..100 {
            ready.push(key, Change);
        }
        for _ in 0..50 {
            ready.pop();
        }
        ready.push(1000, Resync);
        let position = drain(&mut ready).iter().position(|&key| key == 1000);
        assert_eq!(position, Some(8));
    }

    proptest! {
        /// At most eight keys of more urgent priorities are taken in a row before a waiting key.
        #[test]
        fn no_priority_starves(pushes in prop::collection::vec((0..3_usize, 0..4_usize), 1..400)) {
            let mut ready = Ready::new();
            let mut counts = [0_usize; LEVELS];
            let mut rows = [0; LEVELS];
            for (level, pops) in pushes {
                ready.push(level, [Change, Retry, Resync][level]);
                counts[level] += 1;
                for _ in 0..pops {
                    let Some(taken) = ready.pop() else { break };
                    counts[taken] -= 1;
                    for other in 0..LEVELS {
                        rows[other] = if taken < other && counts[other] > 0 { rows[other] + 1 } else { 0 };
                        prop_assert!(rows[other] <= 8);
                    }
                }
            }
        }
    }

    fn drain<K: Clone>(ready: &mut Ready<K>) -> Vec<K> {
        std::iter::from_fn(|| ready.pop()).collect()
    }
}
