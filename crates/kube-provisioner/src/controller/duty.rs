//! Which keys this process may work on, and the journal behind each: from getting a shard to giving it up.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use provisioner_runtime::backoff::Backoff;
use provisioner_runtime::journal::{Entry, Journal, JournalOptions, JournalStats, Other, Writer, adopt};
use provisioner_runtime::lease::{Term, lease_name};
use provisioner_runtime::surroundings::Surroundings;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::engine::Engine;
use super::entry;
use super::key::Key;
use crate::options::{Coordination, Options};

/// Between attempts to take a journal over.
const RETRIES: Backoff = Backoff::exponential(Duration::from_millis(250), Duration::from_secs(15));
/// How long the last write of a journal may take when a shard is given up.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// The shards that this process holds.
pub(crate) struct Duties {
    plan: Plan,
    held: Mutex<BTreeMap<u32, Held>>,
    problems: Mutex<BTreeMap<u32, String>>,
    /// The costs of journals that were given up.
    past: Mutex<JournalStats>,
}

/// The right to work on one key. Its shard is not given up before it is dropped.
pub(crate) struct Duty {
    pub(crate) journal: Journal,
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
    _working: TaskTrackerToken,
}

impl Duty {
    /// Whether nobody else can have taken the shard, as far as the clock tells. Together with the journal, which
    /// believes no clock, it keeps a process that stood still from going on.
    pub(crate) fn is_valid(&self) -> bool {
        !self.journal.over().is_cancelled() && (self.valid)()
    }
}

struct Held {
    journal: Journal,
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
    working: TaskTracker,
}

/// One holding of one shard.
pub(crate) struct Turn {
    shard: u32,
    leave: CancellationToken,
    lost: CancellationToken,
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Turn {
    /// Without election: until this process stops.
    pub(crate) fn alone(stop: &CancellationToken) -> Self {
        Self { shard: 0, leave: stop.clone(), lost: CancellationToken::new(), valid: Arc::new(|| true) }
    }
}

impl From<Term> for Turn {
    fn from(term: Term) -> Self {
        let (shard, leave, lost) = (term.shard, term.leave.clone(), term.lost.clone());
        Self { shard, leave, lost, valid: Arc::new(move || term.is_valid()) }
    }
}

/// How keys are spread, and where the journals are.
struct Plan {
    provisioner: String,
    namespace: String,
    coordination: Coordination,
    shards: u32,
    node: Option<String>,
    instance: String,
    grace: Duration,
    lease_duration: Duration,
    surroundings: Surroundings,
}

impl Plan {
    fn journal(&self, shard: u32) -> JournalOptions {
        let (name, layout) = match (self.coordination, &self.node) {
            // Every replica has a journal of its own.
            (Coordination::PerClaim, _) => (format!("journal-{}", self.instance), "per-claim".to_owned()),
            (Coordination::PerNode, Some(node)) => (format!("journal-node-{node}"), "node".to_owned()),
            _ if self.shards > 1 => (format!("journal-{shard}-of-{}", self.shards), self.shards.to_string()),
            _ => ("journal".to_owned(), "1".to_owned()),
        };
        JournalOptions {
            namespace: self.namespace.clone(),
            name: lease_name(&format!("{}-{name}", self.provisioner)),
            group: lease_name(&self.provisioner),
            layout,
            holder: self.instance.clone(),
            beat: (self.coordination == Coordination::PerClaim).then(|| self.lease_duration / 3),
            surroundings: self.surroundings,
        }
    }

    fn shard_of(&self, key: &str) -> u32 {
        // FNV-1a: all replicas must agree, whatever they were compiled with.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        // The upper half, where the bits are mixed best.
        ((hash >> 32) % u64::from(self.shards)) as u32
    }

    /// Whether an entry that nobody finishes any more is this shard's.
    fn is_mine(&self, shard: u32, entry: &Entry) -> bool {
        match &self.node {
            Some(own) => entry::node(entry).as_ref() == Some(own),
            // Whoever comes first.
            None if self.coordination == Coordination::PerClaim => true,
            None => self.shard_of(&entry.key) == shard,
        }
    }
}

impl Duties {
    pub(crate) fn new(options: &Options, namespace: String, instance: String, surroundings: Surroundings) -> Self {
        let per_node = options.coordination == Coordination::PerNode;
        let plan = Plan {
            provisioner: options.provisioner_name.clone(),
            namespace,
            coordination: options.coordination,
            shards: if options.coordination == Coordination::Lease { options.shards } else { 1 },
            node: options.node_name.clone().filter(|_| per_node),
            instance,
            grace: options.grace_period,
            lease_duration: options.lease_duration,
            surroundings,
        };
        Self { plan, held: Mutex::default(), problems: Mutex::default(), past: Mutex::default() }
    }

    /// The right to work on a key, if this process has it now.
    pub(crate) fn of(&self, key: &Key) -> Option<Duty> {
        let held = self.held();
        let Held { journal, valid, working } = held.get(&self.shard_of(key))?;
        let duty = || Duty { journal: journal.clone(), valid: valid.clone(), _working: working.token() };
        (!working.is_closed()).then(duty)
    }

    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.held().contains_key(&self.shard_of(key))
    }

    /// What keeps this process from working, in words for a person.
    pub(crate) fn problem(&self) -> Option<String> {
        let journals = self.held().values().filter_map(|held| held.journal.problem()).collect::<Vec<_>>();
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let problems: Vec<String> = problems.values().cloned().chain(journals).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// What the journals hold, and what they and those before them have cost.
    pub(crate) fn journal_stats(&self) -> JournalStats {
        let past = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        self.held().values().fold(past, |sum, held| sum + held.journal.stats())
    }

    fn shard_of(&self, key: &Key) -> u32 {
        match self.plan.shards {
            1 => 0,
            _ => self.plan.shard_of(&key.to_string()),
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u32, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all work on a shard; returns what is still to unwind.
    fn remove(&self, shard: u32) -> Option<TaskTracker> {
        let Held { journal, working, .. } = self.held().remove(&shard)?;
        working.close();
        journal.close();
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        *past = *past + JournalStats { entries: 0, bytes: 0, ..journal.stats() };
        Some(working)
    }

    fn set_problem(&self, shard: u32, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(shard, problem),
            None => problems.remove(&shard),
        };
    }
}

/// Works on a shard until the turn ends. Returns who took the journal over, if somebody did.
pub(crate) async fn serve(engine: Arc<Engine>, turn: Turn) -> Option<String> {
    let place = Place { engine: &engine, shard: turn.shard };
    // What was remembered of an earlier turn has been somebody else's since.
    place.forget();
    let taken = tokio::select! {
        biased;
        () = turn.lost.cancelled() => return None,
        () = turn.leave.cancelled() => return None,
        taken = place.take_over(&turn) => taken,
    };
    let (journal, writer, entries) = taken;
    let over = journal.over().clone();
    let ended = tokio::select! {
        biased;
        () = turn.lost.cancelled() => None,
        by = writer.run() => Some(by),
        () = place.work(&turn, &journal, entries) => None,
    };
    over.cancel();
    place.give_up(&journal).await;
    ended
}

/// Since when journals are as they are.
#[derive(Default)]
struct Vigil(HashMap<String, (String, Instant)>);

impl Vigil {
    fn is_silent(&mut self, other: Other<'_>, patience: Duration) -> bool {
        let now = Instant::now();
        let (version, since) = self.0.entry(other.name.to_owned()).or_insert_with(|| (other.version.to_owned(), now));
        if version != other.version {
            (*version, *since) = (other.version.to_owned(), now);
        }
        now.duration_since(*since) >= patience
    }
}

/// A shard of this process. Dropping it ends all work on it at once.
struct Place<'a> {
    engine: &'a Engine,
    shard: u32,
}

impl Place<'_> {
    async fn take_over(&self, turn: &Turn) -> (Journal, Writer, Vec<Entry>) {
        let duties = &self.engine.duties;
        let options = duties.plan.journal(self.shard);
        let place = format!("ConfigMap {}/{}", options.namespace, options.name);
        let mut attempt = 0;
        loop {
            // Without a Lease nobody knows who deleted it, a person or the replica that went on with what was in it.
            let (valid, leased) = (turn.valid.clone(), options.beat.is_none());
            let still_ours = move || leased && valid();
            let taken = Journal::take_over(self.engine.client(), options.clone(), still_ours).await;
            let error = match taken {
                Ok(taken) => {
                    duties.set_problem(self.shard, None);
                    return taken;
                }
                Err(error) => error,
            };
            attempt += 1;
            let problem = format!("the journal ({place}) cannot be taken over: {error}");
            tracing::warn!("{problem}");
            self.engine.held_up(|key| self.is_here(key), &problem);
            duties.set_problem(self.shard, Some(problem));
            let chance = duties.plan.surroundings.number(&format!("take over {attempt}"));
            sleep(RETRIES.delay(attempt, chance as f64 / u64::MAX as f64)).await;
        }
    }

    /// Everything between taking the journal over and having nothing in flight any more.
    async fn work(&self, turn: &Turn, journal: &Journal, mut entries: Vec<Entry>) {
        let mut watch = Vigil::default();
        entries.extend(self.adopt_abandoned(journal, &mut watch).await);
        let working = TaskTracker::new();
        self.engine.begin(
            entries,
            journal,
            |key| self.is_here(key),
            || {
                let held = Held { journal: journal.clone(), valid: turn.valid.clone(), working: working.clone() };
                self.engine.duties.held().insert(self.shard, held);
            },
        );
        tokio::select! {
            biased;
            () = turn.leave.cancelled() => {}
            () = self.look_after_the_dead(journal, &mut watch) => {}
        }
        working.close();
        let grace = self.engine.duties.plan.grace;
        if timeout(grace, working.wait()).await.is_err() {
            tracing::warn!("work in flight did not end within {} s and is left to the next replica", grace.as_secs());
        }
        // What was removed last need not be looked at by the next holder.
        let _ = timeout(LAST_WRITE, journal.flush()).await;
    }

    /// Where every replica has a journal of its own, those of dead ones are finished by the others.
    async fn look_after_the_dead(&self, journal: &Journal, vigil: &mut Vigil) {
        let Some(beat) = self.engine.duties.plan.journal(self.shard).beat else { return std::future::pending().await };
        loop {
            sleep(beat).await;
            let entries = self.adopt_abandoned(journal, vigil).await;
            self.engine.begin(entries, journal, |_| false, || {});
        }
    }

    /// Journals of another number of shards, or of another way to share the work, have no holder any more. Neither have
    /// those that do not beat.
    async fn adopt_abandoned(&self, journal: &Journal, vigil: &mut Vigil) -> Vec<Entry> {
        let plan = &self.engine.duties.plan;
        let options = plan.journal(self.shard);
        let patience = plan.lease_duration;
        let mut abandoned = |other: Other<'_>| {
            other.layout != options.layout || (options.beat.is_some() && vigil.is_silent(other, patience))
        };
        let mine = |entry: &Entry| plan.is_mine(self.shard, entry);
        let mut attempt = 0;
        loop {
            match adopt(&self.engine.client(), &options, journal, &mut abandoned, mine).await {
                Ok(adopted) => return adopted,
                Err(error) => {
                    attempt += 1;
                    tracing::warn!("abandoned journals cannot be looked at: {error}");
                    sleep(RETRIES.delay(attempt, 0.0)).await;
                }
            }
        }
    }

    async fn give_up(&self, journal: &Journal) {
        journal.close();
        if let Some(working) = self.engine.duties.remove(self.shard) {
            // They see that the journal is over as soon as they run.
            working.wait().await;
        }
        self.forget();
    }

    fn forget(&self) {
        self.engine.forget(|key| self.is_here(key));
    }

    fn is_here(&self, key: &Key) -> bool {
        self.engine.duties.shard_of(key) == self.shard
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.engine.duties.remove(self.shard);
        self.engine.duties.set_problem(self.shard, None);
    }
}

/// The right to use the API server's client from here, so that journals and work share connections.
impl Engine {
    fn client(&self) -> Client {
        self.actor.client.clone()
    }
}
