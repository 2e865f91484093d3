//! The plan of one run, as plain data.

mod draw;

use std::fmt;
use std::time::Duration;

use crate::refusals::Refusal;

/// One run, drawn from its seed. It does not depend on results of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed of the plan, and of all random choices during the run.
    pub seed: u64,
    /// The duration of the faults. Afterwards, everything must settle.
    pub storm: Duration,
    /// The controller's options.
    pub settings: Settings,
    /// The faults between the controller and the API server.
    pub api: Api,
    /// The speed of the cluster's own controllers.
    pub pace: Pace,
    /// The faults in the backend.
    pub backend: Backend,
    /// The StorageClasses.
    pub classes: Vec<Class>,
    /// The claims, `claim-0` and so on.
    pub claims: Vec<Claim>,
    /// True if there are released volumes of other provisioners, and of other installations of this one.
    pub foreigners: bool,
    /// True if the author implements all methods, rather than only the required ones.
    pub whole_author: bool,
    /// True if every claim that can be bound must be bound at the end of the storm, even if other calls hang.
    pub unhindered: bool,
    /// The users' actions, with their times.
    pub actions: Vec<(When, UserAction)>,
    /// The slots for replicas; each runs its processes one after another.
    pub slots: Vec<Vec<Life>>,
    /// The plan of a second cluster, whose installation of the same provisioner uses the same backend.
    pub other: Option<Box<Plan>>,
    /// The topology of the CSI driver's volumes. Without it every node can use every volume.
    pub topology: Option<Topology>,
}

impl Plan {
    /// Returns true if a backup is restored, in this cluster or in the other.
    pub(crate) fn restores(&self) -> bool {
        self.other.is_some() || self.actions.iter().any(|(_, action)| matches!(action, UserAction::Restore(_)))
    }

    /// Returns true if the account has the permissions of a CSI sidecar, so that journals are Leases.
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

    /// Returns true if some objects are unreadable for a time.
    pub(crate) fn garbles(&self) -> bool {
        self.actions.iter().any(|(_, action)| matches!(action, UserAction::Garble(_) | UserAction::GarbleVolume(_)))
    }
}

/// The options that differ from run to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Time limit of one call of `provision` or `delete`.
    pub call_limit: Duration,
    /// The shortest and the longest pause.
    pub retry: (Duration, Duration),
    /// True if volumes receive a finalizer.
    pub finalizer: bool,
    /// Concurrent backend calls; 0 is the default.
    pub concurrency: usize,
    /// Concurrent backend calls for one class; 0 is its share.
    pub class_concurrency: usize,
    /// Keys reconciled concurrently.
    pub workers: usize,
    /// Time between two full lists.
    pub resync: Duration,
    /// Lease duration, renewal deadline and renewal interval.
    pub lease: (Duration, Duration, Duration),
    /// Time limit for calls to end when a process is asked to stop.
    pub grace: Duration,
    /// Number of characters of the claim's UID in a volume name. Without it, names contain the whole UID.
    pub uid_length: Option<usize>,
}

/// The faults with requests and watches.
#[derive(Clone, Debug, PartialEq)]
pub struct Api {
    /// `Faults::storm` of the seed.
    pub storm: bool,
    /// The longest latency of a request, and of its answer, without a storm.
    pub latency: Duration,
    /// The fraction of requests, answers and watches that hang forever.
    pub hangs: f64,
    /// The fraction of writes that are handled long after their connection broke.
    pub late: f64,
    /// The requests that the API server refuses, with their times.
    pub refusals: Vec<Refusal>,
}

/// The speed of the cluster's own controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Immediate.
    Prompt,
    /// The speed of a cluster under low load.
    Usual,
    /// `Actors::random` of the seed.
    Drawn,
    /// Prompt, but claims are bound slowly.
    Late,
}

/// Frequencies of faults in backend calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backend {
    /// The longest time one step of a call usually takes.
    pub step: Duration,
    /// A step that takes much longer.
    pub slow: f64,
    /// `NothingLeft`; `InUse` or `Retry` of a deletion.
    pub fails: f64,
    /// `Retry`, with any leftovers, including complete assets.
    pub breaks: f64,
    /// `Reschedule`.
    pub reschedules: f64,
    /// `InProgress`, with a partly created asset left behind.
    pub leaves: f64,
    /// `InProgress`, and the backend continues in the background.
    pub background: f64,
    /// A panic.
    pub panics: f64,
    /// A panic while a class's parameters are read.
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
    /// True if every call for this class hangs until the storm is over.
    pub hangs: bool,
    /// `allowVolumeExpansion`.
    pub expands: bool,
}

/// Limits of volumes to some nodes.
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
    /// The verdict of the author's code.
    pub nature: Nature,
    /// True if the claim has so many labels that a few dozen such claims fill a journal.
    pub large: bool,
}

/// The verdict of the author's code on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// It can be provisioned.
    Good,
    /// It is always `Invalid`.
    Invalid,
    /// It is always `Ignored`.
    Ignored,
    /// It is `Invalid` until the storm ends and its class is updated.
    Fickle,
}

/// The time of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this time after the start.
    At(Duration),
    /// Right after this backend step, counted over all calls.
    Step(u32),
    /// Right after this backend step of a removal, counted over all deletions.
    Deletion(u32),
    /// Right after this write of a claim, a volume or a journal by any client.
    Write(u32),
    /// Right after this number of volumes were saved.
    Saved(u32),
}

/// An action of a user. Numbers are indexes of claims or classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAction {
    /// Creates a claim, with a pod if its class waits for one.
    Create(usize),
    /// Deletes a claim and its pod.
    Delete(usize),
    /// Deletes the volume of a claim manually.
    DeleteVolume(usize),
    /// Manually deletes the volume that was saved last.
    DeleteSaved,
    /// Adds a finalizer to a claim, which is removed after the storm.
    HoldClaim(usize),
    /// Adds a finalizer to a claim's volume, which is removed after the storm.
    HoldVolume(usize),
    /// Changes a claim's labels.
    Touch(usize),
    /// Requests this size in Gi for a claim, which may also be smaller than before.
    Grow(usize, u32),
    /// Sets the policy of a claim's volume to Retain (`true`) or Delete.
    Retain(usize, bool),
    /// Creates another provisioner's volume with the name of a claim's volume; it is deleted after the storm.
    Block(usize),
    /// Manually deletes the volume of a claim, and creates another provisioner's volume with its name.
    Replace(usize),
    /// Deletes a class. It is recreated after the storm.
    DropClass(usize),
    /// Recreates a class with other parameters.
    MakeClass(usize),
    /// Changes the journals' annotations.
    TouchJournal,
    /// Adds a meaningless line to the journals.
    CorruptJournal,
    /// Deletes the journals. The lost entries are exempted from the invariants.
    DropJournal,
    /// Compacts the history of changes in the API server.
    Compact,
    /// Backs up claims, volumes and journals. It replaces the previous backup.
    Backup,
    /// Restores missing objects as new ones.
    Restore(Copying),
    /// Restores missing objects into the other cluster.
    RestoreIntoOther(Copying),
    /// Deletes the journals and restores them from the backup. The lost entries are exempted from the invariants.
    RestoreJournals,
    /// Replaces the other cluster's journals with those restored from this cluster's backup.
    RestoreJournalsIntoOther,
    /// Removes the finalizers of a claim and its volume, and both objects. The asset stays.
    ForceDelete(usize),
    /// Removes all finalizers of a claim and its volume, but no objects.
    Strip(usize),
    /// Replaces a claim with its manifest: it loses all labels, annotations and finalizers.
    ReplaceWithManifest(usize),
    /// An administrator creates an asset with the name of a claim's asset, if there is none.
    MakeAsset(usize),
    /// An administrator removes a claim's asset in the backend.
    RemoveAsset(usize),
    /// An administrator marks a claim's asset as another owner's.
    TakeAsset(usize),
    /// Makes a claim unreadable.
    Garble(usize),
    /// Makes a claim's volume unreadable.
    GarbleVolume(usize),
    /// Makes all objects readable again.
    Mend,
    /// Deletes the Node object. Its pods continue to run.
    LoseNode(usize),
    /// Registers a node again, if it does not exist.
    MakeNode(usize),
    /// The CSI driver registers on a node with this number of topology keys.
    Register(usize, usize),
    /// The CSI driver is no longer registered on a node.
    Unregister(usize),
    /// Labels a node with another zone, or removes that label.
    Label(usize, Option<usize>),
}

/// The way in which a backup is restored. UIDs, owners and status are never restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// Same as `kubectl create`: all other fields stay.
    Plain,
    /// The reference to the claim loses the uid, so that the volume can be bound again.
    Unbound,
    /// Same as [Velero](https://velero.io/docs/main/restore-reference/): the fields that mark the volume as bound and
    /// provisioned are removed, and `managedFields` are restored.
    Velero,
    /// All other fields stay, and `managedFields` are restored.
    Thorough,
}

/// One process, from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    /// Time between the end of the previous process and its start.
    pub after: Duration,
    /// Seconds by which its clock is ahead.
    pub skew: i64,
    /// The way in which it shares work with other replicas.
    pub sharing: Sharing,
    /// Delay of its deletion events for volumes.
    pub lag: Duration,
    /// Its faults.
    pub faults: Vec<(Trigger, ProcessFault)>,
}

/// The way in which replicas share work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// With this number of Leases.
    Leases(u32),
    /// Each replica has a node of its own.
    Nodes,
    /// There is only one replica at a time.
    Alone,
}

/// A fault of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessFault {
    /// It crashes.
    Crash,
    /// It is asked to stop.
    Stop,
    /// It pauses for this time.
    Freeze(Duration),
}

/// The time of a fault of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At this time after its start.
    At(Duration),
    /// At this passage of such an edge, counted from 1.
    Edge(Edge, u32),
}

/// A point where a process interacts with its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Before a request is sent.
    Request,
    /// After a request was handled, before its answer arrives.
    Answer,
    /// After a write of a claim or volume was handled, before its answer arrives.
    Write,
    /// After a write of a journal was handled, before its answer arrives.
    Journal,
    /// Before or after a step in the author's code.
    Step,
}

impl Edge {
    /// Number of kinds.
    pub(crate) const COUNT: usize = 5;
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, storm, settings, api, pace, backend, classes, claims, actions, slots, .. } = self;
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
        for (when, action) in actions {
            writeln!(f, "{when:?}: {action:?}")?;
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
