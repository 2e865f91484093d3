//! The record of a lock, and how long somebody else's record holds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Unit;
use provisioner_runtime::environment::Environment;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::Outcome;

/// How locks are kept by this process.
pub(crate) struct Locks {
    pub(crate) identity: String,
    pub(crate) duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) environment: Environment,
    observed: Mutex<HashMap<Key, ObservedRecord>>,
}

/// Another process's record, and when we first saw it. The times in the record are not used: clocks differ.
#[derive(Clone)]
struct ObservedRecord {
    record: Box<str>,
    since: Instant,
}

/// What the annotation holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct LockRecord {
    #[serde(default)]
    pub(super) holder_identity: String,
    #[serde(default)]
    lease_duration_seconds: u64,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    renew_time: Option<String>,
    #[serde(default)]
    leader_transitions: u64,
}

impl Locks {
    pub(crate) fn new(options: &crate::Options, identity: &str, environment: Environment) -> Self {
        Self {
            identity: identity.to_owned(),
            duration: options.lease_duration,
            renew_deadline: options.lease_renew_deadline,
            retry_period: options.lease_retry_period,
            environment,
            observed: Mutex::default(),
        }
    }

    /// How long another process's lock may still be valid. `None` if no other process holds it.
    fn held_for(&self, key: &Key, text: &str, record: &LockRecord) -> Option<Duration> {
        let mut observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        if record.holder_identity.is_empty() || record.holder_identity == self.identity {
            observed.remove(key);
            return None;
        }
        let now = Instant::now();
        // Drops what was observed more than an hour ago.
        observed.retain(|_, observed| now.duration_since(observed.since) < Duration::from_secs(3600));
        let observed = observed
            .entry(key.clone())
            .and_modify(|observed| {
                if *observed.record != *text {
                    *observed = ObservedRecord { record: text.into(), since: now };
                }
            })
            .or_insert_with(|| ObservedRecord { record: text.into(), since: now });
        let ends = observed.since + self.duration;
        (ends > now).then(|| ends - now)
    }

    /// The current record, if no other process holds the lock.
    pub(in super::super) fn free(&self, key: &Key, record: Option<&str>) -> Result<LockRecord, Outcome> {
        let text = record.unwrap_or_default();
        // A record that cannot be read has no holder.
        let record = serde_json::from_str(text).unwrap_or_else(|_| LockRecord::nobody());
        match self.held_for(key, text, &record) {
            Some(remaining) => {
                Err(Outcome::Locked { by: record.holder_identity, look_again: remaining.min(self.retry_period) })
            }
            None => Ok(record),
        }
    }

    /// The record that takes or renews the lock.
    pub(super) fn next(&self, before: &LockRecord) -> LockRecord {
        let now = self.environment.now();
        // To the second, as Go's records are.
        let now = now.round(Unit::Second).unwrap_or(now).to_string();
        let mine = before.holder_identity == self.identity;
        LockRecord {
            holder_identity: self.identity.clone(),
            lease_duration_seconds: self.duration.as_secs().max(1),
            acquire_time: before.acquire_time.clone().filter(|_| mine).or_else(|| Some(now.clone())),
            renew_time: Some(now),
            leader_transitions: before.leader_transitions + u64::from(!mine && !before.holder_identity.is_empty()),
        }
    }
}

impl LockRecord {
    pub(super) fn to_text(&self) -> String {
        // Texts and numbers can be written as JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn nobody() -> Self {
        Self {
            holder_identity: String::new(),
            lease_duration_seconds: 0,
            acquire_time: None,
            renew_time: None,
            leader_transitions: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use tokio::time::sleep;

    use super::*;

    fn locks() -> Locks {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Locks::new(&crate::Options::new("example.com/p"), "me", Environment::simulated(1, epoch))
    }

    const THEIRS: &str = r#"{"holderIdentity":"they","leaseDurationSeconds":15,"acquireTime":"2020-01-01T00:00:00Z","renewTime":"2020-01-01T00:00:00Z","leaderTransitions":3}"#;

    #[tokio::test(start_paused = true)]
    async fn the_record_is_that_of_the_first_library() {
        let first = locks().next(&LockRecord::nobody());
        let text = r#"{"holderIdentity":"me","leaseDurationSeconds":15,"acquireTime":"2026-01-01T00:00:00Z","renewTime":"2026-01-01T00:00:00Z","leaderTransitions":0}"#;
        assert_eq!(serde_json::to_string(&first).unwrap(), text);
        let taken = locks().next(&serde_json::from_str(THEIRS).unwrap());
        assert_eq!((taken.leader_transitions, &*taken.holder_identity), (4, "me"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_runs_out_when_it_was_not_seen_to_change_for_its_duration() {
        let (locks, key) = (locks(), Key::of_claim("u"));
        let record: LockRecord = serde_json::from_str(THEIRS).unwrap();
        assert_eq!(locks.held_for(&key, THEIRS, &record), Some(Duration::from_secs(15)));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(locks.held_for(&key, THEIRS, &record), Some(Duration::from_secs(5)));
        let renewed = THEIRS.replace("renewTime\":\"2020", "renewTime\":\"2021");
        assert_eq!(locks.held_for(&key, &renewed, &record), Some(Duration::from_secs(15)));
        sleep(Duration::from_secs(15)).await;
        assert_eq!(locks.held_for(&key, &renewed, &record), None);
    }
}
