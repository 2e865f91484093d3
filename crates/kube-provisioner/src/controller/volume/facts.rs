//! Everything that is known of one key, as plain data: what `decide` decides on.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;
use provisioner_runtime::controller::unpanicked;
use provisioner_runtime::stable_hash;
use tokio::time::Instant;

use super::backend::{Backend, Parsed};
use super::key::Key;
use super::narrow::{self, ClaimRef};
use super::secret_names::{self, SecretName};
use crate::capabilities::Capabilities;
use crate::protocol;
use crate::quantity;

/// Everything that is known of one key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) claim: ClaimState,
    pub(crate) class: ClassState,
    pub(crate) volume: VolumeState,
    pub(crate) progress: Progress,
    /// The claim that the volume names, by its uid, exists: whatever the volume is called, and even if it is being deleted.
    pub(crate) owner_lives: bool,
}

impl Facts {
    /// The claim that the work is about, as it was when the work began if it is gone.
    pub(crate) fn claim_at_work(&self) -> Option<&ClaimFacts> {
        match (&self.claim, &self.progress) {
            (ClaimState::Waiting(claim), _) => Some(&claim.facts),
            (_, Progress::Background(pending)) => Some(&pending.claim.facts),
            (_, Progress::Unsaved(unsaved) | Progress::Surplus(unsaved)) => Some(&unsaved.pending.claim.facts),
            _ => None,
        }
    }

    /// Whether the claim records an attempt that was begun with other parameters of its class.
    pub(crate) fn is_held_for_another_class(&self) -> bool {
        let (ClaimState::Waiting(claim), ClassState::Ours(class)) = (&self.claim, &self.class) else { return false };
        claim.held.as_deref().is_some_and(|mark| !mark.is_empty() && *mark != *class.mark())
    }

    /// The attempt that may have left something in the backend.
    pub(crate) fn attempt(&self) -> Option<&Arc<Pending>> {
        match &self.progress {
            Progress::Background(pending) => Some(pending),
            Progress::Unsaved(unsaved) | Progress::Surplus(unsaved) => Some(&unsaved.pending),
            _ => None,
        }
    }

    /// The class and the kind of data source that the work is counted under. Both are of a bounded number, whatever claims say.
    pub(crate) fn labels(&self) -> (Option<&str>, Option<&str>) {
        let class = match (self.attempt(), &self.class, &self.volume) {
            (Some(pending), ..) => Some(pending.class.name()),
            (None, ClassState::Ours(class), _) => Some(class.name()),
            (None, _, VolumeState::Ours(volume)) => volume.facts.class.as_deref(),
            _ => None,
        };
        let source = self.claim_at_work().and_then(|claim| claim.data_source.as_ref()).map(DataSource::label);
        (class, source)
    }
}

/// What a claim wants its volume filled from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DataSource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl DataSource {
    /// Kind and group, as authors declare them.
    pub(crate) fn type_name(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether somebody else fills the volume once it exists, by way of another claim: neither a clone nor a snapshot.
    /// <https://kubernetes.io/docs/concepts/storage/volume-populators/>
    pub(crate) fn needs_populator(&self) -> bool {
        self.label() == "other"
    }

    fn label(&self) -> &'static str {
        match (self.kind.as_str(), self.group.as_str()) {
            ("PersistentVolumeClaim", "") => "PersistentVolumeClaim",
            ("VolumeSnapshot", "snapshot.storage.k8s.io") => "VolumeSnapshot",
            _ => "other",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum ClaimState {
    /// There is no such claim, or it asks somebody else.
    #[default]
    Absent,
    /// The claim has its volume. `held`: our finalizer is still on it.
    Settled { bound_here: bool, deleting: bool, held: Option<Arc<HeldClaim>> },
    /// The claim asks us and has no volume yet.
    Waiting(Arc<WaitingClaim>),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum ClassState {
    #[default]
    Missing,
    /// The class names another provisioner.
    Foreign,
    Ours(Arc<OurClass>),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum VolumeState {
    #[default]
    Absent,
    /// A volume of that name exists and is not ours.
    Foreign,
    Ours(Arc<OurVolume>),
}

/// How far the work on a key has come beyond what the API server shows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Progress {
    #[default]
    None,
    /// The backend may be at work for this claim, which may be gone by now.
    Background(Arc<Pending>),
    /// The asset is made, its PersistentVolume is not saved.
    Unsaved(Arc<UnsavedVolume>),
    /// The asset is made, and somebody else's volume has its name and another asset.
    Surplus(Arc<UnsavedVolume>),
    /// An attempt was begun, and its entry is still in the journal of a replica that is gone.
    AwaitsAdoption,
    /// The volume went while the claim looked unbound: ask the API server before making another.
    Confirm,
    /// The asset of the volume with this uid is gone; the object may remain.
    BackendDeleted { uid: Arc<str>, finished: bool },
}

/// A claim and its class as they were when the work began.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) claim: Arc<WaitingClaim>,
    pub(crate) class: Arc<OurClass>,
    /// See [`ProvisionRequest::token`](crate::ProvisionRequest::token).
    pub(crate) token: Arc<str>,
    /// When this process began it, or took it over.
    pub(crate) begun: Instant,
}

/// A PersistentVolume that is still to be saved.
#[derive(Debug)]
pub(crate) struct UnsavedVolume {
    pub(crate) name: String,
    pub(crate) pending: Arc<Pending>,
    /// The object as it is sent.
    pub(crate) body: Vec<u8>,
}

/// A claim that asks us for a volume: what rules read, and the whole object for the author.
#[derive(Debug)]
pub(crate) struct WaitingClaim {
    pub(crate) facts: ClaimFacts,
    /// `facts` and nothing else: an unrelated update has the same.
    pub(crate) fingerprint: u64,
    pub(crate) resource_version: Box<str>,
    /// Who is at work for it, in fleets where claims are locked. No fact: that it changes means nothing.
    pub(crate) lock: Option<Box<str>>,
    /// Our finalizer is on the claim, which records an attempt by itself, and what the attempt was begun with, see [`OurClass::mark`].
    pub(crate) held: Option<Box<str>>,
    /// The claim's finalizers, where it may record an attempt.
    pub(crate) finalizers: Vec<String>,
    /// When it was first seen to wait.
    pub(crate) since: Instant,
    /// What the author gets of it, as JSON: a third of the size of the decoded object. Nothing once the volume is saved: the
    /// claim is read again in the rare case that it needs another.
    pub(crate) object: Option<Box<str>>,
}

/// A claim that still has our finalizer, although it has a volume.
#[derive(Debug)]
pub(crate) struct HeldClaim {
    pub(crate) claim: ClaimFacts,
    pub(crate) finalizers: Vec<String>,
    pub(crate) lock: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimFacts {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) deleting: bool,
    pub(crate) class: Option<Box<str>>,
    pub(crate) block: bool,
    pub(crate) access_modes: Vec<String>,
    pub(crate) selector: bool,
    pub(crate) data_source: Option<DataSource>,
    pub(crate) attributes_class: Option<Box<str>>,
    pub(crate) selected_node: Option<Box<str>>,
    /// The requested bytes, or what is wrong with the request.
    pub(crate) request: Result<u64, String>,
}

impl ClaimFacts {
    /// Reads a claim. `None` for an object that lacks what every stored object has.
    pub(crate) fn read(claim: &narrow::Claim) -> Option<Self> {
        let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            namespace: meta.namespace.as_deref()?.into(),
            name: meta.name.as_deref()?.into(),
            deleting: meta.deletion_timestamp.is_some(),
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
            access_modes: spec.access_modes,
            selector: spec.selector.is_some(),
            data_source: spec.data_source_ref.or(spec.data_source).map(|source| DataSource {
                group: source.api_group.unwrap_or_default(),
                kind: source.kind,
                name: source.name,
            }),
            attributes_class: spec.volume_attributes_class_name.filter(|name| !name.is_empty()).map(Into::into),
            selected_node: meta.annotations.selected_node.as_deref().filter(|node| !node.is_empty()).map(Into::into),
            request: requested_bytes(spec.resources.requests.get("storage")),
        })
    }
}

/// A class of ours, with its parameters parsed once.
#[derive(Debug)]
pub(crate) struct OurClass {
    /// As the author gets it.
    pub(crate) object: Arc<StorageClass>,
    /// Changes whenever the class does.
    pub(crate) fingerprint: u64,
    pub(crate) waits_for_consumer: bool,
    /// What the author gets, or what is wrong with the parameters.
    pub(crate) parameters: Result<ClassParameters, BadParameters>,
    /// The class as the journal keeps it, under its name there.
    pub(crate) snapshot: (String, Arc<str>),
}

/// A class's parameters: the author's, and the Secrets that they name.
#[derive(Clone, Debug)]
pub(crate) struct ClassParameters {
    pub(crate) parsed: Parsed,
    pub(crate) secrets: Vec<SecretName>,
}

/// Why a class's parameters cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadParameters {
    /// They are wrong, however often they are read.
    Wrong(String),
    /// The author's code crashed.
    Crashed(String),
}

impl ClassParameters {
    /// Calls the author's code.
    fn read(class: &StorageClass, backend: &dyn Backend, capabilities: &Capabilities) -> Result<Self, BadParameters> {
        let mut parameters = class.parameters.clone().unwrap_or_default();
        let secrets = secret_names::take(&mut parameters, &capabilities.secrets).map_err(BadParameters::Wrong)?;
        let parsed = unpanicked(|| backend.parse(&parameters)).map_err(BadParameters::Crashed)?;
        Ok(Self { parsed: parsed.map_err(|error| BadParameters::Wrong(error.to_string()))?, secrets })
    }
}

impl OurClass {
    /// Calls the author's code, so no lock may be held. `snapshot` is the class as [`OurClass::snapshot`] writes it.
    pub(crate) fn read(
        object: StorageClass,
        fingerprint: u64,
        (backend, capabilities): (&dyn Backend, &Capabilities),
        snapshot: (String, Arc<str>),
    ) -> Self {
        Self {
            fingerprint,
            waits_for_consumer: object.volume_binding_mode.as_deref() == Some(protocol::WAIT_FOR_FIRST_CONSUMER),
            parameters: ClassParameters::read(&object, backend, capabilities),
            object: Arc::new(object),
            snapshot,
        }
    }

    /// The same class, read once more. Calls the author's code.
    pub(crate) fn read_again(&self, backend: (&dyn Backend, &Capabilities)) -> Self {
        Self::read((*self.object).clone(), self.fingerprint, backend, self.snapshot.clone())
    }

    /// What an attempt that its claim records was begun with, as the claim's annotation: enough to see that its class was made
    /// anew with other parameters. Not the parameters themselves: whoever owns the claim could write them.
    pub(crate) fn mark(&self) -> String {
        let StorageClass { provisioner, parameters, .. } = &*self.object;
        // What was read as JSON can be written as JSON, and a map has one order.
        let text = serde_json::to_string(&(provisioner, parameters)).unwrap_or_default();
        format!("{:016x}", stable_hash(&text))
    }

    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether this one was made anew after the other was deleted. Our watch may be behind an attempt of a former holder.
    pub(crate) fn replaces(&self, other: &Self) -> bool {
        let (this, other) = (&self.object.metadata, &other.object.metadata);
        let version = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let versions = version(&this.resource_version).zip(version(&other.resource_version));
        this.uid != other.uid && versions.is_none_or(|(this, other)| this > other)
    }
}

/// A volume of ours.
#[derive(Debug)]
pub(crate) struct OurVolume {
    pub(crate) facts: VolumeFacts,
    pub(crate) resource_version: Box<str>,
    /// As that of a claim.
    pub(crate) lock: Option<Box<str>>,
}

impl OurVolume {
    /// The key of the claim whose volume this is.
    pub(crate) fn owner(&self) -> Option<Key> {
        let uid = &self.facts.claim.as_ref()?.uid;
        (!uid.is_empty()).then(|| Key::of_claim(uid))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VolumeFacts {
    pub(crate) uid: Arc<str>,
    pub(crate) phase: Phase,
    pub(crate) policy: ReclaimPolicy,
    pub(crate) deleting: bool,
    /// Has our finalizer.
    pub(crate) protected: bool,
    pub(crate) claim: Option<ClaimRef>,
    pub(crate) class: Option<Box<str>>,
    /// The installation that made it, if it says so.
    pub(crate) identity: Option<Box<str>>,
    /// The deletion of its asset has begun, and that is recorded on the volume itself.
    pub(crate) deletion_begun: bool,
}

impl VolumeFacts {
    pub(crate) fn read(volume: &narrow::Volume) -> Option<Self> {
        let (meta, spec) = (&volume.metadata, volume.spec.clone().unwrap_or_default());
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            phase: Phase::read(volume.status.phase.as_deref()),
            policy: ReclaimPolicy::read(spec.persistent_volume_reclaim_policy.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            protected: meta.finalizers.iter().any(|name| name == protocol::FINALIZER),
            claim: spec.claim_ref,
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            identity: meta.annotations.identity.clone(),
            deletion_begun: meta.annotations.deleting.is_some()
                && meta.annotations.deleting.as_deref() == meta.uid.as_deref(),
        })
    }
}

impl VolumeFacts {
    /// Stands for what work on the volume depends on. What we ourselves write while we delete it must not cut the pause
    /// after a failed deletion short.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self.phase {
            Phase::Released => fingerprint(&Self { deleting: false, deletion_begun: false, ..self.clone() }),
            _ => fingerprint(self),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Pending,
    Available,
    Bound,
    Released,
    Failed,
}

impl Phase {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("Available") => Self::Available,
            Some("Bound") => Self::Bound,
            Some("Released") => Self::Released,
            Some("Failed") => Self::Failed,
            _ => Self::Pending,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReclaimPolicy {
    Delete,
    /// `Retain`, `Recycle` and whatever a later version adds: not ours to delete.
    Keep,
}

impl ReclaimPolicy {
    fn read(text: Option<&str>) -> Self {
        if text == Some("Delete") { Self::Delete } else { Self::Keep }
    }
}

/// The number that stands for `value` in a comparison with an earlier one.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The beta annotation wins when it is present, even empty.
fn class_name(annotation: Option<&str>, field: Option<&str>) -> Option<Box<str>> {
    annotation.or(field).filter(|name| !name.is_empty()).map(Into::into)
}

fn requested_bytes(storage: Option<&serde_json::Value>) -> Result<u64, String> {
    match storage {
        None | Some(serde_json::Value::Null) => Ok(0),
        Some(serde_json::Value::String(text)) => quantity::parse_bytes(text).map_err(|error| error.to_string()),
        Some(other) => quantity::parse_bytes(&other.to_string()).map_err(|error| error.to_string()),
    }
}
