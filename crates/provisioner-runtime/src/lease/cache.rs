//! Observed state of the fleet's Leases, from the watch, from lists, and from the responses to this replica's own
//! writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use kube::ResourceExt;
use tokio::time::Instant;

use super::record::{self, Lease, Spec};
use crate::notify::{Follower, Notifier};

pub(super) struct LeaseCache {
    /// The duration of Leases that this replica holds.
    duration: Duration,
    state: Mutex<State>,
    changed: Notifier,
}

struct State {
    known: BTreeMap<String, ObservedLease>,
    /// True once all Leases of the fleet have been listed.
    listed: bool,
    /// The time when the watch last delivered something.
    progress: Instant,
    /// The version up to which the watch has delivered everything.
    delivered: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct ObservedLease {
    /// The object; `None` if it was deleted.
    pub(super) lease: Option<Lease>,
    /// The record; kept after the Lease is deleted.
    pub(super) spec: Spec,
    /// The number of shards that its holder runs with.
    shards: u32,
    member: bool,
    /// The time when this record was first observed.
    since: Instant,
    /// The time until which the Lease belongs to its holder if the record does not change.
    until: Instant,
    /// The greatest number of transitions ever observed in the Lease.
    pub(super) max_transitions: u32,
    version: Option<u64>,
}

impl ObservedLease {
    pub(super) fn is_held(&self, now: Instant) -> bool {
        !self.spec.holder().is_empty() && now < self.until
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

/// A Lease of a fleet with another number of shards.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    pub(super) name: String,
    pub(super) holder: String,
    pub(super) shards: u32,
}

impl LeaseCache {
    pub(super) fn new(duration: Duration) -> Self {
        let state = State { known: BTreeMap::new(), listed: false, progress: Instant::now(), delivered: None };
        Self { duration, state: Mutex::new(state), changed: Notifier::default() }
    }

    /// Returns a follower of all later changes.
    pub(super) fn follow(&self) -> Follower<'_> {
        self.changed.follow()
    }

    /// Records a Lease as the API server returned it.
    pub(super) fn observe(&self, lease: Lease) {
        self.observe_answer(lease, None);
    }

    /// Records a Lease that was read when this version was known. An older version shows that the server's data was
    /// restored from a backup.
    pub(super) fn observe_answer(&self, lease: Lease, known: Option<u64>) {
        if self.update(|state| state.observe(lease, self.duration, known)) {
            self.changed.notify();
        }
    }

    /// Records that a Lease no longer exists, as of `version` if that is known.
    pub(super) fn observe_deleted(&self, name: &str, version: Option<u64>) {
        if self.update(|state| state.observe_deleted(name, version)) {
            self.changed.notify();
        }
    }

    /// Records a list of all Leases with the fleet's label, as of `version`. It was requested when no version newer
    /// than `newest` was known.
    pub(super) fn observe_list(&self, fleet: &str, leases: Vec<Lease>, version: Option<u64>, newest: Option<u64>) {
        let changed = self.update(|state| {
            let listed: BTreeSet<String> = leases.iter().map(ResourceExt::name_any).collect();
            let has_label = |known: &ObservedLease| known.lease.as_ref().and_then(record::fleet_of) == Some(fleet);
            let missing: Vec<String> = state
                .known
                .iter()
                .filter(|(name, known)| has_label(known) && !listed.contains(*name))
                .map(|(name, _)| name.clone())
                .collect();
            let mut changed = !std::mem::replace(&mut state.listed, true);
            for name in missing {
                changed |= state.observe_deleted(&name, version);
            }
            for lease in leases {
                changed |= state.observe(lease, self.duration, newest);
            }
            changed
        });
        if changed {
            self.changed.notify();
        }
    }

    /// Records that the watch delivered something.
    pub(super) fn progressed(&self) {
        self.update(|state| state.progress = Instant::now());
    }

    /// Records that the watch has delivered everything up to this version.
    pub(super) fn delivered(&self, version: &str) {
        self.update(|state| state.delivered = version.parse().ok());
    }

    /// Returns true if the watch of the fleet's Leases has failed to deliver a known change.
    pub(super) fn has_undelivered(&self, fleet: &str) -> bool {
        self.update(|state| {
            let is_undelivered = |known: &ObservedLease| {
                known.version.zip(state.delivered).is_some_and(|(version, delivered)| version > delivered)
            };
            let is_watched = |known: &ObservedLease| known.lease.as_ref().and_then(record::fleet_of) == Some(fleet);
            state.known.values().any(|known| is_undelivered(known) && is_watched(known))
        })
    }

    /// Returns the time since the watch last delivered something.
    pub(super) fn silence(&self) -> Duration {
        self.update(|state| state.progress.elapsed())
    }

    pub(super) fn is_listed(&self) -> bool {
        self.update(|state| state.listed)
    }

    pub(super) fn known(&self, name: &str) -> Option<ObservedLease> {
        self.update(|state| state.known.get(name).cloned())
    }

    /// Returns the version of a Lease, deleted or not.
    pub(super) fn version(&self, name: &str) -> Option<u64> {
        self.update(|state| state.known.get(name)?.version)
    }

    /// Returns the newest version of all Leases.
    pub(super) fn newest(&self) -> Option<u64> {
        self.update(|state| state.known.values().filter_map(|known| known.version).max())
    }

    /// Returns the holder in a Lease's record, expired or not; `None` if the Lease does not exist.
    pub(super) fn holder_identity(&self, name: &str) -> Option<String> {
        self.update(|state| {
            let known = state.known.get(name).filter(|known| known.lease.is_some())?;
            Some(known.spec.holder().to_owned())
        })
    }

    /// Returns the holder of a Lease that has not expired.
    pub(super) fn holder(&self, name: &str, now: Instant) -> Option<String> {
        self.update(|state| {
            let known = state.known.get(name).filter(|known| known.is_held(now))?;
            Some(known.spec.holder().to_owned())
        })
    }

    /// Among the Leases that others hold with another number of shards, returns the one with the fewest shards.
    pub(super) fn rival(&self, me: &str, shards: u32, now: Instant) -> Option<Rival> {
        self.update(|state| {
            let rivals = state.known.iter().filter(|(_, known)| {
                !known.member && known.shards != shards && known.is_held(now) && known.spec.holder() != me
            });
            let (name, known) = rivals.min_by_key(|(_, known)| known.shards)?;
            Some(Rival { name: name.clone(), holder: known.spec.holder().to_owned(), shards: known.shards })
        })
    }

    /// Returns the live replicas with this number of shards.
    pub(super) fn members(&self, shards: u32, now: Instant) -> BTreeSet<String> {
        self.update(|state| {
            let alive = |known: &&ObservedLease| {
                known.member && known.shards == shards && known.lease.is_some() && known.is_held(now)
            };
            state.known.values().filter(alive).map(|known| known.spec.holder().to_owned()).collect()
        })
    }

    /// Returns Leases of members that expired at least this long ago. Forgets deleted ones.
    pub(super) fn expired_members(&self, now: Instant, age: Duration) -> Vec<Lease> {
        self.update(|state| {
            let expired = |known: &ObservedLease| known.member && known.until + age <= now;
            state.known.retain(|_, known| known.lease.is_some() || !expired(known));
            state.known.values().filter(|known| expired(known)).filter_map(|known| known.lease.clone()).collect()
        })
    }

    /// Returns when the next Lease expires if it is not renewed.
    pub(super) fn next_expiry(&self, now: Instant) -> Option<Instant> {
        self.update(|state| state.known.values().filter(|known| known.is_held(now)).map(ObservedLease::until).min())
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut crate::sync::lock(&self.state))
    }
}

impl State {
    fn observe(&mut self, lease: Lease, duration: Duration, asked_at: Option<u64>) -> bool {
        let (name, version) = (lease.name_any(), version_of(&lease));
        let spec = lease.spec.clone().unwrap_or_default();
        let before = self.known.get(&name);
        let is_old = |before: &ObservedLease| match (version, before.version) {
            // A Lease that was assumed to be deleted may exist after all.
            (Some(version), Some(than)) => {
                version < than && Some(than) > asked_at || version == than && before.lease.is_some()
            }
            _ => false,
        };
        if before.is_some_and(is_old) {
            return false;
        }
        let unchanged = before.filter(|before| before.spec == spec);
        let since = unchanged.map_or_else(Instant::now, |before| before.since);
        let known = ObservedLease {
            until: since + spec.duration(duration),
            shards: record::shards_of(&lease),
            member: record::is_member(&lease),
            max_transitions: before.map_or(0, |before| before.max_transitions).max(spec.transitions()),
            lease: Some(lease),
            spec,
            since,
            version,
        };
        self.known.insert(name, known);
        true
    }

    fn observe_deleted(&mut self, name: &str, version: Option<u64>) -> bool {
        let Some(known) = self.known.get_mut(name) else { return false };
        if known.lease.is_none() || version.zip(known.version).is_some_and(|(version, than)| version <= than) {
            return false;
        }
        known.lease = None;
        known.version = version.or(known.version);
        true
    }
}

/// Parses the resource version, which increases across all objects of a kind. A version that is not a number counts as
/// new.
pub(super) fn version_of(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "example.com-toy";

    fn lease(holder: &str, version: u64) -> Lease {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        });
        serde_json::from_value(lease).unwrap()
    }

    /// The server's data was restored from a backup: its versions start again.
    #[test]
    fn response_overrides_versions_known_before_its_request() {
        let cache = LeaseCache::new(Duration::from_secs(15));
        let holder = || cache.holder_identity(NAME).unwrap();
        cache.observe(lease("b", 50));
        cache.observe(lease("a", 40));
        cache.observe_answer(lease("a", 40), Some(49));
        assert_eq!(holder(), "b", "the watch was faster");
        cache.observe_answer(lease("a", 40), cache.version(NAME));
        assert_eq!(holder(), "a");
        cache.observe(lease("b", 41));
        assert_eq!(holder(), "b");
        cache.observe_list("toy", vec![lease("a", 30)], Some(31), cache.newest());
        assert_eq!(holder(), "a");
    }
}
