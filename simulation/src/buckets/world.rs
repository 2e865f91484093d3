//! State shared by all parts of one run: the cluster, the store, the boundary between storm and calm, and the faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_sim::{After, Before, Cluster, Faults, Interceptor, Request, Verb, WatchInterceptor};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backup::Backup;
use super::complications::Complications;
use super::ledger::Ledger;
use super::store::State;
use super::{claimed_uid, record_of, text};
use crate::judge::{Invariant, Violation};
use crate::plan::{Edge, ProcessFault, Trigger};
use crate::process::{Process, ProcessEnvironment};
use crate::refusals::{self, Refusal};

pub(crate) struct World {
    pub(crate) seed: u64,
    start: Instant,
    traced: bool,
    pub(crate) complications: Complications,
    clusters: Mutex<Vec<Cluster>>,
    ledger: Mutex<Ledger>,
    backup: Mutex<Option<Backup>>,
    store: Mutex<State>,
    shared: Mutex<Shared>,
    moved: Notify,
}

struct Shared {
    random: fastrand::Rng,
    calm: bool,
    verdict: Option<Violation>,
}

impl World {
    pub(crate) fn new(seed: u64, random: fastrand::Rng, traced: bool) -> Arc<Self> {
        Arc::new(Self {
            seed,
            start: Instant::now(),
            traced,
            complications: Complications::draw(seed),
            clusters: Mutex::default(),
            ledger: Mutex::default(),
            backup: Mutex::default(),
            store: Mutex::default(),
            shared: Mutex::new(Shared { random, calm: false, verdict: None }),
            moved: Notify::new(),
        })
    }

    pub(crate) fn attach_cluster(&self, cluster: &Cluster) {
        lock(&self.clusters).push(cluster.clone());
    }

    /// Breaks a reference cycle: the clusters hold the interceptors, which hold the processes, which hold the world.
    pub(crate) fn clear(&self) {
        lock(&self.clusters).clear();
    }

    pub(crate) fn cluster(&self, number: usize) -> Option<Cluster> {
        lock(&self.clusters).get(number).cloned()
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, State> {
        lock(&self.store)
    }

    pub(crate) fn store_backup(&self, backup: Backup) {
        *lock(&self.backup) = Some(backup);
    }

    pub(crate) fn backup(&self) -> Option<Backup> {
        lock(&self.backup).clone()
    }

    pub(crate) fn calm(&self) {
        lock(&self.shared).calm = true;
        self.note(|| "the storm is over".to_owned());
        self.moved.notify_waiters();
    }

    pub(crate) fn random(&self) -> fastrand::Rng {
        lock(&self.shared).random.fork()
    }

    pub(crate) fn verdict(&self) -> Option<Violation> {
        lock(&self.shared).verdict.clone()
    }

    pub(crate) async fn until_violation(&self) {
        loop {
            let moved = self.moved.notified();
            if self.verdict().is_some() {
                return;
            }
            moved.await;
        }
    }
}

impl ProcessEnvironment for World {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn is_calm(&self) -> bool {
        lock(&self.shared).calm
    }

    fn note(&self, text: impl FnOnce() -> String) {
        if self.traced
            && let Some(cluster) = lock(&self.clusters).first()
        {
            cluster.note(text());
        }
    }

    /// Only the first violation is reported.
    fn report_violation(&self, invariant: Invariant, seen: String) {
        let at = self.now();
        self.note(|| format!("BROKEN: {seen}"));
        lock(&self.shared).verdict.get_or_insert(Violation { invariant, at, seen });
        self.moved.notify_waiters();
    }
}

/// Draws when a process ends or pauses, and which of the two.
pub(crate) fn draw_fault(random: &mut fastrand::Rng) -> (Trigger, ProcessFault) {
    let fault = match random.u8(0..6) {
        0 => ProcessFault::Stop,
        1 => ProcessFault::Freeze(Duration::from_secs(random.u64(1..90))),
        _ => ProcessFault::Crash,
    };
    let passage = if random.bool() { random.u32(10..60) } else { random.u32(60..600) };
    // All edges have the same probability.
    (Trigger::Edge(Edge::Step, passage), fault)
}

/// The layer between the processes and the API server.
pub(crate) struct BucketInterceptor {
    /// The number of the cluster.
    cluster: usize,
    world: Weak<World>,
    faults: Faults,
    refusals: Vec<Refusal>,
    processes: Mutex<BTreeMap<String, Arc<Process<World>>>>,
}

impl BucketInterceptor {
    pub(crate) fn new(cluster: usize, world: &Arc<World>, faults: Faults, refusals: Vec<Refusal>) -> Self {
        Self { cluster, world: Arc::downgrade(world), faults, refusals, processes: Mutex::default() }
    }

    pub(crate) fn connect_process(&self, process: &Arc<Process<World>>) {
        lock(&self.processes).insert(process.name.clone(), process.clone());
    }

    pub(crate) fn disconnect_process(&self, name: &str) {
        lock(&self.processes).remove(name);
    }

    fn process(&self, request: &Request) -> Option<Arc<Process<World>>> {
        lock(&self.processes).get(&*request.user).cloned()
    }

    fn is_calm(&self) -> bool {
        self.world.upgrade().is_none_or(|world| world.is_calm())
    }

    /// Checks the deletion of an ObjectBucket that represents a bucket: a user must have requested it, and the claim
    /// must belong to this cluster and be deleted or being deleted.
    fn check_end(&self, process: &Process<World>, request: &Request, world: &World) {
        let Some(cluster) = world.cluster(self.cluster) else { return };
        let Ok(object) = cluster.get("objectbucket.io", "objectbuckets", "", &request.name) else { return };
        let wanted = request.options.delete.preconditions.clone().unwrap_or_default();
        let is_another = |wanted: Option<String>, at: &str| wanted.is_some_and(|wanted| wanted != text(&object, at));
        if is_another(wanted.uid, "/metadata/uid")
            || is_another(wanted.resource_version, "/metadata/resourceVersion")
            || record_of(&object)["made"] != true
        {
            return;
        }
        let uid = claimed_uid(&object);
        let claims = cluster.list("objectbucket.io", "objectbucketclaims", None).unwrap_or_default();
        let bucket = text(&object, "/spec/endpoint/bucketName");
        let has_it = world.store().buckets.contains_key(bucket);
        let ledger = world.ledger();
        if !has_it || ledger.by_hand.contains(bucket) {
            // An administrator has removed the bucket, so the claim is refused like a new one.
            return;
        }
        let lives = claims.iter().any(|claim| {
            ledger.origin(text(claim, "/metadata/uid")) == uid && claim["metadata"]["deletionTimestamp"].is_null()
        });
        let elsewhere = ledger.cluster_of(&uid).is_some_and(|home| home != self.cluster);
        let why = match (elsewhere, lives, ledger.may_end(&uid)) {
            (true, _, _) => "which is another cluster's",
            (_, true, _) => "whose claim lives",
            (_, _, false) => "although no user requested that",
            _ => return,
        };
        drop(ledger);
        let seen = format!("{} ends the ObjectBucket {}, {why}", process.name, request.name);
        world.report_violation(Invariant::Untouched, seen);
    }
}

impl Interceptor for BucketInterceptor {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Before> {
        let process = self.process(request);
        async move {
            let (Some(process), Some(world)) = (process, self.world.upgrade()) else { return Before::Hang };
            process.ask(Edge::Step).await;
            let refused = refusals::answer(&self.refusals, request, world.now()).filter(|_| !world.is_calm());
            if let Some(status) = refused {
                process.refused(request);
                return Before::Refuse(status);
            }
            let before = if self.is_calm() { Before::Handle } else { self.faults.before(request).await };
            if matches!(before, Before::Handle)
                && request.verb == Verb::Delete
                && request.resource.plural == "objectbuckets"
            {
                self.check_end(&process, request, &world);
            }
            before
        }
        .boxed()
    }

    fn after<'a>(&'a self, request: &'a Request, code: u16) -> BoxFuture<'a, After> {
        let process = self.process(request);
        async move {
            let Some(process) = process else { return After::Hang };
            process.pass(Edge::Step).await;
            if self.is_calm() { After::Deliver } else { self.faults.after(request, code).await }
        }
        .boxed()
    }

    fn watch(&self, request: &Request) -> Option<Box<dyn WatchInterceptor>> {
        if self.is_calm() { None } else { self.faults.watch(request) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
