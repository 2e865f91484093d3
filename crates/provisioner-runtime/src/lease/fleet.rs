//! The state of this replica and its plan for the shards.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::balance::{Action, View, balance};
use super::cache::LeaseCache;
use super::health::LeaseHealth;
use super::options::LeaseOptions;
use super::store::LeaseStore;

/// State shared by the parts of one replica.
pub(super) struct Fleet {
    pub(super) options: LeaseOptions,
    pub(super) store: LeaseStore,
    pub(super) cache: LeaseCache,
    pub(super) health: LeaseHealth,
    /// The shards with a term of this replica, and whether the term was asked to leave.
    pub(super) serving: Mutex<BTreeMap<u32, bool>>,
    /// Notified when the watch was found to deliver nothing.
    pub(super) stale: Notify,
}

impl Fleet {
    pub(super) fn is_serving(&self, shard: u32) -> bool {
        crate::sync::lock(&self.serving).contains_key(&shard)
    }

    /// Returns the actions to take on the shards, based on the known state.
    pub(super) fn plan(&self, now: Instant) -> Vec<Action> {
        let LeaseOptions { shards, identity, .. } = &self.options;
        if *shards == 1 {
            // There is nothing to share, and standbys have no Lease that would show them.
            self.health.set_members(1);
            let holder = self.cache.holder(&self.options.shard_name(0), now).filter(|holder| holder != identity);
            let free = holder.is_none() && !self.is_serving(0);
            return free.then_some(Action::Acquire(0)).into_iter().collect();
        }
        let mut members = self.cache.members(*shards, now);
        members.insert(identity.clone());
        self.health.set_members(members.len());
        let serving = crate::sync::lock(&self.serving).clone();
        let holders = (0..*shards)
            .map(|shard| {
                if serving.contains_key(&shard) {
                    Some(identity.clone())
                } else {
                    // A shard that this replica held earlier is free for it.
                    self.cache.holder(&self.options.shard_name(shard), now).filter(|holder| holder != identity)
                }
            })
            .collect();
        let leaving = serving.into_iter().filter_map(|(shard, leaving)| leaving.then_some(shard)).collect();
        balance(&View { me: identity, members, holders, leaving })
    }
}
