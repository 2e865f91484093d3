//! A term: the time in which one replica holds one shard.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time in which a replica holds a shard, from acquiring its Lease to releasing it. Clones refer to the same term.
#[derive(Clone)]
pub struct Term {
    /// The number of the shard, from 0.
    pub shard: u32,
    /// `leaseTransitions` of the Lease. Between two terms of one process with the same number, no other process held
    /// the shard, nor any shard of a fleet with another number of shards.
    pub transitions: u32,
    /// Cancelled when the work should finish: the replica stops, or another one gets this shard. The Lease is renewed
    /// until the work has finished.
    pub leave: CancellationToken,
    /// Cancelled when this process no longer holds the shard: stop at once. Also cancelled after the work has returned.
    pub lost: CancellationToken,
    valid_until: Arc<Mutex<Instant>>,
}

impl Term {
    pub(super) fn new(shard: u32, transitions: u32, leave: CancellationToken, valid_until: Instant) -> Self {
        let valid_until = Arc::new(Mutex::new(valid_until));
        Self { shard, transitions, leave, lost: CancellationToken::new(), valid_until }
    }

    /// Creates a term that needs no election and lasts until `stop` is cancelled.
    pub(crate) fn without_election(stop: &CancellationToken) -> Self {
        /// Longer than any process runs.
        const ALWAYS: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        Self::new(0, 0, stop.clone(), Instant::now() + ALWAYS)
    }

    /// Returns true if no other process can hold the shard now: its Lease was renewed within the renew deadline, and
    /// the term is not lost.
    ///
    /// This is based on the monotonic clock, which may stop while the machine sleeps. Operations that must never happen
    /// twice need their own precondition.
    pub fn is_valid(&self) -> bool {
        !self.lost.is_cancelled() && Instant::now() < self.valid_until()
    }

    pub(super) fn valid_until(&self) -> Instant {
        *crate::sync::lock(&self.valid_until)
    }

    /// Extends the term after a renewal of the Lease. Returns `false` if the response came too late: others may have
    /// found the Lease expired, so the term stays invalid.
    pub(super) fn extend(&self, until: Instant) -> bool {
        let in_time = self.is_valid();
        if in_time {
            *crate::sync::lock(&self.valid_until) = until;
        }
        in_time
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, transitions, .. } = self;
        f.debug_struct("Term").field("shard", shard).field("transitions", transitions).finish_non_exhaustive()
    }
}
