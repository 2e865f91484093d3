//! Kubernetes events: what a person sees at the end of `kubectl describe`.
//!
//! Events must never slow down the work that they report. So [`EventRecorder::record`] only puts them into a
//! queue, and a task of its own sends them, a few at a time.
//!
//! * **Coalescing.** Events of one object with the same reason and type are one *line*. While the line
//!   waits to be sent, the last note wins and the count grows. Later, an event with the same note within
//!   10 minutes raises the count of the one that was written. With another note it becomes a new event,
//!   because the API server does not let a note change.
//! * **Rate.** Each object has a burst of 25 events and one more every 5 minutes, as in client-go.
//!   Beyond that its lines wait, and coalesce.
//! * **Bounds.** A full queue drops new events and counts them. A busy server gets no requests for as long as
//!   it asks. Notes are cut at 1024 bytes.
//!
//! The account needs the verbs `create` and `patch` on `events` of the group that [`EventApi`] names.

mod send;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::environment::Environment;
use crate::explain::shortened;
use state::State;

/// Something that users should know about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub object: ObjectRef,
    /// Normal or a warning.
    pub kind: EventKind,
    /// Why, as one word in CamelCase, at most 128 bytes.
    pub reason: &'static str,
    /// What was being done, as one word in CamelCase, at most 128 bytes and not empty.
    pub action: &'static str,
    /// What happened, for a person; cut at 1024 bytes.
    pub note: String,
    /// All replicas report the same: the first one writes the event, the others find it.
    pub same_from_all: bool,
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// Group and version, as in `v1` or `apps/v1`.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The namespace; `None` for cluster-scoped objects, whose events go to the namespace `default`.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The uid; events are shown only with objects that have this uid.
    pub uid: Arc<str>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// All is as it should be.
    Normal,
    /// Somebody should look at it.
    Warning,
}

impl EventKind {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// The API to which events are written. The API server shows them in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventApi {
    /// `events.k8s.io/v1`.
    #[default]
    Events,
    /// `v1`, for an account without rights to the other: those of the CSI sidecars are such.
    Core,
}

/// How events are sent.
#[derive(Clone, Debug)]
pub struct EventOptions {
    /// The API; the default is `events.k8s.io/v1`.
    pub api: EventApi,
    /// The reporting controller: a qualified name such as `example.com/controller`.
    pub component: String,
    /// The reporting replica; cut at 128 bytes.
    pub instance: String,
    /// How many lines may wait to be sent; the default is 4096.
    pub capacity: usize,
    /// How many requests may be under way at once; the default is 4.
    pub concurrency: usize,
    /// How many events each object may have at once; the default is 25.
    pub burst: u32,
    /// The time after which each object may have one more; the default is 5 minutes.
    pub refill: Duration,
    /// Where events get their times from.
    pub environment: Environment,
}

impl EventOptions {
    /// The defaults for this reporter.
    pub fn new(component: impl Into<String>, instance: impl Into<String>) -> Self {
        Self {
            api: EventApi::default(),
            component: component.into(),
            instance: instance.into(),
            capacity: 4096,
            concurrency: 4,
            burst: 25,
            refill: Duration::from_secs(300),
            environment: Environment::default(),
        }
    }
}

/// What became of the events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Lines that wait to be sent or are being sent.
    pub queued: usize,
    /// Requests that succeeded: events written, and counts raised.
    pub sent: u64,
    /// Events that became part of a line that was waiting.
    pub coalesced: u64,
    /// Events that were dropped: the queue was full, the namespace is being deleted, or the account may
    /// not write events.
    pub dropped: u64,
    /// Lines that the server rejected or failed to write again and again.
    pub failed: u64,
}

/// Sends events in the background, until the last clone is dropped; clones are the same recorder.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
    stopped: CancellationToken,
    _stop: Arc<DropGuard>,
}

impl EventRecorder {
    /// Starts the sending; must be called inside a tokio runtime.
    pub fn new(client: Client, options: EventOptions) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            client,
            state: Mutex::new(State::new(&options)),
            concurrency: AtomicUsize::new(options.concurrency),
            environment: options.environment,
            api: options.api,
            component: options.component,
            instance: shortened(options.instance, LONGEST_INSTANCE),
            changed: Notify::new(),
            moved: Notify::new(),
            idle: Notify::new(),
        });
        let stopped = CancellationToken::new();
        let (task, ended) = (send::run(Arc::clone(&shared)), stopped.clone().drop_guard());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let _ended = ended;
            task.await;
        }));
        Self { shared, stopped, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Returns when nothing is sent any more: the last clone was dropped, or the task has panicked.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stopped.clone().cancelled_owned()
    }

    /// Takes an event, to be sent later. Never waits.
    pub fn record(&self, event: Event) {
        let mut note = shortened(event.note, LONGEST_NOTE);
        // It may wait long, and others with it.
        note.shrink_to_fit();
        let event = Event { note, ..event };
        crate::sync::lock(&self.shared.state).record(event, Instant::now(), self.shared.environment.now());
        self.shared.changed.notify_one();
        self.shared.moved.notify_waiters();
    }

    /// Whether a line may be sent now, but for the bound that [`EventRecorder::pace`] sets.
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        crate::sync::lock(&self.shared.state).next_due(now).is_some_and(|due| due <= now)
    }

    /// Returns when [`EventRecorder::is_due`].
    pub async fn wait_due(&self) {
        loop {
            let moved = self.shared.moved.notified();
            let now = Instant::now();
            let due = crate::sync::lock(&self.shared.state).next_due(now);
            match due {
                Some(due) if due <= now => return,
                // Whatever ends first: the due time is read again.
                Some(due) => drop(timeout_at(due, moved).await),
                None => moved.await,
            }
        }
    }

    /// Sets how many requests may be under way at once: fewer leave more of the server to other work, 0 leaves all of it.
    pub fn pace(&self, concurrency: usize) {
        if self.shared.concurrency.swap(concurrency, Ordering::Relaxed) < concurrency {
            self.shared.changed.notify_one();
        }
    }

    /// Sends all lines that wait, whatever the objects' rates, for at most `limit`; returns how many are left.
    pub async fn flush(&self, limit: Duration) -> usize {
        let idle = async {
            loop {
                let idle = self.shared.idle.notified();
                if crate::sync::lock(&self.shared.state).flush() == 0 {
                    return;
                }
                self.shared.changed.notify_one();
                self.shared.moved.notify_waiters();
                idle.await;
            }
        };
        // The statistics show whether all was sent.
        let _ = timeout(limit, idle).await;
        self.stats().queued
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.stats().dropped
    }

    /// What became of the events so far.
    pub fn stats(&self) -> EventStats {
        crate::sync::lock(&self.shared.state).stats()
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

struct Shared {
    client: Client,
    api: EventApi,
    state: Mutex<State>,
    concurrency: AtomicUsize,
    component: String,
    instance: String,
    environment: Environment,
    /// There may be something to send.
    changed: Notify,
    /// Something may be due earlier than it was.
    moved: Notify,
    /// Something was sent.
    idle: Notify,
}

/// The API server takes no longer note.
const LONGEST_NOTE: usize = 1024;

/// The API server takes no longer name of a reporting instance.
const LONGEST_INSTANCE: usize = 128;
