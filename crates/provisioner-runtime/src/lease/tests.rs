//! Tests of replica fleets against a simulated API server.

mod one;
mod safety;
mod several;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kube_sim::{Cluster, SimClock};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Environment;

const NAMESPACE: &str = "default";
const NAME: &str = "example.com-toy";

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// All terms that ever existed in a cluster, with their replica's number of shards.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<Vec<(u32, String, Term)>>>, Arc<Mutex<Option<String>>>);

impl Drop for Terms {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl Terms {
    fn add(&self, shards: u32, identity: &str, term: &Term) {
        crate::sync::lock(&self.0).push((shards, identity.to_owned(), term.clone()));
        // A panic here would be lost with this task.
        let conflict = self.conflict();
        let mut first = crate::sync::lock(&self.1);
        *first = first.take().or(conflict);
    }

    /// Asserts that no shard has two holders now, or had two when a term began.
    fn check(&self) {
        assert_eq!(crate::sync::lock(&self.1).clone(), None);
        assert_eq!(self.conflict(), None);
    }

    /// Returns a conflict, if any: each shard may have only one valid term, and all replicas with valid terms must have
    /// the same number of shards.
    fn conflict(&self) -> Option<String> {
        let valid = self.valid();
        for (index, (shards, identity, shard)) in valid.iter().enumerate() {
            for (other_shards, other, other_shard) in &valid[..index] {
                if shards != other_shards {
                    return Some(format!("{identity} and {other} hold shards of different fleets"));
                }
                if shard == other_shard {
                    return Some(format!("{identity} and {other} hold the same shard"));
                }
            }
        }
        None
    }

    fn valid(&self) -> Vec<(u32, String, u32)> {
        let terms = crate::sync::lock(&self.0);
        let valid = terms.iter().filter(|(_, _, term)| term.is_valid());
        valid.map(|(shards, identity, term)| (*shards, identity.clone(), term.shard)).collect()
    }

    /// Returns the holder of the shard.
    fn holder(&self, shard: u32) -> Option<String> {
        self.valid().into_iter().find(|(_, _, held)| *held == shard).map(|(_, identity, _)| identity)
    }

    /// Returns the numbers of transitions of a replica's terms.
    fn transitions(&self, replica: &str) -> Vec<u32> {
        let terms = crate::sync::lock(&self.0);
        terms.iter().filter(|(_, identity, _)| identity == replica).map(|(_, _, term)| term.transitions).collect()
    }
}

/// The behaviour of a replica's work.
#[derive(Clone, Copy, PartialEq)]
enum Workload {
    /// Finishes at once when asked.
    Obedient,
    /// Takes this long to finish.
    Slow(Duration),
    /// Returns on its own after this time.
    Short(Duration),
    /// Never returns.
    Stuck,
}

impl Workload {
    async fn work(self, term: Term) {
        match self {
            Self::Obedient | Self::Slow(_) => tokio::select! {
                biased;
                () = term.lost.cancelled() => {}
                () = term.leave.cancelled() => if let Self::Slow(time) = self {
                    let _ = tokio::time::timeout(time, term.lost.cancelled()).await;
                }
            },
            Self::Short(time) => sleep(time).await,
            Self::Stuck => std::future::pending().await,
        }
    }
}

/// A replica process.
struct Replica {
    shards: usize,
    stop: CancellationToken,
    health: LeaseHealth,
    pause: Pause,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(cluster: &Cluster, terms: &Terms, identity: &str, shards: u32) -> Self {
        Self::start_with(cluster, terms, identity, shards, Workload::Obedient)
    }

    fn start_with(cluster: &Cluster, terms: &Terms, identity: &str, shards: u32, workload: Workload) -> Self {
        let seed = identity.bytes().map(u64::from).sum();
        let environment = Environment::simulated(seed, SimClock::EPOCH);
        let options = LeaseOptions { shards, environment, ..LeaseOptions::new(NAMESPACE, NAME, identity) };
        let leases = Leases::new(cluster.client(identity), options).unwrap();
        let (health, stop, pause) = (leases.health(), CancellationToken::new(), Pause::default());
        let (terms, identity) = (terms.clone(), identity.to_owned());
        let hold = leases.hold(stop.clone(), move |term| {
            terms.add(shards, &identity, &term);
            workload.work(term)
        });
        let task = tokio::spawn(Pausable { future: Box::pin(hold), pause: pause.clone() });
        Self { shards: shards as usize, stop, health, pause, task }
    }

    fn held(&self) -> Vec<u32> {
        self.health.held().into_iter().map(|held| held.shard).collect()
    }

    /// Asks the replica to end and waits until it has.
    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Crashes the replica, which then releases nothing.
    async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Waits until the replica holds this number of shards.
    async fn until_holding(&self, count: usize) -> Duration {
        until(|| self.health.held().len() == count).await
    }
}

/// Waits until `holds` returns true, for at most two minutes; returns the time it took.
async fn until(holds: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < seconds(120), "the condition does not hold within two minutes");
        sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}

/// Keeps a future from being polled for a while, as if the machine hung.
#[derive(Clone, Default)]
struct Pause(Arc<Mutex<(bool, Option<Waker>)>>);

impl Pause {
    fn begin(&self) {
        crate::sync::lock(&self.0).0 = true;
    }

    fn end(&self) {
        let mut state = crate::sync::lock(&self.0);
        state.0 = false;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

struct Pausable {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    pause: Pause,
}

impl Future for Pausable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = crate::sync::lock(&self.pause.0);
            if state.0 {
                state.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(context)
    }
}

fn lease(cluster: &Cluster, name: &str) -> Value {
    cluster.get("coordination.k8s.io", "leases", NAMESPACE, name).unwrap()
}

fn leases(cluster: &Cluster) -> Vec<String> {
    let leases = cluster.list("coordination.k8s.io", "leases", Some(NAMESPACE)).unwrap();
    leases.iter().map(|lease| lease["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn target(name: &str) -> kube_sim::Target<'_> {
    kube_sim::Target { group: "coordination.k8s.io", plural: "leases", namespace: NAMESPACE, name }
}

/// Returns a Lease as another client would have written it.
fn foreign(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// Refuses all requests, or requests with one verb, and counts the requests.
#[derive(Default)]
struct Outage {
    all: std::sync::atomic::AtomicBool,
    verb: Mutex<Option<kube_sim::Verb>>,
    /// One in this many updates receives a response; 0 means that all do.
    mute: std::sync::atomic::AtomicUsize,
    updates: std::sync::atomic::AtomicUsize,
    requests: std::sync::atomic::AtomicUsize,
    /// The user whose next watch delivers nothing.
    silent: Mutex<Option<&'static str>>,
}

/// A watch that delivers nothing.
struct Silence;

impl kube_sim::WatchInterceptor for Silence {
    fn event(&mut self, _: &'static str, _: &kube_sim::Stored) -> kube_sim::WatchStep {
        kube_sim::WatchStep::Silence
    }
}

impl Outage {
    fn set(&self, all: bool) {
        self.all.store(all, std::sync::atomic::Ordering::Relaxed);
    }

    fn forbid(&self, verb: kube_sim::Verb) {
        *crate::sync::lock(&self.verb) = Some(verb);
    }

    fn allow(&self) {
        *crate::sync::lock(&self.verb) = None;
    }

    fn requests(&self) -> usize {
        self.requests.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl kube_sim::Interceptor for Outage {
    fn before<'a>(&'a self, request: &'a kube_sim::Request) -> futures::future::BoxFuture<'a, kube_sim::Before> {
        use kube_sim::{Before, Status};
        self.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let forbidden = *crate::sync::lock(&self.verb) == Some(request.verb);
        let before = match (self.all.load(std::sync::atomic::Ordering::Relaxed), forbidden) {
            (true, _) => Before::Refuse(Status::service_unavailable("the server is not there")),
            (false, true) => Before::Refuse(Status::forbidden(&request.resource, &request.name, "no")),
            (false, false) => Before::Handle,
        };
        Box::pin(std::future::ready(before))
    }

    fn after<'a>(&'a self, request: &'a kube_sim::Request, _: u16) -> futures::future::BoxFuture<'a, kube_sim::After> {
        use std::sync::atomic::Ordering::Relaxed;
        let mute = self.mute.load(Relaxed);
        let mute = request.verb == kube_sim::Verb::Update
            && mute > 0
            && !(self.updates.fetch_add(1, Relaxed) + 1).is_multiple_of(mute);
        Box::pin(std::future::ready(if mute { kube_sim::After::Hang } else { kube_sim::After::Deliver }))
    }

    fn watch(&self, request: &kube_sim::Request) -> Option<Box<dyn kube_sim::WatchInterceptor>> {
        let silent = crate::sync::lock(&self.silent).take_if(|user| **user == *request.user);
        silent.map(|_| Box::new(Silence) as _)
    }
}
