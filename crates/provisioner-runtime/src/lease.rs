//! Leases (`coordination.k8s.io/v1`) held by a fleet of replicas: leader election, with one Lease or with several.
//!
//! With one shard this is the leader election of [client-go], on the same object and by the same rules. With more, each
//! shard is a Lease of its own, and the live replicas share them evenly.
//!
//! * **Nobody's clock is believed.** A Lease has run out when its record was not seen to change for its duration, by the
//!   own monotonic clock. The times in it are for people.
//! * **A term ends before anybody else may begin one.** It is valid for the renew deadline after the last renewal was
//!   sent, which is shorter than the duration; what has once become invalid never becomes valid again.
//! * **Fleets of different numbers of shards never work at the same time.** Each Lease says how many there are. Who wins
//!   one looks at all others of the same name before it begins, and steps back when a fleet of another number is alive.
//! * **A Lease that is deleted is still its holder's** for those who saw it held: they wait as if it were there.
//!
//! ```no_run
//! # use provisioner_runtime::lease::{LeaseOptions, Leases, Term, lease_name};
//! # use tokio_util::sync::CancellationToken;
//! # async fn example(client: kube::Client, stop: CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! let options = LeaseOptions::new("kube-system", lease_name("example.com/hostpath"), "pod-1_4f2a");
//! let leases = Leases::new(client, options)?;
//! let health = leases.health();
//! leases
//!     .hold(stop, |term: Term| async move {
//!         tokio::select! {
//!             () = term.leave.cancelled() => { /* finish what is under way */ }
//!             () = term.lost.cancelled() => { /* stop at once */ }
//!         }
//!     })
//!     .await;
//! assert!(health.held().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! [client-go]: https://github.com/kubernetes/client-go/blob/master/tools/leaderelection/leaderelection.go

mod balance;
mod cache;
mod elector;
mod health;
mod member;
mod options;
mod record;
mod store;
mod term;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Mutex;

use futures::future::{BoxFuture, FutureExt as _, join};
use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::Client;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use balance::{Action, View, balance};
use cache::LeaseCache;
use elector::Elector;
use store::Store;

pub use crate::name::lease_name;
pub use health::{Held, LeaseHealth};
pub use options::{LeaseOptions, LeaseOptionsError};
pub use term::Term;

use crate::AccessRule;

/// What the account must be allowed to do for a fleet of `shards` shards, in the Leases' namespace.
pub const fn access_rule(shards: u32) -> AccessRule {
    const ONE: &[&str] = &["get", "list", "watch", "create", "update"];
    const SEVERAL: &[&str] = &["get", "list", "watch", "create", "update", "delete"];
    AccessRule {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: if shards > 1 { SEVERAL } else { ONE },
        names: Vec::new(),
        namespaced: true,
    }
}

/// This replica's part in a fleet that shares Leases.
pub struct Leases {
    fleet: Fleet,
}

impl Leases {
    /// Nothing is asked of the API server yet.
    ///
    /// # Errors
    ///
    /// When the options make no sense.
    pub fn new(client: Client, options: LeaseOptions) -> Result<Self, LeaseOptionsError> {
        options.check()?;
        let cache = LeaseCache::new(options.duration);
        let health = LeaseHealth::default();
        let store = Store::new(client, &options);
        let (serving, stale) = (Mutex::default(), Notify::new());
        Ok(Self { fleet: Fleet { store, cache, health, serving, stale, options } })
    }

    /// How it is going; also while [`Leases::hold`] runs.
    pub fn health(&self) -> LeaseHealth {
        self.fleet.health.clone()
    }

    /// Takes part until `stop` is cancelled and all terms have ended; then all Leases are released.
    ///
    /// `duty` runs as a task for each term that is won. When it returns, the Lease is released; when it returns without
    /// having been asked to, this replica tries again after a retry period. When the term is lost, the task has a moment
    /// to return, and is aborted then.
    ///
    /// Dropping the future ends everything at once and releases nothing, as a crash would.
    pub async fn hold<D, F>(self, stop: CancellationToken, duty: D)
    where
        D: Fn(Term) -> F + Send + Sync,
        F: Future<Output = ()> + Send + 'static,
    {
        let fleet = &self.fleet;
        // Known to the others before the first shard is taken, so that replicas which start together share at once.
        member::announce(fleet).await;
        let electors = (0..fleet.options.shards).map(|shard| Elector::new(fleet, shard, &stop, &duty).run());
        // Of all these mostly one has something to do: only those that are woken are polled.
        let electors = electors.collect::<FuturesUnordered<_>>().collect::<()>();
        let work = join(electors, member::remain(fleet, &stop)).map(drop);
        let parts: [BoxFuture<'_, ()>; 3] =
            [Box::pin(work), Box::pin(watch::follow(fleet)), Box::pin(watch::poll(fleet))];
        // Only the work comes to an end.
        FuturesUnordered::from_iter(parts).next().await;
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("options", &self.fleet.options).finish_non_exhaustive()
    }
}

/// What the parts of one replica share.
struct Fleet {
    options: LeaseOptions,
    store: Store,
    cache: LeaseCache,
    health: LeaseHealth,
    /// The shards with a term of ours, and whether it was asked to leave.
    serving: Mutex<BTreeMap<u32, bool>>,
    /// The watch was found to tell nothing of what happens.
    stale: Notify,
}

impl Fleet {
    fn is_serving(&self, shard: u32) -> bool {
        crate::lock(&self.serving).contains_key(&shard)
    }

    /// What is to be done about the shards, going by what is known.
    fn plan(&self, now: Instant) -> Vec<Action> {
        let LeaseOptions { shards, identity, .. } = &self.options;
        if *shards == 1 {
            // Nothing to share, and nobody tells who stands by.
            self.health.set_members(1);
            let holder = self.cache.holder(&self.options.shard_name(0), now).filter(|holder| holder != identity);
            let free = holder.is_none() && !self.is_serving(0);
            return free.then_some(Action::Acquire(0)).into_iter().collect();
        }
        let mut members = self.cache.members(*shards, now);
        members.insert(identity.clone());
        self.health.set_members(members.len());
        let serving = crate::lock(&self.serving).clone();
        let holders = (0..*shards)
            .map(|shard| match serving.contains_key(&shard) {
                true => Some(identity.clone()),
                // What was ours once is free for us.
                false => self.cache.holder(&self.options.shard_name(shard), now).filter(|holder| holder != identity),
            })
            .collect();
        let leaving = serving.into_iter().filter_map(|(shard, leaving)| leaving.then_some(shard)).collect();
        balance(&View { me: identity, members, holders, leaving })
    }
}
