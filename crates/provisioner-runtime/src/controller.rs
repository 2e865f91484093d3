//! The loop that every controller is run by.
//!
//! A controller says what it follows, what to do about one key, does it, and says what came of it: it implements
//! [`Reconciler`], with a [`Cache`] of what is known. [`ControlLoop`] owns the rest: watches, queue, shard ownership, taking
//! over and adopting journals, the guarded call of an author's code, the pace of events, metrics, readiness and shutdown.
//!
//! ```text
//!  API watch ─► Cache ─► queue ─► facts ─► decide ─► act ─► outcome ─► report
//!                        (one key  (plain   (pure)    (API,   (enum)    (event, next look)
//!                         at a time) data)             Step)
//! ```
//!
//! A shard's term: take its journal over, which fences the former holder; adopt what it had begun; work on the shard's keys;
//! give it up. The example `tokens` is a whole controller.

mod adoption;
mod context;
mod engine;
mod fencing;
mod reconciler;
mod retry;
mod shards;
mod step;
mod term;
mod watches;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::context::Context;
pub use self::fencing::{FencingToken, TokenGuard};
pub use self::reconciler::{Cache, FactsOf, KeyOf, Reconciler, Report};
pub use self::shards::shard_of;
pub use self::step::{Call, CallPermit, Intent, NoAnswer, Refused, Safeguards, Step, guarded, unpanicked};
pub use self::watches::WatchSpec;

use self::engine::{Engine, Settings};
use self::shards::{Plan, Shards};
use self::term::serve;
use self::watches::Start;
use crate::admin::{AdminError, AdminServer};
use crate::events::{EventOptions, EventRecorder};
use crate::lease::{LeaseOptions, LeaseOptionsError, Leases, Term};
use crate::limiter::{Limiter, Limits};
use crate::queue::{Queue, QueueOptions};
use crate::{Backoff, Environment};

/// More groups than this are not expected to hang at the same time.
const GROUPS: usize = 200;
/// Attempts that are recorded ahead of their calls: a commit of the journal takes about as long as an object takes to be saved.
const AHEAD: usize = 32;
/// Enough for a burst that takes a minute to tell.
const EVENTS: usize = 32 * 1024;
/// How long events that are still to be sent may take when the controller stops.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// How the replicas of a controller share the work.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// A Lease for each shard; who holds it works.
    Leases(LeaseOptions),
    /// One process works, and a second one ends the first.
    Alone,
    /// Each process has a part and a journal of its own; a second one of the same part ends the first.
    Own {
        /// Which part, such as a node.
        part: String,
    },
    /// Every process works. Each object has a lock and records what was begun for it, so there is no journal.
    Objects,
}

/// How a controller is run.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// What it is called: a qualified name such as `example.com/disks`, of which journals and events have their names.
    pub name: String,
    /// Where its journals are.
    pub namespace: String,
    /// This process: no two have ever had the same.
    pub instance: String,
    /// What its queue is called in metrics.
    pub queue: &'static str,
    /// How replicas share the work.
    pub sharing: Sharing,
    /// Requests about objects at a time.
    pub requests: usize,
    /// Calls of the author's code at a time.
    pub calls: Limits,
    /// The pauses after failed attempts.
    pub backoff: Backoff,
    /// The time between looks at everything that needs work, as a safety net.
    pub resync: Duration,
    /// Whether what was given up is tried once more with every resync.
    pub retry_on_resync: bool,
    /// How long work in flight may take to end when a shard is given up.
    pub grace: Duration,
    /// Where probes and metrics are served.
    pub admin_address: Option<SocketAddr>,
    /// The clock and chance.
    pub environment: Environment,
    /// What a test of a simulation leaves out.
    pub safeguards: Safeguards,
}

/// Why a controller could not run, or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The address for probes and metrics cannot be had.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The options for the Leases make no sense.
    #[error(transparent)]
    Leases(#[from] LeaseOptionsError),
    /// Another process works in the place of this one.
    #[error(
        "{by} has taken over; only one replica may run with this --coordination (and --node-name), so end one of them"
    )]
    Replaced {
        /// The other process, as the journal names it.
        by: String,
    },
    /// A part has ended that others rely on: a fault of this library.
    #[error("the controller's {part} has ended by itself{how}; this is a fault, please report it")]
    Ended {
        /// Which.
        part: String,
        /// How, where that is known.
        how: String,
    },
}

/// Runs one [`Reconciler`].
pub struct ControlLoop<R: Reconciler> {
    engine: Arc<Engine<R>>,
    watches: Vec<Start<R::Cache>>,
    leases: Option<Leases>,
    resync: Duration,
    admin_address: Option<SocketAddr>,
}

impl<R: Reconciler> ControlLoop<R> {
    /// A loop around what `reconciler` makes of the context. Nothing is asked of the API server yet. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn new(
        client: Client,
        options: LoopOptions,
        cache: R::Cache,
        reconciler: impl FnOnce(Context<R::Cache>) -> R,
    ) -> Result<Self, LoopError> {
        let LoopOptions { name, namespace, instance, sharing, environment, calls, .. } = options;
        let leases = match &sharing {
            Sharing::Leases(leases) => Some(Leases::new(client.clone(), leases.clone())?),
            _ => None,
        };
        let events = EventOptions { capacity: EVENTS, environment, ..EventOptions::new(&name, &instance) };
        let events = EventRecorder::new(client.clone(), events);
        let context = Context::new(client, environment, cache, events, Limiter::new(calls), options.requests);
        let plan = Plan { name, namespace, instance, sharing, grace: options.grace, environment };
        let attempts = attempts(calls);
        let queue = Queue::new(QueueOptions { backoff: options.backoff, environment, limits: attempts });
        let settings = Settings {
            // All attempts, one of each group beyond, and beside them what has nothing to do with the author's code.
            tasks: attempts.total.saturating_add(options.requests).saturating_add(GROUPS),
            retry_on_resync: options.retry_on_resync,
            queue: options.queue,
            safeguards: options.safeguards,
        };
        let (engine, watches) = Engine::new(reconciler(context.clone()), context, Shards::new(plan), queue, settings);
        Ok(Self { engine, watches, leases, resync: options.resync, admin_address: options.admin_address })
    }

    /// Runs until `shutdown` is cancelled. Dropping the future ends everything at once, as a crash would.
    ///
    /// # Errors
    /// See [`LoopError`]. What the API server does not take at once is tried again.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), LoopError> {
        let Self { engine, watches, leases, resync, admin_address } = self;
        // What is in these sets ends with them: nothing goes on when this future is dropped.
        let mut helpers = engine.spawn_watches(watches);
        let mut working = JoinSet::new();
        if let Some(address) = admin_address {
            let admin = AdminServer::bind(address).await?;
            tracing::info!("serving /livez, /readyz and /metrics on {}", admin.address());
            let health = leases.as_ref().map(Leases::health);
            let registry = Arc::new(engine.registry(health.as_ref()));
            let serving = admin.serve(engine.checks(health), registry, shutdown.clone());
            helpers.spawn(serving.map(|()| "HTTP server".to_owned()));
        }
        helpers.spawn(engine.clone().resync(resync));
        helpers.spawn(engine.clone().pace_events());
        helpers.spawn(engine.clone().events_ended());
        working.spawn(engine.clone().work());
        let serving = async {
            match leases {
                Some(leases) => {
                    let engine = engine.clone();
                    leases.hold(shutdown.clone(), move |term| serve(engine.clone(), term).map(drop)).await;
                    None
                }
                None => serve(engine.clone(), Term::alone(&shutdown)).await.filter(|_| !shutdown.is_cancelled()),
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
        // The pacer among them: it would keep events waiting for keys that nobody takes any more.
        helpers.shutdown().await;
        let unsent = engine.flush_events(LAST_EVENTS).await;
        if unsent > 0 {
            tracing::warn!(unsent, "events could not be sent in time");
        }
        ended
    }
}

/// Returns when a task has ended that must not.
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
        // Some end because they were told to.
        if !shutdown.is_cancelled() {
            return LoopError::Ended { part, how };
        }
    }
}

/// How many attempts may be under way: some record what they are about to begin while others are at work.
fn attempts(calls: Limits) -> Limits {
    let more = |calls: usize| calls + calls.min(AHEAD);
    Limits { total: more(calls.total), per_group: more(calls.per_group), ..calls }
}

impl<R: Reconciler> fmt::Debug for ControlLoop<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlLoop").finish_non_exhaustive()
    }
}
