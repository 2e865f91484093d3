//! Many runs, on all cores.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::judge::{Invariant, Violation};
use crate::run::{Manner, run_seed};

/// Which seeds are run, and how.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seeds.
    pub seeds: Range<u64>,
    /// How many at a time.
    pub threads: usize,
    /// No run begins after so long.
    pub limit: Option<Duration>,
    /// Whether it continues after a failure.
    pub keep_going: bool,
    /// How each is run.
    pub manner: Manner,
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub seed: u64,
    /// What was seen.
    pub violation: Violation,
}

/// What came of a campaign.
#[derive(Clone, Debug)]
pub struct Tally {
    /// How many seeds were run.
    pub runs: u64,
    /// How long it took.
    pub took: Duration,
    /// How much processor time it took.
    pub processor: Duration,
    /// How much time passed in the simulations.
    pub simulated: Duration,
    /// The failures in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Stands for the traces of all seeds.
    pub digest: u64,
}

/// What a campaign tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// How far it is, every few seconds.
    Progress(Progress),
    /// A seed has failed.
    Failure(&'a Failure),
}

/// How far a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// How many seeds were run.
    pub runs: u64,
    /// How many of them failed.
    pub failures: usize,
    /// Since the start.
    pub took: Duration,
}

impl Campaign {
    /// Runs the seeds.
    pub fn run(&self, tell: impl Fn(News<'_>) + Sync) -> Tally {
        const EVERY: Duration = Duration::from_secs(5);
        let (start, processor) = (Instant::now(), processor_time());
        let (next, runs) = (AtomicU64::new(self.seeds.start), AtomicU64::new(0));
        let (micros, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let digest = AtomicU64::new(0);
        let failures = Mutex::new(BTreeMap::new());
        let told = Mutex::new(start);
        let work = || {
            while !stop.load(Ordering::Relaxed) && self.limit.is_none_or(|limit| start.elapsed() < limit) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end {
                    return;
                }
                let outcome = run_seed(seed, &self.manner);
                runs.fetch_add(1, Ordering::Relaxed);
                micros.fetch_add(outcome.simulated.as_micros() as u64, Ordering::Relaxed);
                digest.fetch_xor(digest_of(seed, &outcome.trace), Ordering::Relaxed);
                if let Some(violation) = outcome.violation {
                    let failure = Failure { seed, violation };
                    tell(News::Failure(&failure));
                    failures.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, failure);
                    if !self.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if told.elapsed() > EVERY {
                    *told = Instant::now();
                    let failures = failures.lock().unwrap_or_else(PoisonError::into_inner).len();
                    let runs = runs.load(Ordering::Relaxed);
                    tell(News::Progress(Progress { runs, failures, took: start.elapsed() }));
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(work);
            }
        });
        let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        Tally {
            runs: runs.into_inner(),
            took: start.elapsed(),
            processor: processor_time().saturating_sub(processor),
            simulated: Duration::from_micros(micros.into_inner()),
            failures: failures.into_values().collect(),
            digest: digest.into_inner(),
        }
    }
}

/// The same for the same trace, as long as the standard library's hasher is.
fn digest_of(seed: u64, trace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, trace).hash(&mut hasher);
    hasher.finish()
}

impl Tally {
    /// How often each invariant was broken.
    pub fn counts(&self) -> BTreeMap<Invariant, usize> {
        let mut counts = BTreeMap::new();
        for failure in &self.failures {
            *counts.entry(failure.violation.invariant).or_default() += 1;
        }
        counts
    }
}

/// What this process has had of the processors.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
