//! Everything that will happen in one run, as plain data.

mod draw;

use std::fmt;
use std::time::Duration;

use crate::refusals::Refusal;

/// One run, drawn from its seed: nothing in it depends on what the run will show.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it was drawn from, and what everything else that is drawn during the run is drawn from.
    pub seed: u64,
    /// How long things go wrong. After it everything must come to its end.
    pub storm: Duration,
    /// The controller's options.
    pub settings: Settings,
    /// The faults between the controller and the API server.
    pub api: Api,
    /// How fast the cluster's own controllers are.
    pub pace: Pace,
    /// The faults in the backend.
    pub backend: Backend,
    /// The StorageClasses.
    pub classes: Vec<Class>,
    /// The claims, `claim-0` and so on.
    pub claims: Vec<Claim>,
    /// Whether there are released volumes of other provisioners, and of other installations of this one.
    pub foreigners: bool,
    /// Whether the author has all the methods that one can have, or only those that one must have.
    pub whole_author: bool,
    /// Whether every claim that can be bound is bound when the storm is over, whatever hangs beside it.
    pub unhindered: bool,
    /// What users do, and when.
    pub deeds: Vec<(When, Deed)>,
    /// The places for replicas; each lives its lives one after the other.
    pub slots: Vec<Vec<Life>>,
    /// What happens in a second cluster, whose installation of the same provisioner uses the same backend.
    pub other: Option<Box<Plan>>,
    /// How the volumes of the CSI driver are limited to some nodes. Otherwise every node can use every volume.
    pub topology: Option<Topology>,
}

impl Plan {
    /// Whether something is restored from a backup, in this cluster or in the other.
    pub(crate) fn restores(&self) -> bool {
        self.other.is_some() || self.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Restore(_)))
    }

    /// Whether the account has the rights of a CSI sidecar, so that journals are Leases.
    pub(crate) fn has_sidecar_rbac(&self) -> bool {
        self.seed % 5 == 3 || self.topology.is_some()
    }

    /// The name of the volume of the claim with this uid.
    pub(crate) fn volume_name(&self, uid: &str) -> String {
        match self.settings.uid_length {
            None => format!("pvc-{uid}"),
            Some(length) => format!("pvc-{}", &uid[..length]),
        }
    }

    /// Whether some objects cannot be read for a time.
    pub(crate) fn garbles(&self) -> bool {
        self.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Garble(_) | Deed::GarbleVolume(_)))
    }
}

/// The options that differ from run to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time limit of one call of `provision` or `delete`.
    pub call_limit: Duration,
    /// The first pause and the longest one.
    pub retry: (Duration, Duration),
    /// Whether volumes get a finalizer.
    pub finalizer: bool,
    /// Calls of the backend at a time; 0 is the default.
    pub concurrency: usize,
    /// Calls of the backend at a time for one class; 0 is its share.
    pub class_concurrency: usize,
    /// Keys worked on at a time.
    pub workers: usize,
    /// Time between two complete reads.
    pub resync: Duration,
    /// How long a Lease lasts, how long it is trusted, and how often it is renewed.
    pub lease: (Duration, Duration, Duration),
    /// How long work may take to end when a process is asked to end.
    pub grace: Duration,
    /// How many characters of the claim's uid a volume's name has. Otherwise the whole uid.
    pub uid_length: Option<usize>,
}

/// The faults with requests and watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Api {
    /// `Faults::storm` of the seed.
    pub storm: bool,
    /// The longest way of a request, and of its answer, where there is no storm.
    pub latency: Duration,
    /// How many requests, answers and watches hang forever.
    pub hangs: f64,
    /// How many writes are handled long after their connection broke.
    pub late: f64,
    /// What the API server refuses, and when.
    pub refusals: Vec<Refusal>,
}

/// How fast the cluster's own controllers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Prompt,
    /// As in a cluster with little to do.
    Usual,
    /// `Actors::drawn` of the seed.
    Drawn,
    /// Prompt, but claims are bound slowly.
    Late,
}

/// How often calls of the backend end otherwise than they should.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// The longest time one step of a call usually takes.
    pub step: Duration,
    /// A step that takes far longer.
    pub slow: f64,
    /// `NothingLeft`; `InUse` or `Retry` of a deletion.
    pub fails: f64,
    /// `Retry`, with anything left behind, whole assets too.
    pub breaks: f64,
    /// `Reschedule`.
    pub reschedules: f64,
    /// `InProgress`, with something half-made left behind.
    pub leaves: f64,
    /// `InProgress`, and the backend continues by itself.
    pub background: f64,
    /// A panic.
    pub panics: f64,
    /// A panic where a class's parameters are read.
    pub parse_panics: f64,
    /// `start` fails or panics.
    pub start_fails: f64,
    /// No answer within the time limit.
    pub overruns: f64,
}

/// A StorageClass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// `WaitForFirstConsumer`.
    pub waits: bool,
    /// `reclaimPolicy: Retain`.
    pub retains: bool,
    /// Every call about it hangs until the storm is over.
    pub hangs: bool,
    /// `allowVolumeExpansion`.
    pub expands: bool,
}

/// How volumes are limited to some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// `--strict-topology`.
    pub strict: bool,
    /// `--immediate-topology`.
    pub immediate: bool,
    /// For each class, the zones in its `allowedTopologies`. Empty: the class has none.
    pub allowed: Vec<Vec<usize>>,
    /// For each node, the number of topology keys that the driver registers there: the zone, or zone and host name.
    pub keys: [usize; 3],
}

/// A claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Index of its class.
    pub class: usize,
    /// What the author's code thinks of it.
    pub nature: Nature,
    /// Whether it has as many labels as a journal takes: a few dozen of these fill one.
    pub large: bool,
}

/// What the author's code thinks of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It can be provisioned.
    Good,
    /// It is always `Invalid`.
    Invalid,
    /// It is always `Ignored`.
    Ignored,
    /// It is `Invalid` until the storm is over and its class is touched.
    Fickle,
}

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// That long after the start.
    At(Duration),
    /// Right after that step of the backend, counted over all calls.
    Step(u32),
    /// Right after that step of the backend towards an end, counted over all deletions.
    Deletion(u32),
    /// Right after that write of a claim, a volume or a journal, whoever writes.
    Write(u32),
    /// Right after that many volumes were saved.
    Saved(u32),
}

/// What a user does. Numbers are claims or classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Creates a claim, with a pod where its class waits for one.
    Create(usize),
    /// Deletes a claim and its pod.
    Delete(usize),
    /// Deletes the volume of a claim by hand.
    DeleteVolume(usize),
    /// Deletes the volume that was saved last by hand.
    DeleteSaved,
    /// Puts a finalizer on a claim, which is taken away after the storm.
    HoldClaim(usize),
    /// Puts a finalizer on a claim's volume, which is taken away after the storm.
    HoldVolume(usize),
    /// Changes a claim's labels.
    Touch(usize),
    /// Has a claim ask for that many Gi, which may also be less than before.
    Grow(usize, u32),
    /// Makes a claim's volume one to be kept (`true`), or one to be deleted.
    Retain(usize, bool),
    /// Creates a volume of somebody else with the name that a claim's volume would have; it goes after the storm.
    Block(usize),
    /// Deletes the volume of a claim by hand, and creates one of somebody else with its name.
    Replace(usize),
    /// Deletes a class. It is there again after the storm.
    DropClass(usize),
    /// Creates a class again, with other parameters.
    MakeClass(usize),
    /// Changes the journals' annotations.
    TouchJournal,
    /// Adds a line to the journals that means nothing.
    SoilJournal,
    /// Deletes the journals: what they knew is forgiven.
    DropJournal,
    /// Has the API server forget the history of all changes.
    Compact,
    /// Makes a backup of claims, volumes and journals. It replaces the one before.
    Backup,
    /// Restores what is not there, as new objects.
    Restore(Copying),
    /// The same into the other cluster.
    RestoreThere(Copying),
    /// Deletes the journals and restores them from the backup: what they knew is forgiven.
    RestoreJournals,
    /// Restores the journals of this cluster in place of those of the other.
    RestoreJournalsThere,
    /// Removes the finalizers of a claim and its volume, and both objects. The asset stays.
    Lose(usize),
    /// Removes all finalizers of a claim and its volume, and no object.
    Strip(usize),
    /// Replaces a claim by its manifest: it loses all labels, annotations and finalizers.
    Undress(usize),
    /// An administrator makes an asset where a claim's would be, if there is none.
    MakeAsset(usize),
    /// An administrator removes a claim's asset in the backend.
    RemoveAsset(usize),
    /// An administrator marks a claim's asset as somebody else's.
    TakeAsset(usize),
    /// From now on nobody can decode a claim.
    Garble(usize),
    /// From now on nobody can decode a claim's volume.
    GarbleVolume(usize),
    /// Everything can be decoded again.
    Mend,
    /// Deletes the object of a node. What runs there goes on.
    LoseNode(usize),
    /// Registers a node again, if it is gone.
    MakeNode(usize),
    /// The CSI driver registers on a node with that many topology keys.
    Register(usize, usize),
    /// The CSI driver is no longer registered on a node.
    Unregister(usize),
    /// Labels a node with another zone, or removes that label.
    Label(usize, Option<usize>),
}

/// How a backup is restored. Nothing restores uids, owners and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// As `kubectl create` does: everything else stays.
    Plain,
    /// The reference to the claim loses the uid, so that the volume can be bound again.
    Unbound,
    /// As [Velero](https://velero.io/docs/main/restore-reference/) does: nothing says any more that the volume is bound,
    /// or was provisioned, and `managedFields` are restored.
    Velero,
    /// Everything stays, and `managedFields` are restored.
    Thorough,
}

/// One process, from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    /// How long after the end of the one before it starts.
    pub after: Duration,
    /// How many seconds its clock is ahead.
    pub skew: i64,
    /// How it shares the work with others.
    pub sharing: Sharing,
    /// How late it hears that volumes are gone.
    pub lag: Duration,
    /// What happens to it.
    pub fates: Vec<(Trigger, Fate)>,
}

/// How replicas share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By that many Leases.
    Leases(u32),
    /// Each has a node of its own.
    Nodes,
    /// There is only one at a time.
    Alone,
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends in the middle of whatever it does.
    Crash,
    /// It is asked to end.
    Stop,
    /// It stands still for that long.
    Freeze(Duration),
}

/// When it happens to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// That long after its start.
    At(Duration),
    /// At that passage of such an edge, counted from 1.
    Edge(Edge, u32),
}

/// Where a process meets the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Before a request is sent.
    Request,
    /// When a request was handled, and its answer is on its way.
    Answer,
    /// When a write of a claim or volume was handled, and its answer is on its way.
    Write,
    /// When a write of a journal was handled, and its answer is on its way.
    Journal,
    /// Before or after a step in the author's code.
    Step,
}

impl Edge {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 5;
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, storm, settings, api, pace, backend, classes, claims, deeds, slots, .. } = self;
        if let Some(topology) = &self.topology {
            writeln!(f, "{topology:?}")?;
        }
        writeln!(f, "seed {seed}, {} s of storm", storm.as_secs())?;
        writeln!(f, "whole author: {}, unhindered: {}", self.whole_author, self.unhindered)?;
        writeln!(f, "{settings:?}\n{api:?}, actors {pace:?}\n{backend:?}")?;
        for (index, class) in classes.iter().enumerate() {
            writeln!(f, "class-{index}: {class:?}")?;
        }
        for (index, claim) in claims.iter().enumerate() {
            writeln!(f, "claim-{index}: {claim:?}")?;
        }
        if self.foreigners {
            writeln!(f, "with volumes of others")?;
        }
        for (when, deed) in deeds {
            writeln!(f, "{when:?}: {deed:?}")?;
        }
        for (index, lives) in slots.iter().enumerate() {
            for life in lives {
                writeln!(f, "replica {index}: {life:?}")?;
            }
        }
        if let Some(other) = &self.other {
            writeln!(f, "\nin the other cluster:\n{other}")?;
        }
        Ok(())
    }
}
