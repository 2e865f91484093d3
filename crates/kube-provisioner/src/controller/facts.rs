//! Everything that is known of one key, as plain data: what `decide` decides on.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::storage::v1::StorageClass;

use super::erased::{Backend, Parsed};
use super::watched::{self, ClaimRef};
use crate::protocol;
use crate::quantity;

/// Everything that is known of one key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) claim: ClaimState,
    pub(crate) class: ClassState,
    pub(crate) volume: VolumeState,
    pub(crate) progress: Progress,
}

impl Facts {
    /// The claim that the work is about, as it was when the work began if it is gone.
    pub(crate) fn claim_at_work(&self) -> Option<&ClaimFacts> {
        match (&self.claim, &self.progress) {
            (ClaimState::Waiting(claim), _) => Some(&claim.facts),
            (_, Progress::Background(pending)) => Some(&pending.claim.facts),
            (_, Progress::Unsaved(unsaved)) => Some(&unsaved.pending.claim.facts),
            _ => None,
        }
    }

    /// The class and the kind of data source that the work is counted under.
    pub(crate) fn labels(&self) -> (Option<&str>, Option<&str>) {
        match (self.claim_at_work(), &self.volume) {
            (Some(claim), _) => (claim.class.as_deref(), claim.data_source.as_ref().map(|(kind, _)| kind.as_str())),
            (None, VolumeState::Ours(volume)) => (volume.facts.class.as_deref(), None),
            (None, _) => (None, None),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum ClaimState {
    /// There is no such claim, or it asks somebody else.
    #[default]
    Absent,
    /// The claim has its volume.
    Settled { bound_here: bool, deleting: bool },
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
    /// When it was first seen to wait.
    pub(crate) since: tokio::time::Instant,
    /// The object's JSON, a third of the size of the decoded object. Nothing once the volume is saved: the claim is read
    /// again in the rare case that it needs another.
    pub(crate) object: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimFacts {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) deleting: bool,
    /// The author's `accepts` said no.
    pub(crate) vetoed: bool,
    pub(crate) class: Option<Box<str>>,
    pub(crate) block: bool,
    pub(crate) access_modes: Vec<String>,
    pub(crate) selector: bool,
    /// Kind and name of the data source.
    pub(crate) data_source: Option<(String, String)>,
    pub(crate) attributes_class: Option<Box<str>>,
    pub(crate) selected_node: Option<Box<str>>,
    /// The requested bytes, or what is wrong with the request.
    pub(crate) request: Result<u64, String>,
}

impl ClaimFacts {
    /// Reads a claim. `None` for an object that lacks what every stored object has.
    pub(crate) fn read(claim: &watched::Claim, vetoed: bool) -> Option<Self> {
        let (meta, spec) = (&claim.metadata, claim.spec.clone().unwrap_or_default());
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            namespace: meta.namespace.as_deref()?.into(),
            name: meta.name.as_deref()?.into(),
            deleting: meta.deletion_timestamp.is_some(),
            vetoed,
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
            access_modes: spec.access_modes,
            selector: spec.selector.is_some(),
            data_source: spec.data_source_ref.or(spec.data_source).map(|source| (source.kind, source.name)),
            attributes_class: spec.volume_attributes_class_name.filter(|name| !name.is_empty()).map(Into::into),
            selected_node: meta.annotations.selected_node.as_deref().filter(|node| !node.is_empty()).map(Into::into),
            request: requested_bytes(spec.resources.requests.get("storage")),
        })
    }
}

/// A class of ours, with its parameters parsed once.
#[derive(Debug)]
pub(crate) struct OurClass {
    pub(crate) object: Arc<StorageClass>,
    /// Changes whenever the class does.
    pub(crate) fingerprint: u64,
    pub(crate) waits_for_consumer: bool,
    /// What the author gets, or what is wrong with the parameters.
    pub(crate) parameters: Result<Parsed, String>,
    /// The class as the journal keeps it, under its name there.
    pub(crate) snapshot: (String, Arc<str>),
}

impl OurClass {
    pub(crate) fn read(
        object: StorageClass,
        fingerprint: u64,
        backend: &dyn Backend,
        snapshot: (String, Arc<str>),
    ) -> Self {
        let parameters = backend.parse(object.parameters.as_ref().unwrap_or(&BTreeMap::new()));
        Self {
            fingerprint,
            waits_for_consumer: object.volume_binding_mode.as_deref() == Some(protocol::WAIT_FOR_FIRST_CONSUMER),
            parameters: parameters.map_err(|error| error.to_string()),
            object: Arc::new(object),
            snapshot,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
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
}

impl VolumeFacts {
    pub(crate) fn read(volume: &watched::Volume) -> Option<Self> {
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
        })
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
