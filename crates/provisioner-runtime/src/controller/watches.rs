//! The watches of a controller.

use std::fmt::Debug;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::cache::Cache;
use super::context::Context;
use crate::call::CallError;
use crate::environment::Environment;
use crate::watch::{Change, FromJson, Scope, WatchHealth, watch};

/// One kind of object that a controller watches, and the conversion of its changes for the cache.
pub struct WatchSpec<C: Cache> {
    name: &'static str,
    health: WatchHealth,
    run: Run<C>,
    version: FetchVersion<C>,
    versioned: bool,
    after_first_term: bool,
    optional: bool,
}

/// A running watch.
pub(super) struct RunningWatch<C> {
    pub(super) name: &'static str,
    pub(super) health: WatchHealth,
    pub(super) after_first_term: bool,
    /// True if the loop neither waits for this watch nor depends on it.
    pub(super) optional: bool,
    /// Fetches the current version; `None` if the watch is not versioned.
    pub(super) version: Option<FetchVersion<C>>,
}

/// An update of the cache. Returns the keys that it may affect.
pub(super) type Update<'a, C> = Box<dyn FnOnce(&mut C) -> Vec<<C as Cache>::Key> + 'a>;
/// Runs an update under the cache's lock.
pub(super) type Apply<C> = Box<dyn Fn(Update<'_, C>) + Send>;
pub(super) type Run<C> = Box<dyn FnOnce(Environment, WatchHealth, Apply<C>) -> BoxFuture<'static, ()> + Send>;
/// Fetches the current version of this kind from the API server.
pub(super) type FetchVersion<C> = Box<dyn Fn(Context<C>) -> BoxFuture<'static, Result<u64, CallError>> + Send + Sync>;

impl<C: Cache> WatchSpec<C> {
    /// Watches the objects in `scope`; `name` is the plural. `read` turns a change into the value that `apply` puts
    /// into the cache. It may call an author's code, because no lock is held.
    pub fn new<T, U>(
        name: &'static str,
        scope: impl Into<Scope<T>>,
        read: impl Fn(Change<T>) -> U + Send + 'static,
        apply: impl Fn(&mut C, U) -> Vec<C::Key> + Send + 'static,
    ) -> Self
    where
        T: Resource + Clone + FromJson + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let scope = scope.into();
        let all = scope.clone();
        let version = move |context: Context<C>| {
            let all = all.clone();
            async move { context.request(all.current_version()).await }.boxed()
        };
        let run = move |environment: Environment, health: WatchHealth, update: Apply<C>| {
            let sink = move |change: Change<T>| {
                let read = read(change);
                update(Box::new(|cache| apply(cache, read)));
            };
            watch(scope, name, environment, health, sink).boxed()
        };
        let (run, version): (Run<C>, FetchVersion<C>) = (Box::new(run), Box::new(version));
        let health = WatchHealth::new();
        Self { name, health, run, version, versioned: false, after_first_term: false, optional: false }
    }

    /// Sets the health that the watch reports, for a controller that reads it or requests lists.
    #[must_use]
    pub fn with_health(self, health: WatchHealth) -> Self {
        Self { health, ..self }
    }

    /// Makes each term begin by fetching the current version of this kind from the API server; see
    /// [`Cache::stale_before`].
    #[must_use]
    pub fn versioned(self) -> Self {
        Self { versioned: true, ..self }
    }

    /// Delays the watch until this process gets its first shard, so that the watch delivers nothing stale. The delay is
    /// at most half a second, so that a replica that gets its first shard later has a complete cache.
    #[must_use]
    pub fn after_first_term(self) -> Self {
        Self { after_first_term: true, ..self }
    }

    /// Allows the controller to work and be ready without this watch: before it has listed all objects, and when it
    /// fails.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(super) fn split(self) -> (RunningWatch<C>, Run<C>) {
        let Self { name, health, run, version, versioned, after_first_term, optional } = self;
        (RunningWatch { name, health, after_first_term, optional, version: versioned.then_some(version) }, run)
    }
}

impl<C: Cache> Debug for WatchSpec<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchSpec").field("name", &self.name).finish_non_exhaustive()
    }
}
