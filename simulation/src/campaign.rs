//! Campaigns: many runs, on all cores.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::judge::{Invariant, Violation};
use crate::run::{RunOptions, run_seed};

/// The seeds to run, and the options for them.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Number of seeds to run in parallel.
    pub threads: usize,
    /// Time after which no more runs start.
    pub limit: Option<Duration>,
    /// Continue after a failure.
    pub keep_going: bool,
    /// The options of each run.
    pub run_options: RunOptions,
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its number.
    pub seed: u64,
    /// The violation.
    pub violation: Violation,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Number of seeds run.
    pub runs: u64,
    /// Elapsed time.
    pub took: Duration,
    /// CPU time used.
    pub processor: Duration,
    /// Total simulated time.
    pub simulated: Duration,
    /// The failures, ordered by seed.
    pub failures: Vec<Failure>,
    /// Digest of the traces of all seeds.
    pub digest: u64,
}

/// News of a running campaign.
#[derive(Clone, Copy, Debug)]
pub enum CampaignEvent<'a> {
    /// The progress, every few seconds.
    Progress(Progress),
    /// A seed has failed.
    Failure(&'a Failure),
}

/// The progress of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of seeds run so far.
    pub runs: u64,
    /// Number of failed seeds.
    pub failures: usize,
    /// Time since the start.
    pub took: Duration,
}

impl Campaign {
    /// Runs the seeds.
    pub fn run(&self, report: impl Fn(CampaignEvent<'_>) + Sync) -> Tally {
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
                let outcome = run_seed(seed, &self.run_options);
                runs.fetch_add(1, Ordering::Relaxed);
                micros.fetch_add(outcome.simulated.as_micros() as u64, Ordering::Relaxed);
                digest.fetch_xor(digest_of(seed, &outcome.trace), Ordering::Relaxed);
                if let Some(violation) = outcome.violation {
                    let failure = Failure { seed, violation };
                    report(CampaignEvent::Failure(&failure));
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
                    report(CampaignEvent::Progress(Progress { runs, failures, took: start.elapsed() }));
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

/// Digest of a trace. It stays the same as long as the standard library's hasher does.
fn digest_of(seed: u64, trace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, trace).hash(&mut hasher);
    hasher.finish()
}

impl Tally {
    /// Number of violations of each invariant.
    pub fn counts(&self) -> BTreeMap<Invariant, usize> {
        let mut counts = BTreeMap::new();
        for failure in &self.failures {
            *counts.entry(failure.violation.invariant).or_default() += 1;
        }
        counts
    }
}

/// CPU time used by this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
