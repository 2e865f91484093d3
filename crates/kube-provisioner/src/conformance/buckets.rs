//! Checks a bucket provisioner against its contract, on its own backend and a simulated cluster.

mod claim;
mod direct;
mod fixture;
mod names;
mod rules;
mod separate_calls;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;

pub use self::claim::BucketClaim;
pub(super) use self::rules::RULES;
use super::report::Report;
use super::suite::{Rules, run_methods};
use super::tempo::Tempo;
use crate::bucket::BucketHooks;
use crate::controller::bucket::backend::BucketBackend;

/// A check of a bucket provisioner, like [`Conformance`](super::Conformance) for volumes.
///
/// ```
/// # use std::collections::{BTreeMap, BTreeSet};
/// # use std::sync::{Arc, Mutex};
/// # use kube_provisioner::bucket::*;
/// # use kube_provisioner::*;
/// # #[derive(Clone, Default)]
/// # struct Store(Arc<Mutex<BTreeMap<String, (String, String)>>>);
/// # impl BucketProvisioner for Store {
/// #     type Parameters = ();
/// #     type Config = ();
/// #     async fn create_bucket(&self, request: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
/// #         let owner = (request.cluster_id, request.owner.name);
/// #         match self.0.lock().unwrap().entry(request.name) {
/// #             std::collections::btree_map::Entry::Occupied(bucket) if *bucket.get() != owner => {
/// #                 return Err(ProvisionError::invalid("the bucket belongs to another user"));
/// #             }
/// #             bucket => bucket.or_insert(owner),
/// #         };
/// #         Ok(Bucket::new(Endpoint::https("store")))
/// #     }
/// #     async fn delete_bucket(&self, bucket: ProvisionedBucket<()>) -> Result<(), DeleteError> {
/// #         let owner = (bucket.cluster_id, bucket.owner.name);
/// #         self.0.lock().unwrap().retain(|name, known| *name != bucket.name || *known != owner);
/// #         Ok(())
/// #     }
/// #     async fn grant(&self, request: GrantOf<Self>) -> Result<Granted, ProvisionError> {
/// #         let owner = (request.cluster_id.clone(), request.account.name.clone());
/// #         if self.0.lock().unwrap().get(&request.bucket().name) != Some(&owner) {
/// #             return Err(ProvisionError::invalid("the bucket belongs to another user"));
/// #         }
/// #         Ok(Granted::new(Endpoint::https("store"), Credentials::new(request.account.name, "secret")))
/// #     }
/// #     async fn revoke(&self, _: GrantedAccount<()>) -> Result<(), DeleteError> { Ok(()) }
/// # }
/// # impl BucketHooks for Store {}
/// use kube_provisioner::conformance::BucketConformance;
///
/// let store = Store::default();
/// let (started, listed) = (store.clone(), store.clone());
/// let list = move || {
///     let names: Vec<String> = listed.0.lock().unwrap().keys().cloned().collect();
///     async move { names }
/// };
/// BucketConformance::new(move || started.clone(), list).check();
/// ```
#[must_use = "nothing is checked before `check` or `run`"]
pub struct BucketConformance {
    subject: Subject,
    rules: Rules<Subject>,
}

/// The provisioner to check, and its backend.
pub(super) struct Subject {
    name: &'static str,
    start: Box<dyn Fn(Client) -> Arc<dyn BucketBackend>>,
    assets: Box<dyn Fn() -> BoxFuture<'static, Vec<String>>>,
    parameters: BTreeMap<String, String>,
    existing: Option<String>,
    manually_created: Option<ManualCreation>,
    keys_shown_once: bool,
    objects: Vec<serde_json::Value>,
    seeds: Vec<u64>,
    tempo: Tempo,
}

/// The actions of an administrator in the backend.
struct ManualCreation {
    /// Creates a bucket of this name; returns true on success.
    make: Box<dyn Fn(String) -> BoxFuture<'static, bool>>,
    remove: Box<dyn Fn(String) -> BoxFuture<'static, ()>>,
}

impl BucketConformance {
    /// Creates a check of the provisioner that `start` returns.
    ///
    /// * `start` creates the provisioner in the state of a newly started process. It is called many times, always for
    ///   the same backend, and earlier provisioners may have been dropped in the middle of any work.
    /// * `assets` lists the current content of the backend, one string per asset: buckets with their limits, users,
    ///   keys, permissions.
    ///
    /// The backend may contain other assets, which must not change; no other program should use it.
    pub fn new<B, F, A>(start: impl Fn() -> B + 'static, assets: impl Fn() -> F + 'static) -> Self
    where
        B: BucketHooks,
        F: Future<Output = A> + Send + 'static,
        A: IntoIterator<Item: ToString>,
    {
        let assets = move || -> BoxFuture<'static, Vec<String>> {
            let assets = assets();
            Box::pin(async move {
                let mut names: Vec<String> = assets.await.into_iter().map(|asset| asset.to_string()).collect();
                names.sort_unstable();
                names
            })
        };
        Self {
            subject: Subject {
                name: std::any::type_name::<B>(),
                start: Box::new(move |_| Arc::new(start())),
                assets: Box::new(assets),
                parameters: BTreeMap::new(),
                existing: None,
                manually_created: None,
                keys_shown_once: false,
                objects: Vec::new(),
                seeds: (0..8).collect(),
                tempo: Tempo::Virtual,
            },
            rules: Rules::new(RULES),
        }
    }

    /// Sets the parameters of a valid class. Without this call the class has none.
    pub fn parameters<K: Into<String>, V: Into<String>>(mut self, good: impl IntoIterator<Item = (K, V)>) -> Self {
        self.subject.parameters = super::map(good);
        self
    }

    /// Names an existing bucket to which claims can receive access. Without this call `grant` is not checked.
    pub fn existing_bucket(mut self, name: impl Into<String>) -> Self {
        self.subject.existing = Some(name.into());
        self
    }

    /// Sets functions by which an administrator creates and removes a bucket in the backend, with the account that the
    /// provisioner uses but without the provisioner's marks on the bucket. `make` returns true if it has created one,
    /// and false if the name is taken. Without this call `bucket-concurrent-creation` is not checked.
    pub fn manually_created<M, R>(
        mut self,
        make: impl Fn(String) -> M + 'static,
        remove: impl Fn(String) -> R + 'static,
    ) -> Self
    where
        M: Future<Output = bool> + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.subject.manually_created = Some(ManualCreation {
            make: Box::new(move |name| Box::pin(make(name))),
            remove: Box::new(move |name| Box::pin(remove(name))),
        });
        self
    }

    /// Declares that the backend shows a key only once: if the claim's Secret is lost, a new key replaces the lost one.
    pub fn keys_shown_once(mut self) -> Self {
        self.subject.keys_shown_once = true;
        self
    }

    /// Adds objects that exist in the kit's cluster from the beginning, such as the Secrets that the class names.
    pub fn objects(mut self, objects: impl IntoIterator<Item = serde_json::Value>) -> Self {
        self.subject.objects.extend(objects);
        self
    }

    run_methods!();
}

impl fmt::Debug for BucketConformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketConformance").field("of", &self.subject.name).finish_non_exhaustive()
    }
}
