//! A queue of keys that need work.
//!
//! A key is only a name. What to do about it is found out when a worker gets it, so a key that is woken
//! several times meanwhile is worked on once. The queue decides *when*:
//!
//! * **Order.** First in, first out within a [`Priority`]; a more urgent one first, but at most 8 keys in
//!   a row while a less urgent one waits. A key is never handed out twice at the same time.
//! * **Back-off.** A failed attempt is repeated after the delay of [`QueueOptions::backoff`] for its number; see
//!   [`backoff`](crate::backoff). The default is 1 s × 2^(n − 1), at most 300 s, less up to 10 % at random. The
//!   delay belongs to the *inputs*, a fingerprint of what the work depends on: a wake with the same inputs never
//!   cuts it short, a wake with other inputs always does and counts attempts from 1 again.
//! * **Waiting is not failing.** A key that [waits](Next::Wait) for somebody else keeps its attempt number. Without a
//!   pause of its own it waits by the same formula with a maximum of 30 s, and *n* counts its waits in a row.
//! * **Permits.** Groups of keys, and the tenants in them, share the permits of [`QueueOptions::limits`] as in
//!   [`limiter`](crate::limiter).
//!   A key that gets none is parked and holds no worker. When a permit is free, it is reserved for the key, and
//!   the key moves to the front.
//! * **Memory.** A key that is done is not remembered.
//!
//! Every operation is O(log n) under one lock; no task and no timer runs beside the callers of
//! [`Queue::next`].
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

/// A queue of keys; clones are the same queue.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

impl<K: Clone + Eq + Hash + Debug + Send + Sync + 'static> Queue<K> {
    /// An empty queue.
    pub fn new(options: QueueOptions) -> Self {
        let state = Mutex::new(State::new(&options));
        Self { shared: Arc::new(Shared { state, changed: Notify::new() }) }
    }

    /// Something about `key` changed. `inputs` is a fingerprint of what the work depends on.
    ///
    /// | the key | what happens |
    /// |---|---|
    /// | is not known | ready |
    /// | is ready | one run for both; the more urgent priority and the newer inputs count |
    /// | waits for anything | other inputs: ready at once, attempts restart at 1; the same inputs: nothing |
    /// | runs | after `Done` ready again; after a failure at once only with other inputs |
    pub fn wake(&self, key: K, inputs: u64, priority: Priority) {
        self.shared.update(|state, now| state.wake(key, inputs, priority, now));
    }

    /// Runs a key that awaits a change once more, whatever its inputs. Other keys are left alone.
    ///
    /// For a periodic resync as the Go library does it. The attempt number continues.
    pub fn requeue(&self, key: &K) {
        self.shared.update(|state, now| state.requeue(key, now));
    }

    /// Drops what is remembered of a key: its attempts and its wait. One that runs is finished first,
    /// and then dropped whatever its result, unless it was woken in between.
    pub fn forget(&self, key: &K) {
        self.shared.update(|state, now| state.forget(key, now));
    }

    /// Waits for the next key. `None` after [`Queue::shut_down`].
    ///
    /// May be called from many tasks, and dropped at any time without losing a key.
    pub async fn next(&self) -> Option<Work<K>> {
        loop {
            // A caller that is dropped while it waits passes on its notification and the timer that it kept.
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

    /// Hands out nothing more; what runs may finish. Later wakes are ignored.
    pub fn shut_down(&self) {
        self.shared.update(|state, _| state.shut_down = true);
    }

    /// What is in the queue at this moment.
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

/// How urgent a key is. The order of the variants is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Somebody changed something and waits for the result.
    Change,
    /// A delay is over.
    Retry,
    /// Only a periodic look, or the first look after a start.
    Resync,
}

/// How a queue behaves.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// The delay after each failed attempt of a key.
    pub backoff: Backoff,
    /// What the jitter of the delays is drawn from.
    pub environment: Environment,
    /// How many permits there are; see [`Work::enter`].
    pub limits: Limits,
}

impl Default for QueueOptions {
    /// From 1 second to 5 minutes, doubling; without limits.
    fn default() -> Self {
        let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(300));
        Self { backoff, environment: Environment::default(), limits: Limits::default() }
    }
}

/// What is in a queue, and what went through it.
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
    /// Keys that are worked on.
    pub running: usize,
    /// How long the oldest ready key has been ready.
    pub oldest_ready: Option<Duration>,
    /// How often a key became ready, since the start.
    pub adds: u64,
    /// How often a failed attempt ended with a delay before the next, since the start.
    pub retries: u64,
    /// How long the longest run has been running.
    pub longest_running: Option<Duration>,
}

/// One key to work on. Dropping it, as a panic does, counts as [`Next::Retry`].
#[must_use = "a dropped work item counts as a failed attempt"]
pub struct Work<K: Clone + Eq + Hash> {
    shared: Arc<Shared<K>>,
    handout: state::Handout<K>,
    finished: bool,
}

impl<K: Clone + Eq + Hash> Work<K> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.handout.key
    }

    /// The number of this attempt with these inputs; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.handout.attempt
    }

    /// Says with which inputs this run begins, by which later wakes are judged. They are not those of the last wake where the worker
    /// itself has read a change before the watch has shown it.
    pub fn begin(&self, inputs: u64) {
        self.shared.update(|state, _| state.begin(&self.handout.key, inputs));
    }

    /// The fingerprint given when the key was woken.
    pub fn inputs(&self) -> u64 {
        self.handout.inputs
    }

    /// How long the key was ready before it was handed out.
    pub fn waited(&self) -> Duration {
        self.handout.waited
    }

    /// How many [`Next::Again`]s came right before this run.
    pub fn repeats(&self) -> u32 {
        self.handout.repeats
    }

    /// How many [`Next::Wait`]s came right before this run.
    pub fn waits(&self) -> u32 {
        self.handout.waits
    }

    /// A permit of this flow, or `None` when there is none: then finish with [`Next::AwaitPermit`].
    ///
    /// It is given back when it is dropped, before or after [`Work::finish`].
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
        let state::Handout { key, run, .. } = &self.handout;
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

/// The right to work on a key of one flow, given back on drop.
#[must_use = "the permit is given back when it is dropped"]
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

/// What happens to a key after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Settled: the key is forgotten.
    Done,
    /// Failed: again after the queue's back-off.
    Retry,
    /// Again after this delay; it counts as a failed attempt.
    RetryAfter(Duration),
    /// These inputs can only fail: again when they change, or on [`Queue::requeue`].
    AwaitChange,
    /// Not failed, only too early: again after this pause. Attempts stay as they are.
    ///
    /// Without a pause it follows the back-off rule, up to 30 seconds, by how often the key has waited in a row.
    Wait(Option<Duration>),
    /// There was no permit of this flow: again when there is one. All counts stay as they are.
    AwaitPermit(Flow),
    /// Again at once. Attempts stay as they are. The third in a row and all after it count as [`Next::Retry`],
    /// so that no key loops without a delay.
    Again,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Notified once for each change that a caller of `next` has to look at.
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
    /// Nothing has to be passed on.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
