//! The loop that runs a controller.
//!
//! A controller implements [`Reconciler`]: it declares its watches, decides what to do about one key, does it, and
//! reports the outcome. Its [`Cache`] holds the known state and the attempts that were begun.
//! [`ControlLoop`] owns the rest: watches, queue, shard ownership, takeover and adoption of journals, guarded calls of
//! the author's code, the pace of events, metrics, readiness and shutdown.
//!
//! ```text
//!  API watch ─► Cache ─► queue ─► facts ─► decide ─► act ─► outcome ─► report
//!                        (one key  (plain   (pure)    (API,   (enum)    (event, next look)
//!                         at a time) data)             Step)
//! ```
//!
//! During a shard's term the loop takes over the journal, which fences the former holder, adopts the attempts that
//! holder had begun, works on the shard's keys, and releases the shard. The example `tokens` is a complete controller.

mod adoption;
mod cache;
mod context;
mod engine;
mod fencing;
mod journaling;
mod key;
mod reconciler;
mod retry;
mod shards;
mod step;
mod term;
#[cfg(test)]
mod tests;
mod watches;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::cache::{Cache, StaleReads};
pub use self::context::Context;
pub use self::fencing::{FencingToken, TokenGuard};
pub use self::journaling::JournalSpec;
pub use self::key::ObjectKey;
pub use self::reconciler::{FactsOf, KeyOf, Reconciler, Report};
pub use self::shards::{Sharing, shard_of};
pub use self::step::{Call, CallAborted, CallPermit, JournalRecord, Refused, Safeguards, Step, catch_panic, guarded};
pub use self::watches::WatchSpec;

use self::engine::Engine;
use self::shards::Shards;
use self::term::run_term;
use self::watches::Run;
use crate::admin::{AdminError, AdminServer};
use crate::backoff::Backoff;
use crate::environment::Environment;
use crate::events::{EventApi, EventOptions, EventRecorder};
use crate::journal::JournalKind;
use crate::lease::{LeaseOptions, LeaseOptionsError, Leases, Term, lease_name};
use crate::limiter::{Limiter, Limits};
use crate::queue::{Queue, QueueOptions};

/// Number of groups that may hang at the same time and still leave workers for others.
const GROUPS: usize = 200;
/// Number of attempts that are recorded ahead of their calls: a commit of the journal takes about as long as saving an
/// object.
const AHEAD: usize = 32;
/// Maximum number of waiting event lines: a burst that takes a minute to send.
const EVENTS: usize = 32 * 1024;
/// Time limit for sending the last events when the controller stops.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Options of a [`ControlLoop`].
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// The controller's qualified name, such as `example.com/disks`. Journals and events are named after it.
    pub name: String,
    /// Other names of the controller, recorded in its journals for administrators.
    pub aliases: Vec<String>,
    /// The namespace of its journals.
    pub namespace: String,
    /// The kind of object that stores its journals.
    pub journal: JournalKind,
    /// The API used to write events.
    pub events: EventApi,
    /// The cluster ID recorded in its journals.
    pub cluster_id: String,
    /// The unique name of this process. No other process may ever use the same name.
    pub instance: String,
    /// The queue's name in metrics.
    pub queue: &'static str,
    /// The way in which replicas share the work.
    pub sharing: Sharing,
    /// Maximum number of concurrent requests sent with [`Context::request`].
    pub requests: usize,
    /// Maximum number of concurrent calls of the author's code; the limit applies separately to calls that create and
    /// calls that remove.
    pub calls: Limits,
    /// The delays after failed attempts.
    pub backoff: Backoff,
    /// The time between resyncs of all keys that need work, as a safety net.
    pub resync: Duration,
    /// True if each resync also retries keys that await a change.
    pub retry_on_resync: bool,
    /// Time limit for work in flight when a shard is released.
    pub grace: Duration,
    /// The address for probes and metrics.
    pub http_endpoint: Option<SocketAddr>,
    /// The clock and randomness.
    pub environment: Environment,
    /// Maps a key to the text that selects its shard: keys with the same text are in one shard.
    pub shard_by: fn(&str) -> String,
    /// The safeguards; simulation tests disable them one at a time.
    pub safeguards: Safeguards,
}

impl LoopOptions {
    /// Creates options for a single process, with the journal in a Lease. `name` is a qualified name such as
    /// `example.com/disks`, and no other process may ever have the same `instance`.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>, instance: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            namespace: namespace.into(),
            journal: JournalKind::Lease,
            events: EventApi::Events,
            cluster_id: String::new(),
            instance: instance.into(),
            queue: "controller",
            sharing: Sharing::Alone,
            requests: 64,
            calls: Limits { total: 64, per_group: 16, one_each: true },
            backoff: Backoff::exponential(Duration::from_secs(1), Duration::from_secs(300)),
            resync: Duration::from_secs(600),
            retry_on_resync: false,
            grace: Duration::from_secs(20),
            http_endpoint: None,
            environment: Environment::default(),
            shard_by: str::to_owned,
            safeguards: Safeguards::default(),
        }
    }

    /// Shares the work among replicas: the holder of a shard's Lease works on its keys.
    #[must_use]
    pub fn with_shards(self, shards: u32) -> Self {
        let leases = LeaseOptions::new(&self.namespace, lease_name(&self.name), &self.instance);
        let leases = LeaseOptions { shards, environment: self.environment, ..leases };
        Self { sharing: Sharing::Leases(leases), ..self }
    }
}

/// The reason why a controller could not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The address for probes and metrics cannot be bound.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The options for the Leases are not valid.
    #[error(transparent)]
    Leases(#[from] LeaseOptionsError),
    /// Another process has taken over from this one.
    #[error("{by} has taken over, and only one process may do this work, so end one of them")]
    Replaced {
        /// The other process, as the journal names it.
        by: String,
    },
    /// A task that must not end has ended: a bug in this library.
    #[error("the controller's {part} ended unexpectedly{how}; this is a bug, please report it")]
    Ended {
        /// The name of the task.
        part: String,
        /// The way it ended, if known.
        how: String,
    },
}

/// Runs one [`Reconciler`].
pub struct ControlLoop<R: Reconciler> {
    engine: Arc<Engine<R>>,
    watches: Vec<Run<R::Cache>>,
    leases: Option<Leases>,
}

impl<R: Reconciler> ControlLoop<R> {
    /// Creates a loop around the reconciler that `reconciler` builds from the context. Sends no request yet. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// Fails if the options are not valid.
    pub fn new(
        client: Client,
        options: LoopOptions,
        cache: R::Cache,
        reconciler: impl FnOnce(Context<R::Cache>) -> R,
    ) -> Result<Self, LoopError> {
        let LoopOptions { environment, calls, .. } = options;
        let leases = match &options.sharing {
            Sharing::Leases(leases) => Some(Leases::new(client.clone(), leases.clone())?),
            _ => None,
        };
        let events = EventOptions::new(&options.name, &options.instance);
        let events = EventOptions { api: options.events, capacity: EVENTS, environment, ..events };
        let events = EventRecorder::new(client.clone(), events);
        let context = Context::new(client, environment, cache, events, Limiter::new(calls), options.requests);
        let attempts = attempts(calls);
        let queue = Queue::new(QueueOptions { backoff: options.backoff, environment, limits: attempts });
        // All attempts of both purposes, one more for each group, and work that does not call the author's code.
        let tasks = attempts.total.saturating_mul(2).saturating_add(options.requests).saturating_add(GROUPS);
        let (engine, watches) = Engine::new(reconciler(context.clone()), context, Shards::new(options), queue, tasks);
        Ok(Self { engine, watches, leases })
    }

    /// Runs until `shutdown` is cancelled. Dropping the future ends everything at once, as a crash would.
    ///
    /// # Errors
    /// See [`LoopError`]. Failed requests to the API server are retried.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), LoopError> {
        let Self { engine, watches, leases } = self;
        let LoopOptions { resync, http_endpoint, .. } = engine.shards.options;
        // The sets own the tasks: dropping this future aborts all of them.
        let mut helpers = engine.spawn_watches(watches);
        let mut working = JoinSet::new();
        if let Some(address) = http_endpoint {
            let admin = AdminServer::bind(address).await?;
            tracing::info!("serving /livez, /readyz and /metrics on {}", admin.address());
            let health = leases.as_ref().map(Leases::health);
            let registry = Arc::new(engine.registry(health.as_ref()));
            let serving = admin.serve(engine.checks(health), registry, shutdown.clone());
            helpers.spawn(serving.map(|()| "HTTP server".to_owned()));
        }
        helpers.spawn(engine.clone().resync(resync));
        helpers.spawn(engine.clone().pace_events());
        helpers.spawn(engine.context.events().stopped().map(|()| "sending of events".to_owned()));
        working.spawn(engine.clone().work());
        let serving = async {
            match leases {
                Some(leases) => {
                    let engine = engine.clone();
                    leases.hold(shutdown.clone(), move |term| run_term(engine.clone(), term).map(drop)).await;
                    None
                }
                None => run_term(engine.clone(), Term::without_election(&shutdown))
                    .await
                    .filter(|_| !shutdown.is_cancelled()),
            }
        };
        let ended = tokio::select! {
            biased;
            replaced = serving => replaced.map_or(Ok(()), |by| Err(LoopError::Replaced { by })),
            error = unexpected_end(&mut helpers, &mut working, &shutdown) => {
                engine.fail(&error);
                Err(error)
            }
        };
        engine.shut_down();
        working.shutdown().await;
        // This also ends the pacer, which would otherwise hold events back for keys that no worker takes any more.
        helpers.shutdown().await;
        let unsent = engine.flush_events(LAST_EVENTS).await;
        if unsent > 0 {
            tracing::warn!(unsent, "events could not be sent in time");
        }
        ended
    }
}

/// Returns when a task that must not end has ended.
async fn unexpected_end(
    helpers: &mut JoinSet<String>,
    working: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> LoopError {
    loop {
        let (part, how) = tokio::select! {
            biased;
            Some(ended) = helpers.join_next() => match ended {
                Ok(part) => (part, String::new()),
                Err(error) => ("background work".to_owned(), format!(" ({error})")),
            },
            Some(ended) = working.join_next() => {
                ("work".to_owned(), ended.err().map(|error| format!(" ({error})")).unwrap_or_default())
            }
        };
        // On shutdown some tasks end as expected.
        if !shutdown.is_cancelled() {
            return LoopError::Ended { part, how };
        }
    }
}

/// Returns the limits on attempts under way: some are being recorded while others call the author's code.
fn attempts(calls: Limits) -> Limits {
    let more = |calls: usize| calls + calls.min(AHEAD);
    Limits { total: more(calls.total), per_group: more(calls.per_group), ..calls }
}

impl<R: Reconciler> fmt::Debug for ControlLoop<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlLoop").finish_non_exhaustive()
    }
}
