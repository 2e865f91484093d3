//! The loop around [`decide`](Reconciler::decide): gathers facts, carries out decisions and passes on reports.

use std::future::poll_fn;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt as _;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::cache::{Cache, StaleReads};
use super::context::Context;
use super::journaling::JournalSpec;
use super::reconciler::{FactsOf, KeyOf, Reconciler, Report};
use super::shards::{Ownership, Shards};
use super::step::Step;
use super::watches::{Run, RunningWatch, Update, WatchSpec};
use crate::admin::Checks;
use crate::call::CallError;
use crate::events::Event;
use crate::journal::{Entry, Journal, JournalKind};
use crate::lease::LeaseHealth;
use crate::metrics::RuntimeMetrics;
use crate::queue::{Next, Priority, Queue, Work, work};

/// The maximum time that a watch waits for the first term.
const FIRST_TERM_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of objects that can be listed in the time it takes to read one.
const OBJECTS_PER_READ: usize = 16;
/// Number of events sent at a time when there is no other work.
const IDLE_EVENTS: usize = 16;
/// Maximum time under load before events are sent alongside the work. Otherwise constant load would hold them back
/// forever.
const EVENT_PATIENCE: Duration = Duration::from_secs(10);
/// The time without work after which load is considered over. Keys whose journal entries were written together send
/// their requests in bursts.
const IDLE_DELAY: Duration = Duration::from_millis(100);

/// State shared by the tasks of one controller.
pub(super) struct Engine<R: Reconciler> {
    pub(super) reconciler: R,
    pub(super) context: Context<R::Cache>,
    pub(super) shards: Shards,
    pub(super) queue: Queue<KeyOf<R>>,
    watches: Vec<RunningWatch<R::Cache>>,
    pub(super) journal: JournalSpec<R::Cache>,
    /// Cancelled when the first term begins.
    first_term: CancellationToken,
    /// Number of keys worked on at a time.
    tasks: usize,
}

impl<R: Reconciler> Engine<R> {
    pub(super) fn new(
        reconciler: R,
        context: Context<R::Cache>,
        shards: Shards,
        queue: Queue<KeyOf<R>>,
        tasks: usize,
    ) -> (Arc<Self>, Vec<Run<R::Cache>>) {
        let (watches, runs) = reconciler.watches().into_iter().map(WatchSpec::split).unzip();
        let (journal, first_term) = (reconciler.journal(), CancellationToken::new());
        (Arc::new(Self { reconciler, context, shards, queue, watches, journal, first_term, tasks }), runs)
    }

    /// Spawns the watches. They end when the returned set is dropped.
    pub(super) fn spawn_watches(self: &Arc<Self>, runs: Vec<Run<R::Cache>>) -> JoinSet<String> {
        let mut set = JoinSet::new();
        for (watch, run) in self.watches.iter().zip(runs).rev() {
            let (name, health, after_first_term) = (watch.name, watch.health.clone(), watch.after_first_term);
            let (engine, first_term) = (self.clone(), self.first_term.clone());
            let run = run(self.context.environment(), health, Box::new(move |update| engine.apply(update)));
            set.spawn(async move {
                if after_first_term {
                    let _ = timeout(FIRST_TERM_TIMEOUT, first_term.cancelled()).await;
                }
                run.await;
                format!("watch of the {name}")
            });
        }
        set
    }

    /// Makes readiness report why this process ends.
    pub(super) fn fail(&self, error: &impl ToString) {
        self.shards.fail(error.to_string());
    }

    /// Brings the cache up to date with this term: another holder may have changed objects before it. Returns when
    /// everything has been listed.
    pub(super) async fn refresh(&self) -> Result<(), CallError> {
        let mut versions = Vec::with_capacity(self.watches.len());
        for watch in &self.watches {
            versions.push(match &watch.version {
                Some(fetch) => fetch(self.context.clone()).await?,
                None => 0,
            });
        }
        self.context.cache().stale_before(&versions);
        self.first_term.cancel();
        for watch in self.watches.iter().filter(|watch| !watch.optional) {
            watch.health.wait_synced().await;
        }
        for (index, (watch, version)) in self.watches.iter().zip(versions).enumerate() {
            let lists = match self.context.cache().stale_reads(index) {
                StaleReads::ListAgain => true,
                // A list is quicker than many reads.
                StaleReads::Each(reads) => reads * OBJECTS_PER_READ > watch.health.size(),
            };
            if lists && watch.health.position() < version {
                watch.health.list_again().await;
            }
        }
        Ok(())
    }

    /// Adopts entries of this journal to finish. Removes those that need no work.
    pub(super) fn adopt(&self, entries: Vec<Entry>, journal: &Journal) {
        // Reading may call the author's code, so take the lock afterwards.
        let attempts: Vec<_> = entries.into_iter().map(|entry| (self.journal.read(&entry), entry.key)).collect();
        let mut cache = self.cache();
        for (attempt, key) in attempts {
            match attempt {
                Ok(adopt) => {
                    if !adopt(&mut cache) {
                        journal.remove(&key);
                    }
                }
                Err(problem) => {
                    tracing::error!(key, "an entry of the journal cannot be used: {problem}");
                    // The cache does not know the attempt, so the next step of its key would remove the entry.
                    journal.set_aside(&key);
                }
            }
        }
    }

    /// Suspends work on these keys until they are adopted, and reports the reason to their users.
    pub(super) fn await_adoption(&self, keys: &[KeyOf<R>], problem: &str) {
        let mut cache = self.cache();
        self.report_blocked_keys(&cache, keys, problem);
        cache.await_adoption(keys);
    }

    /// Resumes the work on these keys.
    pub(super) fn resume(&self, keys: Vec<KeyOf<R>>) {
        let mut cache = self.cache();
        keys.iter().for_each(|key| cache.adopted(key));
        self.wake(&cache, keys, Priority::Resync);
    }

    /// Drops the attempt of this key at an administrator's request.
    pub(super) fn drop_attempt(&self, key: &KeyOf<R>) {
        self.journal.dropped(key);
        let mut cache = self.cache();
        cache.drop_attempt(key);
        self.queue.forget(key);
        self.wake(&cache, vec![key.clone()], Priority::Change);
    }

    /// Begins work on the keys for which `here` returns true. `own` makes this process their owner.
    pub(super) fn begin(&self, here: impl Fn(&KeyOf<R>) -> bool, own: impl FnOnce()) {
        let mut cache = self.cache();
        let positions: Vec<u64> = self.watches.iter().map(|watch| watch.health.position()).collect();
        cache.revalidate(&positions, &here);
        own();
        let keys = cache.unsettled(&here);
        // Delays and waits date from an earlier term. Their reasons may no longer apply.
        keys.iter().for_each(|key| self.queue.forget(key));
        self.wake(&cache, keys, Priority::Resync);
    }

    /// Reports to the users of these keys why no work is done.
    pub(super) fn report_blocked(&self, here: impl Fn(&KeyOf<R>) -> bool, problem: &str) {
        let cache = self.cache();
        let keys = cache.unsettled(&here);
        self.report_blocked_keys(&cache, &keys, problem);
    }

    /// Reports on `/readyz` why work on a shard cannot begin, and to users unless the error is transient.
    pub(super) fn report_delayed(&self, shard: u32, problem: &str, error: &CallError) {
        let problem = format!("{problem}: {error}");
        if !error.is_transient() {
            // Once work on the shard has begun, only keys whose entries did not fit wait. They are reported separately.
            self.report_blocked(|key| self.shards.shard_of(key) == shard && !self.shards.owns(key), &problem);
        }
        self.shards.set_problem(shard, Some(problem));
    }

    fn report_blocked_keys(&self, cache: &R::Cache, keys: &[KeyOf<R>], problem: &str) {
        keys.iter().for_each(|key| self.reconciler.report_blocked(&cache.facts(key), problem, self.context.events()));
    }

    /// Discards the state of work on these keys. The watches no longer wake them.
    pub(super) fn forget(&self, of: impl Fn(&KeyOf<R>) -> bool) {
        self.cache().forget(&of);
        let mut keys = self.queue.keys();
        keys.retain(&of);
        // The order must be reproducible, because each key may pass on a permit.
        keys.sort_unstable();
        keys.iter().for_each(|key| self.queue.forget(key));
    }

    fn cache(&self) -> MutexGuard<'_, R::Cache> {
        self.context.cache()
    }

    fn apply(&self, update: Update<'_, R::Cache>) {
        let mut cache = self.cache();
        let keys = update(&mut cache);
        self.wake(&cache, keys, Priority::Change);
    }

    /// Wakes the keys that belong to this process.
    fn wake(&self, cache: &R::Cache, keys: Vec<KeyOf<R>>, priority: Priority) {
        for key in keys.into_iter().filter(|key| self.shards.owns(key)) {
            let inputs = cache.inputs(&key);
            self.queue.wake(key, inputs, priority);
        }
    }

    pub(super) async fn resync(self: Arc<Self>, period: Duration) -> String {
        loop {
            sleep(period).await;
            let cache = self.cache();
            let keys = cache.unsettled(&|key| self.shards.owns(key));
            if self.shards.options.retry_on_resync {
                keys.iter().for_each(|key| self.queue.requeue(key));
            }
            self.wake(&cache, keys, Priority::Resync);
        }
    }

    /// Defers events under load, up to [`EVENT_PATIENCE`] or until half of their queue is taken. Never returns.
    pub(super) async fn pace_events(self: Arc<Self>) -> String {
        let events = self.context.events();
        // The times when the load began and was last observed.
        let mut load: Option<(Instant, Instant)> = None;
        loop {
            if !events.is_due() {
                // Hold the next event back until the load is known.
                events.set_concurrency(0);
                events.wait_due().await;
                load = None;
            }
            let now = Instant::now();
            load = load.filter(|(_, seen)| now - *seen < IDLE_DELAY);
            if self.queue.stats().ready > 0 || self.context.is_busy() {
                load = Some((load.map_or(now, |(since, _)| since), now));
            }
            events.set_concurrency(match load {
                Some((since, _)) if !events.is_filling() => usize::from(now - since >= EVENT_PATIENCE),
                _ => IDLE_EVENTS,
            });
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends the last events, for at most `limit`; returns the number of unsent lines.
    pub(super) async fn flush_events(&self, limit: Duration) -> usize {
        self.context.events().set_concurrency(IDLE_EVENTS);
        self.context.events().flush(limit).await
    }

    /// Works on keys until [`Engine::shut_down`].
    pub(super) async fn work(self: Arc<Self>) {
        let handler = self.clone();
        work(&self.queue, self.tasks, CancellationToken::new(), move |work| handler.clone().step(work)).await;
    }

    pub(super) fn shut_down(&self) {
        self.queue.shut_down();
    }

    pub(super) fn checks(self: &Arc<Self>, leases: Option<LeaseHealth>) -> Checks {
        let checks = Checks::new();
        for watch in self.watches.iter().filter(|watch| !watch.optional) {
            let health = watch.health.clone();
            checks.add(format!("watch of {}", watch.name), move || match health.problem() {
                Some(problem) => Err(problem),
                None if health.synced() => Ok(String::new()),
                None => Err("not listed yet".to_owned()),
            });
        }
        let engine = self.clone();
        let place = match self.shards.options.journal {
            JournalKind::Memory => "journal (in memory)".to_owned(),
            kind => format!("journal ({})", kind.resource().kind),
        };
        checks.add(place, move || engine.shards.problem().map_or(Ok(String::new()), Err));
        if let Some(leases) = leases {
            checks.add("leases", move || match leases.problem() {
                Some(problem) => Err(problem),
                None => Ok(leases.waiting_notice().unwrap_or_default()),
            });
        }
        let engine = self.clone();
        checks.add_probe("probe", move || {
            let engine = engine.clone();
            async move { engine.reconciler.probe().await }.boxed()
        });
        checks
    }

    pub(super) fn registry(self: &Arc<Self>, leases: Option<&LeaseHealth>) -> Registry {
        let mut registry = Registry::default();
        self.reconciler.register(&mut registry);
        let engine = self.clone();
        let journal = move || engine.shards.journal_stats();
        let mut parts = RuntimeMetrics::new()
            .queue(self.shards.options.queue, &self.queue)
            .events(self.context.events())
            .journal(journal);
        for watch in &self.watches {
            parts = parts.watch(watch.name, &watch.health);
        }
        if let Some(leases) = leases {
            parts = parts.leases(leases);
        }
        parts.register(registry.sub_registry_with_prefix("provisioner"));
        registry
    }

    /// Runs one step of one key. If the step is cut off, another replica may already own the key.
    async fn step(self: Arc<Self>, work: Work<KeyOf<R>>) {
        let Some(ownership) = self.shards.ownership(work.key()) else { return work.finish(Next::Done) };
        let (over, valid, safeguards) =
            (ownership.journal.over(), ownership.validity(), self.shards.options.safeguards);
        let report = tokio::select! {
            biased;
            () = over.cancelled(), if safeguards.fencing => None,
            // After a suspension of this process, the term may have ended before any task has noticed.
            () = poll_fn(|_| if valid() { Poll::Pending } else { Poll::Ready(()) }), if safeguards.fencing => None,
            report = self.attempt(&work, &ownership) => Some(report),
        };
        let Some((next, events)) = report else { return work.finish(Next::Done) };
        work.finish(next);
        events.into_iter().for_each(|event| self.context.events().record(event));
    }

    /// Gathers facts, decides, acts, reports, and writes the status. Returns when the key runs again, and the events.
    async fn attempt(&self, work: &Work<KeyOf<R>>, ownership: &Ownership) -> (Next, Vec<Event>) {
        let facts: FactsOf<R> = {
            let cache = self.cache();
            work.begin(cache.inputs(work.key()));
            cache.facts(work.key())
        };
        let decision = self.reconciler.decide(&facts);
        tracing::debug!(key = %work.key(), ?decision, attempt = work.attempt(), "decided");
        let step = Step { context: &self.context, work, ownership, safeguards: self.shards.options.safeguards };
        let started = Instant::now();
        let outcome = self.reconciler.act(decision, &facts, &step).await;
        // A key without an unfinished attempt needs no entry. Hold the cache's lock, because a concurrent adoption may
        // add an attempt.
        let name = work.key().to_string();
        if ownership.journal.contains(&name) {
            let cache = self.cache();
            if !cache.unfinished(work.key()) {
                ownership.journal.remove(&name);
            }
        }
        let Report { next, event, status } = self.reconciler.report(outcome, &facts, work, started.elapsed());
        let written = match status {
            Some(status) => self.reconciler.write_status(status, &step).await,
            None => Ok(()),
        };
        let Err(failure) = written else { return (next, event.into_iter().collect()) };
        let failed = self.reconciler.report(failure, &facts, work, started.elapsed());
        (failed.next, event.into_iter().chain(failed.event).collect())
    }
}
