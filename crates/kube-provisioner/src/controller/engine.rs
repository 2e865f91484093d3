//! The shell around `decide`: feeds it, carries out what it says, and tells of it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use provisioner_runtime::admin::Checks;
use provisioner_runtime::backoff::Backoff;
use provisioner_runtime::journal::Entry;
use provisioner_runtime::lease::LeaseHealth;
use provisioner_runtime::limiter::{Limiter, Limits as GroupLimits};
use provisioner_runtime::metrics::RuntimeMetrics;
use provisioner_runtime::queue::{Next, Priority, Queue, QueueOptions, Work, work};
use provisioner_runtime::surroundings::Surroundings;
use provisioner_runtime::throttle::ApiLimiter;
use provisioner_runtime::watch::{Event, WatchHealth, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::RunError;
use super::act::{Actor, Limits, Locks, Versions};
use super::decide::{Rules, decide};
use super::duty::{Duties, Duty};
use super::entry;
use super::erased::Backend;
use super::facts::{ClaimState, Facts};
use super::key::Key;
use super::measure::Meters;
use super::read_class::ReadClass;
use super::report::{Case, Report, Thresholds, report};
use super::safeguards::Safeguard;
use super::tell::Narrator;
use super::watched::{WatchedClaim, WatchedClass, WatchedVolume};
use super::world::World;
use crate::options::{Coordination, Options};

/// What is watched, in the order of [`Engine::health`].
const WATCHES: [&str; 3] = ["persistentvolumeclaims", "persistentvolumes", "storageclasses"];
/// How long the first list of the claims waits for the first shard.
const HEAD_START: Duration = Duration::from_millis(500);
/// How many claims can be listed in the time in which one is read.
const CLAIMS_PER_READ: usize = 16;
/// Calls of the author's code at a time where no bound is given: one that only waits costs some kilobytes.
const CALLS: usize = 100;
/// More classes than this are not expected to hang at the same time.
const CLASSES: usize = 200;
/// Attempts that are recorded ahead of their calls: a commit of the journal takes about as long as a volume takes to be saved.
const AHEAD: usize = 32;
/// Time limit of one call to the API server.
const API_LIMIT: Duration = Duration::from_secs(30);

/// What the tasks of one controller share.
pub(crate) struct Engine {
    pub(super) actor: Arc<Actor>,
    pub(super) duties: Duties,
    rules: Arc<Rules>,
    thresholds: Thresholds,
    narrator: Arc<Narrator>,
    meters: Meters,
    retry_on_resync: bool,
    /// Keys worked on at a time.
    workers: usize,
    queue: Queue<Key>,
    health: [WatchHealth; 3],
    /// Claims are watched from then on.
    watch_claims: CancellationToken,
    surroundings: Surroundings,
}

impl Engine {
    /// `instance` tells this process from others of the same provisioner, `namespace` is where it runs.
    pub(crate) fn new(
        options: &Options,
        rules: Rules,
        backend: Arc<dyn Backend>,
        client: Client,
        surroundings: Surroundings,
        namespace: &str,
        instance: String,
    ) -> Self {
        let rules = Arc::new(rules);
        let world = Arc::new(Mutex::new(World::new(rules.clone())));
        let limits = Limits { provision: options.provision_timeout, delete: options.delete_timeout, api: API_LIMIT };
        let calls = calls(options);
        let backoff = if options.exponential_backoff {
            Backoff::exponential(options.retry_interval_start, options.retry_interval_max)
        } else {
            Backoff::fixed(options.retry_interval_start)
        };
        let per_claim = options.coordination == Coordination::PerClaim;
        let locks = per_claim.then(|| Locks::new(options, &instance, surroundings));
        let duties = Duties::new(options, namespace.to_owned(), instance.clone(), surroundings);
        let narrator = Narrator::new(client.clone(), &options.provisioner_name, instance, surroundings);
        let narrator = Arc::new(narrator);
        let health: [WatchHealth; 3] = Default::default();
        let [claims, volumes, _] = health.clone();
        Self {
            actor: Arc::new(Actor {
                client,
                backend,
                rules: rules.clone(),
                limits,
                world,
                narrator: narrator.clone(),
                locks,
                calls: Limiter::new(calls),
                api: ApiLimiter::new(options.workers, surroundings),
                environment: surroundings,
                no_guard: AtomicBool::new(false),
                no_clean_up: AtomicBool::new(false),
                claims,
                volumes,
            }),
            duties,
            rules,
            narrator,
            meters: Meters::new(),
            retry_on_resync: options.retry_on_resync,
            thresholds: Thresholds {
                provision: options.failed_provision_threshold,
                delete: options.failed_delete_threshold,
            },
            workers: tasks(options),
            queue: Queue::new(QueueOptions { backoff, surroundings, limits: attempts(calls) }),
            health,
            watch_claims: CancellationToken::new(),
            surroundings,
        }
    }

    /// The watches end with the returned set. That of the claims begins when this process has got its first shard, so that
    /// no claim has to be read once more; or soon, for it is to be ready when it gets one.
    pub(crate) fn spawn_watches(self: Arc<Self>) -> JoinSet<&'static str> {
        let [on_claims, on_volumes, on_classes] = WATCHES;
        let [claims, volumes, classes] = self.health.clone();
        let surroundings = self.surroundings;
        let client = || self.actor.client.clone();
        let mut set = JoinSet::new();
        let engine = self.clone();
        let on_class = move |event: Event<WatchedClass>| {
            let event = ReadClass::of_event(event, &engine.rules, &*engine.actor.backend);
            engine.apply(|world| world.class_event(event));
        };
        let classes = watch(Api::all(client()), on_classes, surroundings, classes, on_class);
        set.spawn(classes.map(|()| "watch of the classes"));
        let engine = self.clone();
        let on_volume = move |event: Event<WatchedVolume>| engine.apply(|world| world.volume_event(event));
        let volumes = watch(Api::all(client()), on_volumes, surroundings, volumes, on_volume);
        set.spawn(volumes.map(|()| "watch of the volumes"));
        let engine = self.clone();
        let (watch_claims, health) = (self.watch_claims.clone(), claims.clone());
        let on_claim = move |event: Event<WatchedClaim>| {
            engine.apply(|world| world.claim_event_at(health.telling(), event));
        };
        let claims = watch(Api::all(client()), on_claims, surroundings, claims, on_claim);
        set.spawn(async move {
            let _ = timeout(HEAD_START, watch_claims.cancelled()).await;
            claims.await;
            "watch of the claims"
        });
        set
    }

    /// Returns when events are not sent any more.
    pub(crate) async fn events_ended(self: Arc<Self>) -> &'static str {
        self.narrator.events().stopped().await;
        "sending of events"
    }

    /// Readiness says why this process ends.
    pub(crate) fn fail(&self, error: &RunError) {
        self.duties.fail(error.to_string());
    }

    /// Before everything was listed no decision is sound.
    pub(crate) async fn synced(&self) {
        for health in &self.health {
            health.wait_synced().await;
        }
    }

    /// What was seen before these versions may be another holder's, who has finished with it. Returns when everything has
    /// been listed.
    pub(super) async fn synced_after(&self, versions: Versions) {
        {
            let mut world = self.world();
            world.doubt_claims(versions.claims);
            world.doubt_volumes(versions.volumes);
        }
        self.watch_claims.cancel();
        self.synced().await;
        let [claims, ..] = &self.health;
        let (waiting, _) = self.world().waiting_claims();
        // A list is quicker than reading many one by one.
        if claims.position() < versions.claims && waiting * CLAIMS_PER_READ > claims.size() {
            claims.list_again().await;
        }
    }

    /// Takes in what is to be finished. `remove` is told of what is not.
    pub(super) fn adopt(&self, entries: Vec<Entry>, remove: impl Fn(&str)) {
        let read = |entry: &Entry| entry::read(entry, (&*self.actor.backend, &self.rules.capabilities));
        // The author's code reads the classes' parameters, so before the lock.
        let attempts: Vec<_> = entries.into_iter().map(|entry| (read(&entry), entry.key)).collect();
        let mut world = self.world();
        for (pending, volume) in attempts {
            match pending {
                Ok(pending) => {
                    if !world.adopt(&Key::of_volume(&volume), pending) {
                        remove(&volume);
                    }
                }
                Err(problem) => tracing::error!(pv = volume, "an entry of the journal cannot be used: {problem}"),
            }
        }
    }

    /// Nothing is done about these keys until they are adopted, and who waits is told why.
    pub(super) fn await_adoption(&self, keys: Vec<Key>, problem: &str) {
        let mut world = self.world();
        for key in &keys {
            if let ClaimState::Waiting(claim) = world.facts(key).claim {
                self.narrator.held_up(&claim.facts, problem);
            }
        }
        world.await_adoption(keys);
    }

    /// Work on these keys can go on.
    pub(super) fn go_on(&self, keys: Vec<Key>) {
        let mut world = self.world();
        keys.iter().for_each(|key| world.adopted(key));
        self.wake(&world, keys, Priority::Resync);
    }

    /// A person has ended the attempt of this key.
    pub(super) fn drop_attempt(&self, key: &Key) {
        let mut world = self.world();
        world.drop_attempt(key);
        self.queue.forget(key);
        self.wake(&world, vec![key.clone()], Priority::Change);
    }

    /// Begins to work on the keys that are `here`. `hold` makes them ours.
    pub(super) fn begin(&self, here: impl Fn(&Key) -> bool, hold: impl FnOnce()) {
        let mut world = self.world();
        let [claims, ..] = &self.health;
        world.confirm_doubtful(claims.position(), &here);
        hold();
        let keys = world.unsettled(here);
        // Pauses and waits are those of an earlier term, of which somebody else may have finished what was waited for.
        keys.iter().for_each(|key| self.queue.forget(key));
        self.wake(&world, keys, Priority::Resync);
    }

    /// Tells the claims among these keys that wait why nothing is done.
    pub(super) fn held_up(&self, here: impl Fn(&Key) -> bool, problem: &str) {
        let world = self.world();
        for key in world.unsettled(here) {
            if let ClaimState::Waiting(claim) = world.facts(&key).claim {
                self.narrator.held_up(&claim.facts, problem);
            }
        }
    }

    /// Drops what is remembered of work on these keys.
    pub(super) fn forget(&self, of: impl Fn(&Key) -> bool) {
        self.world().forget_progress(of);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.actor.world()
    }

    fn apply(&self, change: impl FnOnce(&mut World) -> Vec<Key>) {
        let mut world = self.world();
        let keys = change(&mut world);
        self.wake(&world, keys, Priority::Change);
    }

    /// Keys of others are left to them.
    fn wake(&self, world: &World, keys: Vec<Key>, priority: Priority) {
        for key in keys.into_iter().filter(|key| self.duties.holds(key)) {
            let inputs = world.inputs(&key);
            self.queue.wake(key, inputs, priority);
        }
    }

    pub(crate) async fn resync(self: Arc<Self>, period: Duration) -> &'static str {
        loop {
            tokio::time::sleep(period).await;
            let world = self.world();
            let keys = world.unsettled(|key| self.duties.holds(key));
            if self.retry_on_resync {
                keys.iter().for_each(|key| self.queue.revive(key));
            }
            self.wake(&world, keys, Priority::Resync);
        }
    }

    /// Events wait while there is work.
    pub(crate) async fn pace(self: Arc<Self>) -> &'static str {
        self.narrator.pace(|| self.queue.stats().ready > 0 || self.actor.api.is_full()).await
    }

    /// Works on keys until [`Engine::shut_down`].
    pub(crate) async fn work(self: Arc<Self>) {
        let handler = self.clone();
        work(&self.queue, self.workers, CancellationToken::new(), move |work| handler.clone().step(work)).await;
    }

    pub(crate) fn shut_down(&self) {
        self.queue.shut_down();
    }

    /// Sends what is still to be told, for at most so long; returns how much is left.
    pub(crate) async fn last_words(&self, limit: Duration) -> usize {
        self.narrator.flush(limit).await
    }

    pub(crate) fn checks(self: &Arc<Self>, leases: Option<LeaseHealth>) -> Checks {
        let checks = Checks::new();
        for (name, health) in WATCHES.into_iter().zip(&self.health) {
            let health = health.clone();
            checks.add(format!("watch of {name}"), move || match health.problem() {
                Some(problem) => Err(problem),
                None if health.synced() => Ok(()),
                None => Err("not listed yet".to_owned()),
            });
        }
        let engine = self.clone();
        checks.add("journal", move || engine.duties.problem().map_or(Ok(()), Err));
        if let Some(leases) = leases {
            checks.add("leases", move || leases.problem().map_or(Ok(()), Err));
        }
        checks
    }

    pub(crate) fn registry(self: &Arc<Self>, leases: Option<LeaseHealth>) -> Registry {
        let mut registry = Registry::default();
        self.meters.register(&mut registry, self.actor.world.clone());
        let engine = self.clone();
        let journal = move || engine.duties.journal_stats();
        let mut parts =
            RuntimeMetrics::new().queue("volumes", &self.queue).events(self.narrator.events()).journal(journal);
        for (name, health) in WATCHES.into_iter().zip(&self.health) {
            parts = parts.watch(name, health);
        }
        if let Some(leases) = &leases {
            parts = parts.leases(leases);
        }
        parts.register(registry.sub_registry_with_prefix("provisioner"));
        registry
    }

    /// One key, one step. Work that is cut off was another replica's to finish from that moment.
    async fn step(self: Arc<Self>, work: Work<Key>) {
        let Some(duty) = self.duties.of(work.key()) else { return work.finish(Next::Done) };
        let fenced = self.rules.safeguards.include(Safeguard::Fencing);
        let (volume, over) = (work.key().to_string(), duty.over());
        let attempt = tokio::select! {
            biased;
            () = over.cancelled(), if fenced => None,
            attempt = self.attempt(&work, &volume, &duty) => Some(attempt),
        };
        let Some((facts, report)) = attempt else { return work.finish(Next::Done) };
        let case = self.case(&volume, &facts, &work);
        work.finish(report.next.clone());
        self.narrator.tell(report, &case);
    }

    /// What is known, what to do, doing it, what came of it.
    async fn attempt(&self, work: &Work<Key>, volume: &str, duty: &Duty) -> (Facts, Report) {
        let facts = self.world().facts(work.key());
        let decision = decide(&facts, &self.rules);
        tracing::debug!(pv = %work.key(), ?decision, attempt = work.attempt(), "decided");
        let started = Instant::now();
        let outcome = self.actor.carry_out(decision, &facts, work, duty).await;
        // What the API server shows, or what left nothing behind, needs no entry. Under the world's lock, because an entry
        // that is just adopted makes the key unfinished.
        if duty.contains(volume) {
            let world = self.world();
            if !world.unfinished(work.key()) {
                duty.remove(volume);
            }
        }
        let report = report(outcome, &self.case(volume, &facts, work));
        let (class, source) = facts.labels();
        self.meters.count(&report, class, source, started.elapsed());
        (facts, report)
    }

    fn case<'a>(&'a self, volume: &'a str, facts: &'a Facts, work: &Work<Key>) -> Case<'a> {
        let (attempt, repeats, waits) = (work.attempt(), work.repeats(), work.waits());
        let (provisioner, thresholds) = (&self.rules.names.own, self.thresholds);
        Case { provisioner, volume, facts, attempt, repeats, waits, thresholds }
    }
}

/// How many calls of the author's code there may be at a time. A number that is given is meant as it is.
fn calls(options: &Options) -> GroupLimits {
    let given = options.backend_concurrency;
    let total = if given == 0 { CALLS } else { given };
    GroupLimits { total, per_group: options.class_concurrency, one_each: given == 0 }
}

/// How many attempts may be under way: some record what they are about to begin while others are at work.
fn attempts(calls: GroupLimits) -> GroupLimits {
    let more = |calls: usize| calls + calls.min(AHEAD);
    GroupLimits { total: more(calls.total), per_group: more(calls.per_group), ..calls }
}

/// How many keys may be worked on: all attempts, one of each class beyond, and beside them what has nothing to do with the
/// author's code.
fn tasks(options: &Options) -> usize {
    attempts(calls(options)).total.saturating_add(options.workers).saturating_add(CLASSES)
}
