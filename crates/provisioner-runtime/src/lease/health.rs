//! The state of the Leases, for probes, metrics and users.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use tracing::{info, warn};

/// The state of a replica's Leases; clones share the state.
#[derive(Clone, Debug, Default)]
pub struct LeaseHealth {
    state: Arc<Mutex<State>>,
}

/// A shard that this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldShard {
    /// The number of the shard, from 0.
    pub shard: u32,
    /// The time when the term began.
    pub since: Instant,
    /// `leaseTransitions` of the Lease.
    pub transitions: u32,
}

#[derive(Debug, Default)]
struct State {
    held: BTreeMap<u32, HeldShard>,
    members: usize,
    begun: u64,
    lost: u64,
    problems: BTreeMap<String, String>,
    notices: BTreeMap<String, String>,
}

impl LeaseHealth {
    /// Returns the shards that this replica holds, in order.
    pub fn held(&self) -> Vec<HeldShard> {
        crate::sync::lock(&self.state).held.values().copied().collect()
    }

    /// Returns the number of replicas that share the shards, including this one. With one shard, the others are
    /// unknown.
    pub fn members(&self) -> usize {
        crate::sync::lock(&self.state).members.max(1)
    }

    /// Returns the number of terms begun since the start.
    pub fn begun(&self) -> u64 {
        crate::sync::lock(&self.state).begun
    }

    /// Returns the number of terms lost since the start.
    pub fn lost_terms(&self) -> u64 {
        crate::sync::lock(&self.state).lost
    }

    /// Describes the current problems, for an administrator. Suitable for a readiness probe.
    pub fn problem(&self) -> Option<String> {
        joined(&crate::sync::lock(&self.state).problems)
    }

    /// Describes what this replica waits for without a problem, for an administrator: usually a fleet with another
    /// number of shards that is still alive. Not suitable for a readiness probe: a rolling update ends old replicas
    /// only when new ones are ready.
    pub fn waiting_notice(&self) -> Option<String> {
        joined(&crate::sync::lock(&self.state).notices)
    }

    pub(super) fn set_members(&self, members: usize) {
        crate::sync::lock(&self.state).members = members;
    }

    pub(super) fn record_begin(&self, held: HeldShard) {
        info!(shard = held.shard, transitions = held.transitions, "the Lease is held");
        let mut state = crate::sync::lock(&self.state);
        state.begun += 1;
        state.held.insert(held.shard, held);
    }

    pub(super) fn record_end(&self, shard: u32) {
        if crate::sync::lock(&self.state).held.remove(&shard).is_some() {
            info!(shard, "the Lease is no longer held");
        }
    }

    pub(super) fn record_loss(&self, shard: u32, why: &str) {
        crate::sync::lock(&self.state).lost += 1;
        warn!(shard, "the Lease is lost: {why}");
    }

    /// Records that `part` does not work, and the reason.
    pub(super) fn set_problem(&self, part: &str, problem: String) {
        let mut state = crate::sync::lock(&self.state);
        if state.problems.get(part) != Some(&problem) {
            warn!("{part}: {problem}");
            state.problems.insert(part.to_owned(), problem);
        }
    }

    pub(super) fn clear_problem(&self, part: &str) {
        if crate::sync::lock(&self.state).problems.remove(part).is_some() {
            info!("{part}: works again");
        }
    }

    /// Records what `part` waits for.
    pub(super) fn set_notice(&self, part: &str, notice: Option<String>) {
        let mut state = crate::sync::lock(&self.state);
        if state.notices.get(part) == notice.as_ref() {
            return;
        }
        match notice {
            Some(notice) => {
                info!("{part}: {notice}");
                state.notices.insert(part.to_owned(), notice);
            }
            None => {
                state.notices.remove(part);
            }
        }
    }
}

fn joined(texts: &BTreeMap<String, String>) -> Option<String> {
    let lines: Vec<String> = texts.iter().map(|(part, text)| format!("{part}: {text}")).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}
