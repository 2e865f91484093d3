//! Kubernetes events, as shown at the end of `kubectl describe`.
//!
//! Events must never slow down the work that they report, so [`EventRecorder::record`] only queues them. A separate
//! task sends them, a few at a time.
//!
//! * **Coalescing.** Events of one object with the same reason and type form one *line*. While the line waits to be
//!   sent, the last note wins and the count grows. After that, an event with the same note within 10 minutes raises the
//!   count of the written event. An event with another note becomes a new event, because the API server does not allow
//!   notes to change.
//! * **Rate.** Each object has a burst of 25 events and one more every 5 minutes, as in client-go.
//!   Further lines wait and are coalesced.
//! * **Bounds.** A full queue drops new events and counts them. A busy server receives no requests for as long as it
//!   asks. Notes are cut at 1024 bytes.
//!
//! The account needs the verbs `create` and `patch` on `events` in the group of the chosen [`EventApi`].

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
use crate::error_text::shortened;
use state::State;

/// A message to users about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub object: ObjectRef,
    /// Normal or a warning.
    pub kind: EventKind,
    /// The reason, as one word in CamelCase, at most 128 bytes.
    pub reason: &'static str,
    /// The action that was taken, as one word in CamelCase, at most 128 bytes and not empty.
    pub action: &'static str,
    /// A description for users; cut at 1024 bytes.
    pub note: String,
    /// True if all replicas report the same event: the first one writes it, the others find it.
    pub same_from_all: bool,
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// Group and version, as in `v1` or `apps/v1`.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The namespace; `None` for cluster-scoped objects, whose events are written to the namespace `default`.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The uid; events are shown only with objects that have this uid.
    pub uid: Arc<str>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Informational.
    Normal,
    /// Something that may need attention.
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
    /// `v1`, for accounts without permissions on `events.k8s.io`, such as the accounts of the CSI sidecars.
    Core,
}

/// Options of an [`EventRecorder`].
#[derive(Clone, Debug)]
pub struct EventOptions {
    /// The API; the default is `events.k8s.io/v1`.
    pub api: EventApi,
    /// The reporting controller: a qualified name such as `example.com/controller`.
    pub component: String,
    /// The reporting replica; cut at 128 bytes.
    pub instance: String,
    /// Maximum number of lines that wait to be sent; the default is 4096.
    pub capacity: usize,
    /// Maximum number of concurrent requests; the default is 4.
    pub concurrency: usize,
    /// Burst of events per object; the default is 25.
    pub burst: u32,
    /// The time after which each object may emit one more event; the default is 5 minutes.
    pub refill: Duration,
    /// The source of event times.
    pub environment: Environment,
}

impl EventOptions {
    /// Creates options with the defaults for this reporter.
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

/// Statistics of the events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Lines that are waiting or being sent.
    pub queued: usize,
    /// Successful requests: events written, and counts raised.
    pub sent: u64,
    /// Events that were merged into a waiting line.
    pub coalesced: u64,
    /// Events dropped because the queue was full, the namespace is being deleted, or the account may not write events.
    pub dropped: u64,
    /// Lines that the server rejected or repeatedly failed to write.
    pub failed: u64,
}

/// Sends events in the background, until the last clone is dropped; clones share one queue.
#[derive(Clone)]
pub struct EventRecorder {
    shared: Arc<Shared>,
    stopped: CancellationToken,
    _stop: Arc<DropGuard>,
}

impl EventRecorder {
    /// Starts the sending task; must be called inside a tokio runtime.
    pub fn new(client: Client, options: EventOptions) -> Self {
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            client,
            state: Mutex::new(State::new(&options)),
            concurrency: AtomicUsize::new(options.concurrency),
            environment: options.environment,
            api: options.api,
            component: options.component,
            instance: shortened(options.instance, MAX_INSTANCE),
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

    /// Returns when sending has stopped: the last clone was dropped, or the task has panicked.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stopped.clone().cancelled_owned()
    }

    /// Queues an event to be sent later. Never waits.
    pub fn record(&self, event: Event) {
        let mut note = shortened(event.note, MAX_NOTE);
        // Many notes may wait for a long time.
        note.shrink_to_fit();
        let event = Event { note, ..event };
        crate::sync::lock(&self.shared.state).record(event, Instant::now(), self.shared.environment.now());
        self.shared.changed.notify_one();
        self.shared.moved.notify_waiters();
    }

    /// Returns true if a line may be sent now, apart from the limit set by [`EventRecorder::set_concurrency`].
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        crate::sync::lock(&self.shared.state).next_due(now).is_some_and(|due| due <= now)
    }

    /// Waits until [`EventRecorder::is_due`] returns true.
    pub async fn wait_due(&self) {
        loop {
            let moved = self.shared.moved.notified();
            let now = Instant::now();
            let due = crate::sync::lock(&self.shared.state).next_due(now);
            match due {
                Some(due) if due <= now => return,
                // Whichever ends first, the loop reads the due time again.
                Some(due) => drop(timeout_at(due, moved).await),
                None => moved.await,
            }
        }
    }

    /// Returns true if more than half of the queue's lines wait.
    pub fn is_filling(&self) -> bool {
        crate::sync::lock(&self.shared.state).is_filling()
    }

    /// Sets the number of concurrent requests. Lower values leave more of the server's capacity to other work; 0 stops
    /// sending.
    pub fn set_concurrency(&self, concurrency: usize) {
        if self.shared.concurrency.swap(concurrency, Ordering::Relaxed) < concurrency {
            self.shared.changed.notify_one();
        }
    }

    /// Sends all waiting lines, ignoring the objects' rates, for at most `limit`; returns the number of lines left.
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
        // The statistics show whether everything was sent.
        let _ = timeout(limit, idle).await;
        self.stats().queued
    }

    /// Returns the statistics of the events so far.
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
    /// Notified when there may be something to send.
    changed: Notify,
    /// Notified when something may be due earlier than before.
    moved: Notify,
    /// Notified when something was sent.
    idle: Notify,
}

/// Longest note that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;

/// Longest name of a reporting instance that the API server accepts, in bytes.
const MAX_INSTANCE: usize = 128;
