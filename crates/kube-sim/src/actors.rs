//! The controllers and the scheduler of a real cluster that provisioners depend on.
//!
//! [`Cluster::run`] starts the actors. Each is kube-scheduler or one controller of kube-controller-manager. It reacts
//! to changes in the cluster and sends the same writes as the real component. An actor can be prompt, slow, late or
//! absent. Its delays are drawn from the cluster's seed, so the same seed gives the same run.
//!
//! Not simulated: CSI migration of in-tree provisioners, recycling of volumes, and anything that needs a kubelet.

mod api;
mod binder;
mod garbage;
mod namespaces;
mod node_selector;
mod nodes;
mod pods;
mod protection;
mod recorder;
mod scheduler;
mod storage;
mod volume_index;
mod worker;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::cluster::Cluster;
use api::Api;
use worker::{Controller, Worker};

/// A controller, or the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// `persistentvolume-binder-controller`: requests volumes from external provisioners, binds claims to volumes,
    /// releases volumes.
    Binder,
    /// `persistentvolumeclaim-protection-controller` and `persistentvolume-protection-controller`: keep a claim while a
    /// pod uses it, and a volume while it is bound.
    Protection,
    /// `kube-scheduler`: selects nodes for claims that wait for their first consumer, and binds pods to nodes.
    Scheduler,
    /// `garbage-collector-controller`: deletes objects whose owners no longer exist.
    GarbageCollector,
    /// `namespace-controller`: deletes the objects of terminating namespaces, then finalizes the namespaces.
    Namespaces,
    /// `node-lifecycle-controller`: taints nodes that are not ready or are cordoned, and removes the taint from the
    /// others.
    Nodes,
}

impl Actor {
    /// All actors.
    pub const ALL: [Self; 6] =
        [Self::Binder, Self::Protection, Self::Scheduler, Self::GarbageCollector, Self::Namespaces, Self::Nodes];

    /// Returns its user name.
    pub fn user(self) -> &'static str {
        match self {
            Self::Binder => "system:serviceaccount:kube-system:persistent-volume-binder",
            Self::Protection => "system:serviceaccount:kube-system:pvc-protection-controller",
            Self::Scheduler => "system:kube-scheduler",
            Self::GarbageCollector => "system:serviceaccount:kube-system:generic-garbage-collector",
            Self::Namespaces => "system:serviceaccount:kube-system:namespace-controller",
            Self::Nodes => "system:serviceaccount:kube-system:node-controller",
        }
    }
}

/// Speed of an actor. Each delay is drawn from its range every time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Delay between [`Cluster::run`] and the actor's start.
    pub start: RangeInclusive<Duration>,
    /// Delay between a change and its delivery to the actor.
    pub lag: RangeInclusive<Duration>,
    /// Latency of each of its requests.
    pub request: RangeInclusive<Duration>,
}

impl Pace {
    /// No delays.
    pub const PROMPT: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::ZERO..=Duration::ZERO,
        request: Duration::ZERO..=Duration::ZERO,
    };

    /// Typical delays of a cluster with little load.
    pub const USUAL: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::ZERO..=Duration::from_millis(10),
        request: Duration::from_millis(1)..=Duration::from_millis(15),
    };

    /// Typical delays of an overloaded cluster.
    pub const SLOW: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::from_millis(50)..=Duration::from_secs(3),
        request: Duration::from_millis(20)..=Duration::from_secs(2),
    };

    /// Returns the same pace with a start that is delayed by `start`, for example by leader election.
    #[must_use]
    pub fn starting_after(self, start: Duration) -> Self {
        Self { start: start..=start, ..self }
    }
}

/// The actors of a cluster, each with its pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actors(BTreeMap<Actor, Pace>);

impl Actors {
    /// Returns all actors at [`Pace::PROMPT`].
    pub fn all() -> Self {
        Actor::ALL.into_iter().fold(Self::none(), |actors, actor| actors.with(actor, Pace::PROMPT))
    }

    /// Returns an empty set of actors.
    pub fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Returns all actors, each at a pace drawn from the seed: prompt, usual or slow, some with a late start.
    pub fn random(seed: u64) -> Self {
        const PACES: [Pace; 3] = [Pace::PROMPT, Pace::USUAL, Pace::SLOW];
        const LATEST: u64 = 60;
        let mut random = fastrand::Rng::with_seed(seed);
        Actor::ALL.into_iter().fold(Self::none(), |actors, actor| {
            let pace = PACES[random.usize(..PACES.len())].clone();
            let start = Duration::from_secs(if random.u8(..4) == 0 { random.u64(1..=LATEST) } else { 0 });
            actors.with(actor, pace.starting_after(start))
        })
    }

    /// Adds an actor at a pace.
    #[must_use]
    pub fn with(mut self, actor: Actor, pace: Pace) -> Self {
        self.0.insert(actor, pace);
        self
    }

    /// Removes an actor.
    #[must_use]
    pub fn without(mut self, actor: Actor) -> Self {
        self.0.remove(&actor);
        self
    }

    /// Sets the pace of all these actors.
    #[must_use]
    pub fn at(mut self, pace: &Pace) -> Self {
        self.0.values_mut().for_each(|own| own.clone_from(pace));
        self
    }
}

/// The running actors. They stop when this is dropped.
#[derive(Debug)]
#[must_use = "the actors end when this is dropped"]
pub struct Running {
    cluster: Cluster,
    tasks: BTreeMap<Actor, Task>,
}

impl Cluster {
    /// Starts actors.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn run(&self, actors: Actors) -> Running {
        let mut running = Running { cluster: self.clone(), tasks: BTreeMap::new() };
        for (actor, pace) in actors.0 {
            running.start(actor, pace);
        }
        running
    }
}

impl Running {
    /// Starts an actor. If it is already running, it restarts with an empty cache, as after a crash.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&mut self, actor: Actor, pace: Pace) {
        self.stop(actor);
        let api = Api::new(&self.cluster, actor, pace);
        let task = match actor {
            Actor::Binder => spawn(binder::Binder::default(), api),
            Actor::Protection => spawn(protection::Protection::default(), api),
            Actor::Scheduler => spawn(scheduler::Scheduler::default(), api),
            Actor::GarbageCollector => spawn(garbage::GarbageCollector::default(), api),
            Actor::Namespaces => spawn(namespaces::Namespaces::default(), api),
            Actor::Nodes => spawn(nodes::Nodes, api),
        };
        self.tasks.insert(actor, task);
    }

    /// Stops an actor immediately, even in the middle of its work.
    pub fn stop(&mut self, actor: Actor) {
        self.tasks.remove(&actor);
    }
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn spawn<C: Controller>(controller: C, api: Api) -> Task {
    Task(tokio::spawn(Worker::new(controller, api).run()).abort_handle())
}
