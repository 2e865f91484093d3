//! Which keys this process may work on, and the journal behind each: from getting a shard to giving it up.

mod adopt;
mod attempts;
mod plan;
mod serve;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use provisioner_runtime::journal::{Entry, Journal, JournalError, JournalStats};
use provisioner_runtime::lease::Term;
use provisioner_runtime::surroundings::Surroundings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::plan::Plan;
pub(crate) use self::serve::serve;
use super::key::Key;
use crate::options::Options;

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
    record: Record,
    valid: Valid,
    _working: TaskTrackerToken,
}

/// Says whether nobody else can have taken a shard, as far as the clock tells.
type Valid = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where it is recorded what was begun.
#[derive(Clone)]
enum Record {
    /// In the shard's journal, which fences former holders too.
    Journal(Journal),
    /// On each claim, by whoever has its lock.
    Claims,
}

impl Duty {
    /// Says whether nobody else can have taken the shard. Together with the journal, which believes no clock, it keeps a
    /// process that stood still from going on.
    pub(crate) fn validity(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (over, valid) = (self.over(), self.valid.clone());
        move || !over.is_cancelled() && valid()
    }

    /// Records what is about to begin; without it nothing may begin.
    pub(crate) async fn record(&self, entry: Entry) -> Result<(), JournalError> {
        match &self.record {
            Record::Journal(journal) => journal.record(entry).await,
            Record::Claims => Ok(()),
        }
    }

    /// Makes sure that this process may still begin something, and that removals are stored.
    pub(crate) async fn fence(&self) -> Result<(), JournalError> {
        match &self.record {
            Record::Journal(journal) => journal.fence().await,
            Record::Claims => Ok(()),
        }
    }

    /// Makes sure that this process could begin something at most so long ago.
    pub(crate) async fn fence_since(&self, age: Duration) -> Result<(), JournalError> {
        match &self.record {
            Record::Journal(journal) => journal.fence_since(age).await,
            Record::Claims => Ok(()),
        }
    }

    /// The work on this volume has ended.
    pub(crate) fn remove(&self, volume: &str) {
        if let Record::Journal(journal) = &self.record {
            journal.remove(volume);
        }
    }

    /// Whether the journal has an entry for this volume.
    pub(crate) fn contains(&self, volume: &str) -> bool {
        matches!(&self.record, Record::Journal(journal) if journal.contains(volume))
    }

    /// Cancelled when somebody else goes on with all of this.
    pub(crate) fn over(&self) -> CancellationToken {
        match &self.record {
            Record::Journal(journal) => journal.over().clone(),
            Record::Claims => CancellationToken::new(),
        }
    }
}

struct Held {
    record: Record,
    valid: Valid,
    working: TaskTracker,
}

impl Held {
    fn journal(&self) -> Option<&Journal> {
        match &self.record {
            Record::Journal(journal) => Some(journal),
            Record::Claims => None,
        }
    }
}

/// One holding of one shard.
pub(crate) struct Turn {
    shard: u32,
    leave: CancellationToken,
    lost: CancellationToken,
    valid: Valid,
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

impl Duties {
    pub(crate) fn new(options: &Options, namespace: String, instance: String, surroundings: Surroundings) -> Self {
        let plan = Plan::new(options, namespace, instance, surroundings);
        Self { plan, held: Mutex::default(), problems: Mutex::default(), past: Mutex::default() }
    }

    /// The right to work on a key, if this process has it now.
    pub(crate) fn of(&self, key: &Key) -> Option<Duty> {
        let held = self.held();
        let Held { record, valid, working } = held.get(&self.shard_of(key))?;
        (!working.is_closed()).then(|| Duty { record: record.clone(), valid: valid.clone(), _working: working.token() })
    }

    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.held().contains_key(&self.shard_of(key))
    }

    /// What keeps this process from working, in words for a person.
    pub(crate) fn problem(&self) -> Option<String> {
        let journals: Vec<String> = self.held().values().filter_map(|held| held.journal()?.problem()).collect();
        let problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        let problems: Vec<String> = problems.values().cloned().chain(journals).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// What the journals hold, and what they and those before them have cost.
    pub(crate) fn journal_stats(&self) -> JournalStats {
        let past = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        self.held().values().filter_map(Held::journal).fold(past, |sum, journal| sum + journal.stats())
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
        let held = self.held().remove(&shard)?;
        held.working.close();
        if let Some(journal) = held.journal() {
            journal.close();
            let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
            *past = *past + JournalStats { entries: 0, bytes: 0, ..journal.stats() };
        }
        Some(held.working)
    }

    /// The whole process is about to end.
    pub(crate) fn fail(&self, problem: String) {
        self.set_problem(u32::MAX, Some(problem));
    }

    fn set_problem(&self, shard: u32, problem: Option<String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match problem {
            Some(problem) => problems.insert(shard, problem),
            None => problems.remove(&shard),
        };
    }
}
