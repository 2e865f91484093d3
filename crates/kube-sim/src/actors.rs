//! What runs beside the API server in a real cluster, as far as provisioners meet it.
//!
//! [`Cluster::run`] starts the actors. Each is one controller of kube-controller-manager, or kube-scheduler; it reacts to
//! what happens in the cluster and writes as the real one does. Each can be prompt, slow, late, or not there at all;
//! how slow and how late at each turn is drawn from the cluster's seed, so the same seed gives the same run.
//!
//! What they do not do: CSI migration of in-tree provisioners, recycling of volumes, and what needs a kubelet.

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

/// A part of a cluster beside its API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// `persistentvolume-binder-controller`: asks the external provisioner, binds claims and volumes, releases volumes.
    Binder,
    /// `persistentvolumeclaim-protection-controller` and `persistentvolume-protection-controller`: claims stay while pods
    /// use them, volumes while they are bound.
    Protection,
    /// kube-scheduler: selects nodes for claims that wait for their first consumer, and binds pods to nodes.
    Scheduler,
    /// `garbage-collector-controller`: deletes what belongs to owners that are gone.
    GarbageCollector,
    /// `namespace-controller`: empties namespaces that are going, and lets them go.
    Namespaces,
    /// `node-lifecycle-controller`: takes the taint from nodes that are ready, taints those that are not or are cordoned.
    Nodes,
}

impl Actor {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Binder, Self::Protection, Self::Scheduler, Self::GarbageCollector, Self::Namespaces, Self::Nodes];

    /// The user it is.
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

/// How fast an actor is. Each range is drawn from anew at each turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// How long after [`Cluster::run`] it starts.
    pub start: RangeInclusive<Duration>,
    /// How much later than it happens it sees a change.
    pub lag: RangeInclusive<Duration>,
    /// How long each of its requests takes.
    pub request: RangeInclusive<Duration>,
}

impl Pace {
    /// Everything happens at once.
    pub const PROMPT: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::ZERO..=Duration::ZERO,
        request: Duration::ZERO..=Duration::ZERO,
    };

    /// As in a cluster with little to do.
    pub const USUAL: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::ZERO..=Duration::from_millis(10),
        request: Duration::from_millis(1)..=Duration::from_millis(15),
    };

    /// As in a cluster that is overwhelmed.
    pub const SLOW: Self = Self {
        start: Duration::ZERO..=Duration::ZERO,
        lag: Duration::from_millis(50)..=Duration::from_secs(3),
        request: Duration::from_millis(20)..=Duration::from_secs(2),
    };

    /// The same, but it starts after a while, as a controller whose election takes that long.
    #[must_use]
    pub fn starting_after(self, start: Duration) -> Self {
        Self { start: start..=start, ..self }
    }
}

/// Which actors a cluster has, and how fast they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actors(BTreeMap<Actor, Pace>);

impl Actors {
    /// All of them, prompt.
    pub fn all() -> Self {
        Actor::ALL.into_iter().fold(Self::none(), |actors, actor| actors.with(actor, Pace::PROMPT))
    }

    /// None of them.
    pub fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// All of them, each as fast as a seed says: prompt, as usual or slow, and some late.
    pub fn drawn(seed: u64) -> Self {
        const PACES: [Pace; 3] = [Pace::PROMPT, Pace::USUAL, Pace::SLOW];
        const LATEST: u64 = 60;
        let mut random = fastrand::Rng::with_seed(seed);
        Actor::ALL.into_iter().fold(Self::none(), |actors, actor| {
            let pace = PACES[random.usize(..PACES.len())].clone();
            let start = Duration::from_secs(if random.u8(..4) == 0 { random.u64(1..=LATEST) } else { 0 });
            actors.with(actor, pace.starting_after(start))
        })
    }

    /// This one too, at that pace.
    #[must_use]
    pub fn with(mut self, actor: Actor, pace: Pace) -> Self {
        self.0.insert(actor, pace);
        self
    }

    /// Not this one.
    #[must_use]
    pub fn without(mut self, actor: Actor) -> Self {
        self.0.remove(&actor);
        self
    }

    /// All of these at that pace.
    #[must_use]
    pub fn at(mut self, pace: &Pace) -> Self {
        self.0.values_mut().for_each(|own| own.clone_from(pace));
        self
    }
}

impl Default for Actors {
    fn default() -> Self {
        Self::all()
    }
}

/// Actors at work. They end when this is dropped.
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
    /// Starts an actor; one that runs is replaced by one that knows nothing yet, as at a crash.
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

    /// Ends an actor, in the middle of whatever it does.
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
