//! Leases (`coordination.k8s.io/v1`) held by a fleet of replicas: leader election with one Lease or several.
//!
//! With one shard this is [client-go]'s leader election, on the same object and by the same rules. With more, each
//! shard has a Lease, and the live replicas share them evenly.
//!
//! * **Clocks need not be synchronized.** A Lease has expired when its record did not change for its duration, as
//!   measured by the observer's monotonic clock. The times in it are informational.
//! * **A term ends before another may begin.** It is valid for the renew deadline after the last renewal was sent. That
//!   is shorter than the duration. A term that has become invalid stays invalid.
//! * **Fleets with different numbers of shards never work at the same time.** Each Lease records the number. A replica
//!   that acquires one first lists all other Leases of the fleet, and releases it if a fleet with another number is
//!   alive.
//! * **A deleted Lease still belongs to its holder** for replicas that saw it held: they wait as if it still existed.
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
mod fleet;
mod health;
mod member;
mod options;
mod record;
mod store;
mod term;
mod watch;

#[cfg(test)]
mod tests;

use std::sync::Mutex;

use futures::future::{BoxFuture, FutureExt as _, join};
use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::Client;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use cache::LeaseCache;
use elector::Elector;
use fleet::Fleet;
use store::LeaseStore;

pub use crate::name::lease_name;
pub use health::{HeldShard, LeaseHealth};
pub use options::{LeaseOptions, LeaseOptionsError};
pub use term::Term;

use crate::access::AccessRule;

/// Returns the permissions that the account needs for a fleet of `shards` shards, in the Leases' namespace.
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

/// This replica as a member of a fleet that shares Leases.
pub struct Leases {
    fleet: Fleet,
}

impl Leases {
    /// Creates a member. Sends no request yet.
    ///
    /// # Errors
    ///
    /// Fails if the options are inconsistent.
    pub fn new(client: Client, options: LeaseOptions) -> Result<Self, LeaseOptionsError> {
        options.check()?;
        let cache = LeaseCache::new(options.duration);
        let health = LeaseHealth::default();
        let store = LeaseStore::new(client, &options);
        let (serving, stale) = (Mutex::default(), Notify::new());
        Ok(Self { fleet: Fleet { store, cache, health, serving, stale, options } })
    }

    /// Returns the state of the Leases, which stays up to date while [`Leases::hold`] runs.
    pub fn health(&self) -> LeaseHealth {
        self.fleet.health.clone()
    }

    /// Acquires and holds Leases until `stop` is cancelled and all terms have ended. Then releases all Leases.
    ///
    /// `work` runs as a task for each term. When it returns, the Lease is released. If it returns without having been
    /// asked to, this replica tries to acquire a Lease again after a retry period. When the term is lost, the task has
    /// at most one second to return, and is then aborted.
    ///
    /// Dropping the future ends everything at once and releases nothing, as a crash would.
    pub async fn hold<W, F>(self, stop: CancellationToken, work: W)
    where
        W: Fn(Term) -> F + Send + Sync,
        F: Future<Output = ()> + Send + 'static,
    {
        let fleet = &self.fleet;
        // Announce this replica before it takes a shard, so that replicas that start together share immediately.
        member::announce(fleet).await;
        let electors = (0..fleet.options.shards).map(|shard| Elector::new(fleet, shard, &stop, &work).run());
        // Usually only one of these has work to do: `FuturesUnordered` polls only those that are woken.
        let electors = electors.collect::<FuturesUnordered<_>>().collect::<()>();
        let held = join(electors, member::stay_announced(fleet, &stop)).map(drop);
        let parts: [BoxFuture<'_, ()>; 3] =
            [Box::pin(held), Box::pin(watch::follow(fleet)), Box::pin(watch::poll(fleet))];
        // Only the first part ever ends.
        FuturesUnordered::from_iter(parts).next().await;
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("options", &self.fleet.options).finish_non_exhaustive()
    }
}
