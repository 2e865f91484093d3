//! The state of all keys in a queue, and every transition of a key. Uses no clock and no tasks.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::ready::{Ready, Slot};
use super::{Next, Priority, QueueOptions, QueueStats};
use crate::backoff::{Backoff, Random};
use crate::limiter::{Flow, Shares};

/// The longest pause of a waiting key, because the condition that it waits for may be met at any time.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Consecutive [`Next::Again`] results before the key is treated as failing.
const MANY_REPEATS: u32 = 3;

/// The keys that are ready, waiting or running. A settled key has no entry.
pub(super) struct State<K> {
    entries: HashMap<K, Entry>,
    ready: Ready<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    permits: Shares<K>,
    /// The start of each unfinished run.
    running: BTreeMap<u64, Instant>,
    awaiting_change: usize,
    next_id: u64,
    backoff: Backoff,
    random: Random,
    adds: u64,
    retries: u64,
    pub(super) shut_down: bool,
}

/// One key given to a worker.
pub(super) struct AssignedKey<K> {
    pub(super) key: K,
    pub(super) run: u64,
    pub(super) attempt: u32,
    pub(super) repeats: u32,
    pub(super) waits: u32,
}

impl<K: Clone + Eq + Hash> State<K> {
    pub(super) fn new(options: &QueueOptions) -> Self {
        Self {
            entries: HashMap::new(),
            ready: Ready::new(),
            delayed: BTreeMap::new(),
            permits: Shares::new(options.limits),
            running: BTreeMap::new(),
            awaiting_change: 0,
            next_id: 0,
            backoff: options.backoff,
            random: options.environment.random("queue"),
            adds: 0,
            retries: 0,
            shut_down: false,
        }
    }

    pub(super) fn wake(&mut self, key: K, inputs: u64, priority: Priority, now: Instant) {
        if self.shut_down {
            return;
        }
        let entry = match self.entries.entry(key.clone()) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => {
                vacant.insert(Entry::new(inputs));
                return self.make_ready(&key, priority, now);
            }
        };
        let changed = entry.inputs != inputs;
        match &mut entry.phase {
            Phase::Running { woken, .. } => {
                let before = woken.take();
                *woken = Some(Wake {
                    inputs,
                    changed: changed || before.as_ref().is_some_and(|wake| wake.changed),
                    priority: before.map_or(priority, |wake| wake.priority.min(priority)),
                });
            }
            Phase::Ready { slot, .. } => {
                *slot = self.ready.raise(*slot, priority);
                if changed {
                    entry.renew(inputs);
                }
            }
            _ if changed => {
                entry.renew(inputs);
                self.leave_wait(&key);
                self.make_ready(&key, priority, now);
            }
            _ => {}
        }
    }

    pub(super) fn requeue(&mut self, key: &K, now: Instant) {
        let waits = |entry: &Entry| matches!(entry.phase, Phase::AwaitingChange);
        if !self.shut_down && self.entries.get(key).is_some_and(waits) {
            self.leave_wait(key);
            self.make_ready(key, Priority::Resync, now);
        }
    }

    pub(super) fn forget(&mut self, key: &K, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        match &mut entry.phase {
            Phase::Running { woken, forgotten, .. } => {
                *woken = None;
                *forgotten = true;
            }
            Phase::Ready { slot, .. } => {
                self.ready.remove(*slot);
                self.remove(key, now);
            }
            _ => {
                self.leave_wait(key);
                self.remove(key, now);
            }
        }
    }

    pub(super) fn keys(&self) -> Vec<K> {
        self.entries.keys().cloned().collect()
    }

    /// Hands out the next key.
    pub(super) fn take(&mut self, now: Instant) -> Option<AssignedKey<K>> {
        self.move_due(now);
        let key = self.ready.pop()?;
        let run = self.id();
        let entry = self.entries.get_mut(&key)?;
        let priority = match &entry.phase {
            Phase::Ready { slot, .. } => slot.priority,
            _ => Priority::Change,
        };
        entry.phase = Phase::Running { priority, woken: None, forgotten: false };
        self.running.insert(run, now);
        Some(AssignedKey { run, attempt: entry.attempt, repeats: entry.repeats, waits: entry.waits, key })
    }

    pub(super) fn begin(&mut self, key: &K, inputs: u64) {
        if let Some(entry) = self.entries.get_mut(key)
            && matches!(entry.phase, Phase::Running { .. })
        {
            entry.inputs = inputs;
        }
    }

    pub(super) fn finish(&mut self, key: &K, run: u64, next: Next, now: Instant) {
        self.running.remove(&run);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::Running { priority, woken, forgotten } = &mut entry.phase else { return };
        let (priority, woken, forgotten) = (*priority, woken.take(), *forgotten);
        if let Some(flow) = entry.reserved.take() {
            // The permit was not used. Keys that wait for it come first.
            self.leave(&flow, now);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        match (entry.count(next), woken) {
            (_, None) if forgotten => self.remove(key, now),
            (Next::Done, None) => self.remove(key, now),
            (next, Some(wake)) if forgotten || wake.changed || matches!(next, Next::Done) => {
                entry.renew(wake.inputs);
                self.make_ready(key, wake.priority, now);
            }
            (Next::Again, woken) => {
                let priority = woken.map_or(priority, |wake| wake.priority.min(priority));
                self.make_ready(key, priority, now);
            }
            (Next::Retry, _) => {
                let delay = self.backoff.delay(entry.attempt, self.random.next());
                self.retry(key, delay, now);
            }
            (Next::RetryWithin(most), _) => {
                let delay = self.backoff.with_max(most).delay(entry.attempt, self.random.next());
                self.retry(key, delay, now);
            }
            (Next::RetryAfter(delay), _) => self.retry(key, delay, now),
            (Next::Wait(pause), _) => {
                let rule = self.backoff.with_max(MAX_WAIT);
                let pause = pause.unwrap_or_else(|| rule.delay(entry.waits, self.random.next()));
                self.delay(key, pause, now);
            }
            (Next::AwaitChange, _) => {
                entry.attempt = entry.attempt.saturating_add(1);
                entry.phase = Phase::AwaitingChange;
                self.awaiting_change += 1;
            }
            (Next::AwaitPermit(flow), _) => {
                let ticket = self.permits.wait(&flow, key.clone());
                entry.phase = Phase::Parked { flow, ticket };
                // A permit may have been returned since this key found none.
                self.admit(now);
            }
            // An earlier arm handles `Done` with a wake.
            (Next::Done, Some(_)) => {}
        }
    }

    /// Takes a permit for a running key, if there is one.
    pub(super) fn enter(&mut self, key: &K, flow: &Flow) -> bool {
        let reserved = self.entries.get_mut(key).map(|entry| &mut entry.reserved);
        let taken = reserved.and_then(|reserved| reserved.take_if(|reserved| reserved == flow));
        taken.is_some() || self.permits.try_acquire(flow)
    }

    /// Returns a permit.
    pub(super) fn leave(&mut self, flow: &Flow, now: Instant) {
        self.permits.release(flow);
        self.admit(now);
    }

    /// Returns when the next delayed key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn stats(&mut self, now: Instant) -> QueueStats {
        // A key that is due counts as ready even if no worker asks for it.
        self.move_due(now);
        let since = |key| match self.entries.get(key).map(|entry| &entry.phase) {
            Some(Phase::Ready { since, .. }) => Some(*since),
            _ => None,
        };
        let age = |since: Instant| now.saturating_duration_since(since);
        QueueStats {
            ready: self.ready.len(),
            delayed: self.delayed.len(),
            awaiting_change: self.awaiting_change,
            awaiting_permit: self.permits.waiting(),
            running: self.running.len(),
            oldest_ready: self.ready.oldest_candidates().filter_map(since).min().map(age),
            longest_running: self.running.values().next().copied().map(age),
            adds: self.adds,
            retries: self.retries,
        }
    }

    /// Returns the numbers of keys, groups and tenants that are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize, usize) {
        let (groups, tenants) = self.permits.remembered();
        (self.entries.len(), groups, tenants)
    }

    /// Returns the number of keys that fit without allocating memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.entries.capacity()
    }

    fn make_ready(&mut self, key: &K, priority: Priority, since: Instant) {
        let slot = self.ready.push(key.clone(), priority);
        self.set_ready(key, slot, since);
    }

    fn set_ready(&mut self, key: &K, slot: Slot, since: Instant) {
        self.adds += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.phase = Phase::Ready { slot, since };
        }
    }

    fn retry(&mut self, key: &K, delay: Duration, now: Instant) {
        self.retries += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.attempt = entry.attempt.saturating_add(1);
        }
        self.delay(key, delay, now);
    }

    fn delay(&mut self, key: &K, delay: Duration, now: Instant) {
        // Adding a longer duration to an instant may overflow.
        const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);
        let due = now + delay.min(FOR_EVER);
        let sequence = self.id();
        self.delayed.insert((due, sequence), key.clone());
        if let Some(entry) = self.entries.get_mut(key) {
            entry.phase = Phase::Delayed { due, sequence };
        }
    }

    fn move_due(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry() {
            let (due, _) = *first.key();
            if due > now {
                return;
            }
            let key = first.remove();
            self.make_ready(&key, Priority::Retry, due);
        }
    }

    /// Gives free permits to parked keys, which become ready.
    fn admit(&mut self, now: Instant) {
        while let Some((flow, key)) = self.permits.admit() {
            let slot = self.ready.push_front(key.clone());
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.reserved = Some(flow);
            }
            self.set_ready(&key, slot, now);
        }
    }

    /// Removes a key from the structure it waits in; the caller assigns a new phase.
    fn leave_wait(&mut self, key: &K) {
        match self.entries.get(key).map(|entry| &entry.phase) {
            Some(Phase::Delayed { due, sequence }) => {
                self.delayed.remove(&(*due, *sequence));
            }
            Some(Phase::AwaitingChange) => self.awaiting_change -= 1,
            Some(Phase::Parked { flow, ticket }) => drop(self.permits.cancel(flow, *ticket)),
            Some(Phase::Ready { .. } | Phase::Running { .. }) | None => {}
        }
    }

    fn remove(&mut self, key: &K, now: Instant) {
        let reserved = self.entries.remove(key).and_then(|entry| entry.reserved);
        // After a burst, shrink the map as well, always by a factor of at least four, so the cost per key is constant.
        if self.entries.capacity() > 1024 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        if let Some(flow) = reserved {
            self.leave(&flow, now);
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

struct Entry {
    inputs: u64,
    /// The number of the current or next attempt.
    attempt: u32,
    /// The number of consecutive waits.
    waits: u32,
    /// The number of consecutive immediate repeats.
    repeats: u32,
    phase: Phase,
    /// The flow whose permit is reserved for this key.
    reserved: Option<Flow>,
}

impl Entry {
    fn new(inputs: u64) -> Self {
        Self { inputs, attempt: 1, waits: 0, repeats: 0, phase: Phase::AwaitingChange, reserved: None }
    }

    /// Sets new inputs, and resets the counts, because earlier attempts had other inputs.
    fn renew(&mut self, inputs: u64) {
        self.inputs = inputs;
        (self.attempt, self.waits, self.repeats) = (1, 0, 0);
    }

    /// Counts consecutive results; returns the action to take.
    fn count(&mut self, next: Next) -> Next {
        match next {
            Next::AwaitPermit(_) => return next,
            Next::Again => (self.waits, self.repeats) = (0, self.repeats.saturating_add(1)),
            Next::Wait(_) => (self.waits, self.repeats) = (self.waits.saturating_add(1), 0),
            _ => (self.waits, self.repeats) = (0, 0),
        }
        if self.repeats >= MANY_REPEATS { Next::Retry } else { next }
    }
}

enum Phase {
    Ready { slot: Slot, since: Instant },
    Delayed { due: Instant, sequence: u64 },
    AwaitingChange,
    Parked { flow: Flow, ticket: u64 },
    Running { priority: Priority, woken: Option<Wake>, forgotten: bool },
}

/// The wakes that a key received while it was running.
struct Wake {
    inputs: u64,
    /// True if at least one wake had other inputs than the run.
    changed: bool,
    priority: Priority,
}
