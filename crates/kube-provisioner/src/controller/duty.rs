//! Which keys this process may work on, and the journal behind each: from getting a shard to giving it up.

mod peers;
mod plan;
mod serve;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use provisioner_runtime::journal::{Journal, JournalStats};
use provisioner_runtime::lease::Term;
use provisioner_runtime::surroundings::Surroundings;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use self::peers::Peers;
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
    pub(crate) journal: Journal,
    pub(crate) peers: Arc<Peers>,
    valid: Arc<dyn Fn() -> bool + Send + Sync>,
    _working: TaskTrackerToken,
}

impl Duty {
    /// Says whether nobody else can have taken the shard, as far as the clock tells. Together with the journal, which
    /// believes no clock, it keeps a process that stood still from going on.
    pub(crate) fn validity(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (journal, valid, silence) = (self.journal.clone(), self.valid.clone(), self.peers.silence());
        move || {
            let heard = silence.is_none_or(|silence| journal.is_confirmed(silence));
            heard && !journal.over().is_cancelled() && valid()
        }
    }
}

struct Held {
    journal: Journal,
    peers: Arc<Peers>,
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

impl Duties {
    pub(crate) fn new(options: &Options, namespace: String, instance: String, surroundings: Surroundings) -> Self {
        let plan = Plan::new(options, namespace, instance, surroundings);
        Self { plan, held: Mutex::default(), problems: Mutex::default(), past: Mutex::default() }
    }

    /// The right to work on a key, if this process has it now.
    pub(crate) fn of(&self, key: &Key) -> Option<Duty> {
        let held = self.held();
        let Held { journal, peers, valid, working } = held.get(&self.shard_of(key))?;
        (!working.is_closed()).then(|| Duty {
            journal: journal.clone(),
            peers: peers.clone(),
            valid: valid.clone(),
            _working: working.token(),
        })
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
