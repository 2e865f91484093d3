//! The volume controller: watches claims, volumes and classes, and carries every key to where it should be.
//!
//! The way of one key: `world` (what is known) -> `facts` -> `decide` -> `act` -> `report`.

mod act;
mod decide;
mod erased;
mod facts;
mod key;
mod measure;
mod persistent_volume;
mod report;
mod tell;
#[cfg(test)]
mod tests;
mod watched;
mod world;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::{Api, Client};
use prometheus_client::registry::Registry;
use provisioner_runtime::access::{AccessError, check_access};
use provisioner_runtime::admin::{AdminError, AdminServer, Checks};
use provisioner_runtime::backoff::Backoff;
use provisioner_runtime::client::{ConnectError, connect};
use provisioner_runtime::logs::{self, LogFormat};
use provisioner_runtime::metrics::RuntimeMetrics;
use provisioner_runtime::queue::{Priority, Queue, QueueOptions, Work, work};
use provisioner_runtime::shutdown;
use provisioner_runtime::surroundings::Surroundings;
use provisioner_runtime::watch::{Event, WatchHealth, watch};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::act::{Actor, Limits};
use self::decide::{Names, Rules, decide};
pub(crate) use self::erased::Backend;
#[cfg(feature = "conformance")]
pub(crate) use self::erased::{Parsed, UntypedRequest};
use self::key::Key;
use self::measure::Meters;
#[cfg(feature = "conformance")]
pub(crate) use self::persistent_volume::{Order, build};
pub(crate) use self::report::parameters_text as parameters_problem;
use self::report::{Case, Thresholds, report};
use self::tell::Narrator;
use self::watched::{WatchedClaim, WatchedClass, WatchedVolume};
use self::world::World;
use crate::options::{LogStyle, Options};
use crate::provisioner::Provisioner;
use crate::rbac;

/// What is watched, in the order of [`Engine::health`].
const WATCHES: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "storageclasses"];
/// How long work in flight may take to end when the controller stops.
const GRACE: Duration = Duration::from_secs(20);
/// How long events that are still to be sent may take when the controller stops.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Time limit of one call to the API server.
const API_LIMIT: Duration = Duration::from_secs(30);

/// Runs a [`Provisioner`]: calls it when a claim asks for a volume and when a volume is to be deleted.
///
/// ```no_run
/// # use kube_provisioner::*;
/// # struct Exports;
/// # impl Provisioner for Exports {
/// #     type Parameters = ();
/// #     async fn provision(&self, r: ProvisionRequest<()>) -> Result<Volume, ProvisionError> {
/// #         Ok(Volume::nfs("server", r.name))
/// #     }
/// #     async fn delete(&self, _: ProvisionedVolume) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// # async fn main_() -> Result<(), RunError> {
/// Controller::new(Exports, Options::new("example.com/exports")).run().await
/// # }
/// ```
pub struct Controller {
    options: Options,
    backend: Arc<dyn Backend>,
    surroundings: Surroundings,
}

/// Why the controller could not run. The text is one line that says what to do, also as `Debug`, so that
/// a `main` that returns it ends with that line.
#[derive(Error)]
#[non_exhaustive]
pub enum RunError {
    /// The API server cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The address for probes and metrics cannot be had.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Rights are missing.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Signals cannot be received.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Controller {
    /// A controller for this provisioner. Nothing happens before it runs.
    pub fn new(provisioner: impl Provisioner, options: Options) -> Self {
        Self::with_backend(Arc::new(provisioner), options)
    }

    pub(crate) fn with_backend(backend: Arc<dyn Backend>, options: Options) -> Self {
        Self { options, backend, surroundings: Surroundings::default() }
    }

    /// With another time of day and other chance than the machine's: for simulations, which repeat by their seed.
    #[must_use]
    pub fn surroundings(self, surroundings: Surroundings) -> Self {
        Self { surroundings, ..self }
    }

    /// Runs as a program: sets up logs, connects, checks its rights and works until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// When the API server cannot be used as it should be. Later interruptions are waited out.
    pub async fn run(self) -> Result<(), RunError> {
        logs::init(match self.options.log_format {
            LogStyle::Text => LogFormat::Text,
            LogStyle::Json => LogFormat::Json,
        });
        let shutdown = shutdown::on_signal().map_err(RunError::Signals)?;
        let connection = connect(self.options.kubeconfig.as_deref()).await?;
        let namespace = self.options.namespace.as_deref().unwrap_or(&connection.namespace);
        check_access(&connection.client, namespace, rbac::CLUSTER_RULES).await?;
        tracing::info!(provisioner = self.options.provisioner_name, "connected by {}", connection.source);
        self.run_with(connection.client, shutdown).await
    }

    /// Runs with a given client until `shutdown` is cancelled. No effects on the process: for tests and embedding.
    ///
    /// # Errors
    /// When the address for probes and metrics cannot be had. What else cannot be done at once is tried again.
    pub async fn run_with(self, client: Client, shutdown: CancellationToken) -> Result<(), RunError> {
        let engine = Arc::new(Engine::new(&self.options, self.backend, client, self.surroundings));
        let mut helpers = engine.clone().spawn_watches();
        if let Some(address) = self.options.admin_address {
            let admin = AdminServer::bind(address).await?;
            tracing::info!("serving /livez, /readyz and /metrics on {}", admin.address());
            helpers.spawn(admin.serve(engine.checks(), Arc::new(engine.registry()), shutdown.clone()));
        }
        tokio::select! {
            biased;
            () = engine.synced() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        engine.start();
        tracing::info!(provisioner = self.options.provisioner_name, "ready");
        helpers.spawn(engine.clone().resync(self.options.resync_period));
        let pacer = engine.clone();
        helpers.spawn(async move { pacer.narrator.pace(&pacer.queue).await });
        let workers = {
            let engine = engine.clone();
            let workers = self.options.workers;
            async move {
                let handler = engine.clone();
                work(&engine.queue, workers, CancellationToken::new(), move |work| handler.clone().step(work)).await;
            }
        };
        // A set, because dropping it ends the work: nothing goes on when this future is dropped.
        let mut running = JoinSet::new();
        running.spawn(workers);
        shutdown.cancelled().await;
        engine.queue.shut_down();
        if tokio::time::timeout(GRACE, running.join_next()).await.is_err() {
            tracing::warn!("work in flight did not end within {} s and is abandoned", GRACE.as_secs());
        }
        running.shutdown().await;
        // The pacer among them: it would keep events waiting for keys that nobody takes any more.
        helpers.shutdown().await;
        let untold = engine.narrator.flush(LAST_WORDS).await;
        if untold > 0 {
            tracing::warn!(untold, "events could not be sent in time");
        }
        Ok(())
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The shell around `decide`: feeds it and carries out what it says.
struct Engine {
    actor: Actor,
    rules: Arc<Rules>,
    thresholds: Thresholds,
    narrator: Arc<Narrator>,
    meters: Meters,
    retry_on_resync: bool,
    world: Arc<Mutex<World>>,
    queue: Queue<Key>,
    /// Set under the world's lock, once everything was listed: before that no decision is sound.
    started: AtomicBool,
    health: [WatchHealth; 3],
    surroundings: Surroundings,
}

impl Engine {
    fn new(options: &Options, backend: Arc<dyn Backend>, client: Client, surroundings: Surroundings) -> Self {
        let names =
            Names { own: options.provisioner_name.clone(), additional: options.additional_provisioner_names.clone() };
        let capabilities = backend.capabilities();
        let rules = Arc::new(Rules { names, capabilities, finalizer: options.volume_finalizer });
        let world = Arc::new(Mutex::new(World::new(rules.clone(), backend.clone())));
        let limits = Limits {
            provision: options.provision_timeout,
            delete: options.delete_timeout,
            api: API_LIMIT,
            per_backend: options.backend_concurrency,
            per_class: options.class_concurrency,
        };
        let backoff = if options.exponential_backoff {
            Backoff::exponential(options.retry_interval_start, options.retry_interval_max)
        } else {
            Backoff::fixed(options.retry_interval_start)
        };
        let instance = instance(options, &surroundings);
        let narrator = Narrator::new(client.clone(), &options.provisioner_name, instance, surroundings);
        let narrator = Arc::new(narrator);
        Self {
            actor: Actor {
                client,
                backend,
                rules: rules.clone(),
                limits,
                world: world.clone(),
                narrator: narrator.clone(),
            },
            rules,
            narrator,
            meters: Meters::new(),
            retry_on_resync: options.retry_on_resync,
            thresholds: Thresholds {
                provision: options.failed_provision_threshold,
                delete: options.failed_delete_threshold,
            },
            world,
            queue: Queue::new(QueueOptions { backoff, surroundings }),
            started: AtomicBool::new(false),
            health: Default::default(),
            surroundings,
        }
    }

    /// The watches end with the returned set.
    fn spawn_watches(self: Arc<Self>) -> JoinSet<()> {
        let [on_claims, on_volumes, on_classes] = WATCHES;
        let [claims, volumes, classes] = self.health.clone();
        let surroundings = self.surroundings;
        let client = || self.actor.client.clone();
        let mut set = JoinSet::new();
        let engine = self.clone();
        let on_class = move |event: Event<WatchedClass>| engine.apply(|world| world.class_event(event));
        set.spawn(watch(Api::all(client()), on_classes, surroundings, classes, on_class));
        let engine = self.clone();
        let on_volume = move |event: Event<WatchedVolume>| engine.apply(|world| world.volume_event(event));
        set.spawn(watch(Api::all(client()), on_volumes, surroundings, volumes, on_volume));
        let engine = self.clone();
        let on_claim = move |event: Event<WatchedClaim>| engine.apply(|world| world.claim_event(event));
        set.spawn(watch(Api::all(client()), on_claims, surroundings, claims, on_claim));
        set
    }

    async fn synced(&self) {
        for health in &self.health {
            health.wait_synced().await;
        }
    }

    fn apply(&self, change: impl FnOnce(&mut World) -> Vec<Key>) {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = change(&mut world);
        if self.started.load(Ordering::Relaxed) {
            self.wake(&world, keys, Priority::Change);
        }
    }

    fn start(&self) {
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        self.started.store(true, Ordering::Relaxed);
        self.wake(&world, world.unsettled(), Priority::Resync);
    }

    fn wake(&self, world: &World, keys: Vec<Key>, priority: Priority) {
        for key in keys {
            let inputs = world.inputs(&key);
            self.queue.wake(key, inputs, priority);
        }
    }

    async fn resync(self: Arc<Self>, period: Duration) {
        loop {
            tokio::time::sleep(period).await;
            let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            let keys = world.unsettled();
            if self.retry_on_resync {
                keys.iter().for_each(|key| self.queue.revive(key));
            }
            self.wake(&world, keys, Priority::Resync);
        }
    }

    fn checks(&self) -> Checks {
        let checks = Checks::new();
        for (name, health) in WATCHES.into_iter().zip(&self.health) {
            let health = health.clone();
            checks.add(format!("watch of {name}"), move || match health.problem() {
                Some(problem) => Err(problem),
                None if health.synced() => Ok(()),
                None => Err("not listed yet".to_owned()),
            });
        }
        checks
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        self.meters.register(&mut registry, self.world.clone());
        let mut parts = RuntimeMetrics::new().queue("volumes", &self.queue).events(self.narrator.events());
        for (name, health) in WATCHES.into_iter().zip(&self.health) {
            parts = parts.watch(name, health);
        }
        parts.register(registry.sub_registry_with_prefix("provisioner"));
        registry
    }

    /// One key, one step: what is known, what to do, doing it, telling it.
    async fn step(self: Arc<Self>, work: Work<Key>) {
        let facts = self.world.lock().unwrap_or_else(PoisonError::into_inner).facts(work.key());
        let decision = decide(&facts, &self.rules);
        tracing::debug!(pv = %work.key(), ?decision, attempt = work.attempt(), "decided");
        let started = Instant::now();
        let outcome = self.actor.carry_out(decision, &facts, &work).await;
        let volume = work.key().to_string();
        let case = Case {
            provisioner: &self.rules.names.own,
            volume: &volume,
            facts: &facts,
            attempt: work.attempt(),
            thresholds: self.thresholds,
        };
        let report = report(outcome, &case);
        let (class, source) = facts.labels();
        self.meters.count(&report, class, source, started.elapsed());
        work.finish(report.next.clone());
        self.narrator.tell(report, &case);
    }
}

/// Bytes as the API server might send them, through the tables to a decision.
#[cfg(feature = "fuzzing")]
pub(crate) fn take_in(bytes: &[u8]) {
    struct Nothing;
    impl Provisioner for Nothing {
        type Parameters = ();
        async fn provision(
            &self,
            request: crate::ProvisionRequest<()>,
        ) -> Result<crate::Volume, crate::ProvisionError> {
            Ok(crate::Volume::nfs("server", request.name))
        }
        async fn delete(&self, _: crate::ProvisionedVolume) -> Result<(), crate::DeleteError> {
            Ok(())
        }
    }
    let names = Names { own: "p".to_owned(), additional: Vec::new() };
    let rules = Arc::new(Rules { names, capabilities: crate::Capabilities::default(), finalizer: true });
    let mut world = World::new(rules.clone(), Arc::new(Nothing));
    let mut keys = Vec::new();
    if let Ok(class) = serde_json::from_slice(bytes) {
        keys.extend(world.class_event(Event::Applied(class)));
    }
    if let Ok(volume) = serde_json::from_slice(bytes) {
        keys.extend(world.volume_event(Event::Applied(volume)));
    }
    if let Ok(claim) = serde_json::from_slice(bytes) {
        keys.extend(world.claim_event(Event::Applied(claim)));
    }
    for key in keys {
        world.inputs(&key);
        decide(&world.facts(&key), &rules);
    }
}

#[cfg(test)]
pub(crate) fn fingerprint_of(text: &str) -> u64 {
    facts::fingerprint(&text)
}

/// Tells this process from others of the same provisioner.
fn instance(options: &Options, surroundings: &Surroundings) -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let place = options.node_name.clone().or(host).unwrap_or_else(|| "local".to_owned());
    let random = surroundings.number("instance");
    format!("{place}_{random:016x}")
}
