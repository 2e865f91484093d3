//! A queue of keys that need work.
//!
//! A key is only a name. The worker that receives it determines what to do, so a key that is woken several times in the
//! meantime is worked on once. The queue decides *when*:
//!
//! * **Order.** First in, first out within a [`Priority`]; more urgent keys first, but at most 8 in a row while a less
//!   urgent key waits. A key is never handed out twice at the same time.
//! * **Back-off.** A failed attempt is repeated after the delay of [`QueueOptions::backoff`] for its number; see
//!   [`backoff`](crate::backoff). The default is 1 s × 2^(n − 1), at most 300 s, less up to 10 % at random. The
//!   delay belongs to the *inputs*, a fingerprint of what the work depends on: a wake with the same inputs never
//!   cuts it short, a wake with other inputs always does and restarts the attempts at 1.
//! * **Waiting is not failing.** A key that [waits](Next::Wait) for another party keeps its attempt number. Without an
//!   explicit pause it waits by the same formula with a maximum of 30 s, where *n* is the number of its consecutive
//!   waits.
//! * **Permits.** Groups of keys, and the tenants in them, share the permits of [`QueueOptions::limits`] as in
//!   [`limiter`](crate::limiter). A key that gets no permit is parked and occupies no worker. When a permit is free, it
//!   is reserved for the key, and the key moves to the front.
//! * **Memory.** A key that is done is not remembered.
//!
//! Every operation is O(log n) under one lock. The queue has no task or timer of its own: the callers of
//! [`Queue::next`] drive it.
//!
//! ```
//! # use provisioner_runtime::{Next, Priority, Queue, QueueOptions};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let queue = Queue::new(QueueOptions::default());
//! queue.wake("alpha", 1, Priority::Change);
//!
//! let work = queue.next().await.expect("not shut down");
//! assert_eq!((*work.key(), work.attempt()), ("alpha", 1));
//! work.finish(Next::Done);
//! # }
//! ```

mod ready;
mod run;
mod state;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

pub use run::work;
use state::State;

use crate::backoff::Backoff;
use crate::environment::Environment;
use crate::limiter::{Flow, Limits};

/// A queue of keys; clones share the queue.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Queue<K> {
    /// Creates an empty queue.
    pub fn new(options: QueueOptions) -> Self {
        let state = Mutex::new(State::new(&options));
        Self { shared: Arc::new(Shared { state, changed: Notify::new() }) }
    }

    /// Wakes `key` after a change. `inputs` is a fingerprint of what the work depends on.
    ///
    /// | state of the key | effect |
    /// |---|---|
    /// | unknown | becomes ready |
    /// | ready | one run for both; the more urgent priority and the newer inputs apply |
    /// | waits for anything | other inputs: ready at once, attempts restart at 1; the same inputs: no effect |
    /// | runs | after `Done` ready again; after a failure ready at once only with other inputs |
    pub fn wake(&self, key: K, inputs: u64, priority: Priority) {
        self.shared.update(|state, now| state.wake(key, inputs, priority, now));
    }

    /// Runs a key that awaits a change once more, regardless of its inputs. Does not affect other keys.
    ///
    /// Use it for a periodic resync that also retries keys that await a change. The attempt number continues.
    pub fn requeue(&self, key: &K) {
        self.shared.update(|state, now| state.requeue(key, now));
    }

    /// Discards the attempts and the wait of a key. A running key is finished first, and then discarded whatever its
    /// result, unless it was woken in between.
    pub fn forget(&self, key: &K) {
        self.shared.update(|state, now| state.forget(key, now));
    }

    /// Returns the keys that are remembered, in no particular order.
    pub fn keys(&self) -> Vec<K> {
        crate::sync::lock(&self.shared.state).keys()
    }

    /// Waits for the next key. Returns `None` after [`Queue::shut_down`].
    ///
    /// May be called from many tasks, and dropped at any time without losing a key.
    pub async fn next(&self) -> Option<Work<K>> {
        loop {
            // A caller that is dropped while it waits passes on its notification and the timer that it was responsible
            // for.
            let pass_on = PassOn(&self.shared.changed);
            let changed = self.shared.changed.notified();
            let due = {
                let mut state = crate::sync::lock(&self.shared.state);
                if state.shut_down {
                    return None;
                }
                if let Some(handout) = state.take(Instant::now()) {
                    if !state.has_ready() && state.next_due().is_none() {
                        pass_on.keep();
                    }
                    return Some(Work { shared: Arc::clone(&self.shared), handout, finished: false });
                }
                state.next_due()
            };
            match due {
                None => changed.await,
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
            pass_on.keep();
        }
    }

    /// Stops handing out keys; running work may finish. Later wakes are ignored.
    pub fn shut_down(&self) {
        self.shared.update(|state, _| state.shut_down = true);
    }

    /// Returns the current state of the queue.
    pub fn stats(&self) -> QueueStats {
        crate::sync::lock(&self.shared.state).stats(Instant::now())
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K> Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

/// The urgency of a key. Variants are ordered by urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A user or another component changed something and waits for the result.
    Change,
    /// A delay is over.
    Retry,
    /// A periodic check, or the first check after a start.
    Resync,
}

/// Options of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// The delay after each failed attempt of a key.
    pub backoff: Backoff,
    /// The source of the jitter in the delays.
    pub environment: Environment,
    /// The number of permits; see [`Work::enter`].
    pub limits: Limits,
}

impl Default for QueueOptions {
    /// Delays from 1 second to 5 minutes, doubling; no limits on permits.
    fn default() -> Self {
        let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(300));
        Self { backoff, environment: Environment::default(), limits: Limits::default() }
    }
}

/// The contents of a queue, and counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Keys that wait for a worker.
    pub ready: usize,
    /// Keys that wait for a delay to end.
    pub delayed: usize,
    /// Keys that wait for other inputs.
    pub awaiting_change: usize,
    /// Keys that wait for a permit.
    pub awaiting_permit: usize,
    /// Keys that are being worked on.
    pub running: usize,
    /// Time since the oldest ready key became ready.
    pub oldest_ready: Option<Duration>,
    /// Number of times a key became ready, since the start.
    pub adds: u64,
    /// Number of times a failed attempt was followed by a delay, since the start.
    pub retries: u64,
    /// Duration of the longest current run.
    pub longest_running: Option<Duration>,
}

/// One key to work on. Dropping it, as a panic does, counts as [`Next::Retry`].
#[must_use = "a dropped work item counts as a failed attempt"]
pub struct Work<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
    handout: state::AssignedKey<K>,
    finished: bool,
}

impl<K: Clone + Eq + Hash> Work<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.handout.key
    }

    /// Returns the number of this attempt with these inputs; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.handout.attempt
    }

    /// Records the inputs this run observed; later wakes are compared against them. They differ from the inputs of the
    /// last wake if the worker itself read a change before the watch delivered it.
    pub fn begin(&self, inputs: u64) {
        self.shared.update(|state, _| state.begin(&self.handout.key, inputs));
    }

    /// Returns the number of consecutive [`Next::Again`]s right before this run.
    pub fn repeats(&self) -> u32 {
        self.handout.repeats
    }

    /// Returns the number of consecutive [`Next::Wait`]s right before this run.
    pub fn waits(&self) -> u32 {
        self.handout.waits
    }

    /// Returns a permit of this flow. If it returns `None`, finish with [`Next::AwaitPermit`].
    ///
    /// The permit is returned when it is dropped, before or after [`Work::finish`].
    pub fn enter(&self, flow: &Flow) -> Option<Permit<K>> {
        let entered = self.shared.update(|state, _| state.enter(&self.handout.key, flow));
        entered.then(|| Permit { shared: Arc::clone(&self.shared), flow: flow.clone() })
    }

    /// Ends the attempt with this result.
    pub fn finish(mut self, next: Next) {
        self.conclude(next);
    }

    fn conclude(&mut self, next: Next) {
        self.finished = true;
        let state::AssignedKey { key, run, .. } = &self.handout;
        self.shared.update(|state, now| state.finish(key, *run, next, now));
    }
}

impl<K: Clone + Eq + Hash> Drop for Work<K> {
    fn drop(&mut self) {
        if !self.finished {
            self.conclude(Next::Retry);
        }
    }
}

impl<K: Clone + Eq + Hash + Debug> Debug for Work<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("key", self.key()).field("attempt", &self.attempt()).finish_non_exhaustive()
    }
}

/// Permission to work on a key of one flow, returned on drop.
#[must_use = "the permit is returned when it is dropped"]
pub struct Permit<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
    flow: Flow,
}

impl<K: Clone + Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        self.shared.update(|state, now| state.leave(&self.flow, now));
    }
}

impl<K: Clone + Eq + Hash> Debug for Permit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("flow", &self.flow).finish_non_exhaustive()
    }
}

/// The result of an attempt, which determines when the key runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Settled: forget the key.
    Done,
    /// Failed: run again after the queue's back-off.
    Retry,
    /// Failed: run again after the queue's back-off, but at most this delay.
    RetryWithin(Duration),
    /// Run again after this delay, counted as a failed attempt.
    RetryAfter(Duration),
    /// These inputs can only fail: run again when they change, or on [`Queue::requeue`].
    AwaitChange,
    /// Too early, but not failed: run again after this pause. The attempt number stays the same.
    ///
    /// Without a pause, the delay follows the back-off rule for the number of consecutive waits, up to 30 seconds.
    Wait(Option<Duration>),
    /// No permit of this flow was available: run again when there is one. All counts stay the same.
    AwaitPermit(Flow),
    /// Run again at once. The attempt number stays the same. From the third in a row they count as [`Next::Retry`], so
    /// that no key loops without a delay.
    Again,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Notified once for each change that a caller of `next` has to handle.
    changed: Notify,
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn update<T>(&self, change: impl FnOnce(&mut State<K>, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = crate::sync::lock(&self.state);
        let due = state.next_due();
        let result = change(&mut state, now);
        let due_changed = state.has_ready() || state.next_due() != due || state.shut_down;
        drop(state);
        if due_changed {
            self.changed.notify_one();
        }
        result
    }
}

/// Wakes the next caller that waits in `next`, when dropped.
struct PassOn<'a>(&'a Notify);

impl PassOn<'_> {
    /// Cancels the notification, because there is nothing to pass on.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
