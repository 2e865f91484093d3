//! The facts about one key, as plain data: the input of `decide`.

mod claim;
mod class;
mod growth;
mod volume;

use std::sync::Arc;

use provisioner_runtime::limiter::{Flow, Purpose};
use tokio::time::Instant;

use crate::prepared::Prepared;

pub(crate) use self::claim::{ClaimFacts, DataSource, UnreadableClaim, WaitingClaim};
pub(crate) use self::class::OurClass;
pub(crate) use self::growth::{GrowingClaim, ResizeStatus};
pub(crate) use self::volume::{OurVolume, Phase, ReclaimPolicy, UnreadableVolume, VolumeFacts};

/// The facts about one key. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) claim: ClaimState,
    pub(crate) class: ClassState,
    pub(crate) volume: VolumeState,
    pub(crate) progress: Progress,
    /// The claim with the uid that the volume names exists, even if it is being deleted.
    pub(crate) owner_exists: bool,
    /// The claim that uses the volume and requests more, if the volume is not named after it or if it names no
    /// provisioner: the volume was adopted, restored, or created by a populator.
    pub(crate) growing_claim: Option<Arc<GrowingClaim>>,
    /// The claim that holds the name of this claim's volume, for messages.
    pub(crate) rival: Option<String>,
    /// The other claims whose volumes would have this name. Each is judged separately, and nothing is created for them.
    pub(crate) namesakes: Vec<Facts>,
}

impl Facts {
    /// Returns the claim of the work. If the claim no longer exists, it is as it was when the work began.
    pub(crate) fn claim_at_work(&self) -> Option<&ClaimFacts> {
        match (&self.claim, &self.progress) {
            (ClaimState::Waiting(claim), _) => Some(&claim.facts),
            (ClaimState::Unreadable(claim), _) => Some(&claim.facts),
            (_, Progress::Background(pending)) => Some(&pending.claim.facts),
            (_, Progress::Unsaved(unsaved) | Progress::Surplus(unsaved)) => Some(&unsaved.pending.claim.facts),
            _ => self.growing().map(|growing| &growing.claim),
        }
    }

    /// Returns the bound claim that requests more than its volume has.
    pub(crate) fn growing(&self) -> Option<&Arc<GrowingClaim>> {
        match &self.claim {
            ClaimState::Bound { growing: Some(growing), .. } => Some(growing),
            _ => self.growing_claim.as_ref(),
        }
    }

    /// Returns the attempt that may have left something in the backend.
    pub(crate) fn attempt(&self) -> Option<&Arc<Pending>> {
        self.progress.pending()
    }

    /// Returns the class and the kind of data source for metrics. The number of their values is bounded, whatever
    /// claims contain.
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

#[derive(Clone, Debug, Default)]
pub(crate) enum ClaimState {
    /// The claim does not exist, or it names another provisioner.
    #[default]
    Absent,
    /// The claim has its volume. `growing` is set if it requests more than it has.
    Bound { bound_here: bool, deleting: bool, growing: Option<Arc<GrowingClaim>> },
    /// The claim names us and has no volume yet.
    Waiting(Arc<WaitingClaim>),
    /// The claim names us, but the rest of it cannot be read.
    Unreadable(Arc<UnreadableClaim>),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum ClassState {
    #[default]
    Missing,
    /// The class names another provisioner.
    Unmanaged,
    Ours(Arc<OurClass>),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum VolumeState {
    #[default]
    Absent,
    /// A volume of that name exists but is not ours.
    Unmanaged,
    /// A volume of that name is ours but cannot be read.
    Unreadable(Arc<UnreadableVolume>),
    Ours(Arc<OurVolume>),
}

/// The progress of the work on a key beyond what the API server shows.
#[derive(Clone, Debug, Default)]
pub(crate) enum Progress {
    #[default]
    None,
    /// The backend may be working for this claim, which may no longer exist.
    Background(Arc<Pending>),
    /// The asset exists, but its PersistentVolume is not saved.
    Unsaved(Arc<UnsavedVolume>),
    /// The asset exists, but the saved volume of this name has another asset.
    Surplus(Arc<UnsavedVolume>),
    /// An attempt was begun, and its entry is still in the journal of a replica that no longer runs.
    AwaitsAdoption,
    /// The volume was deleted while the claim looked unbound. Read the claim before creating another volume.
    Confirm,
    /// The asset of the volume with this uid was deleted; the object may remain.
    BackendDeleted { uid: Arc<str>, finished: bool },
}

impl Progress {
    /// Returns the attempt that may have left something in the backend.
    pub(crate) fn pending(&self) -> Option<&Arc<Pending>> {
        match self {
            Self::Background(pending) => Some(pending),
            Self::Unsaved(unsaved) | Self::Surplus(unsaved) => Some(&unsaved.pending),
            Self::None | Self::AwaitsAdoption | Self::Confirm | Self::BackendDeleted { .. } => None,
        }
    }
}

/// A claim and its class as they were when the work began.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) claim: Arc<WaitingClaim>,
    pub(crate) class: Arc<OurClass>,
    /// See [`ProvisionRequest::idempotency_token`](crate::ProvisionRequest::idempotency_token).
    pub(crate) token: Arc<str>,
    /// The result of the provisioner's `prepare`.
    pub(crate) prepared: Prepared,
    /// The time at which this process began the attempt or took it over.
    pub(crate) begun: Instant,
    /// Another process began the attempt, or this one in an earlier term.
    pub(crate) taken_over: bool,
}

impl Pending {
    /// Returns the flow in which a call takes its permits: classes share them, and so do the namespaces of a class.
    pub(crate) fn flow(&self, purpose: Purpose) -> Flow {
        let flow = Flow { purpose, group: self.class.name().into(), tenant: None };
        flow.of_tenant(self.claim.facts.namespace.clone())
    }
}

/// A PersistentVolume that is still to be saved.
#[derive(Clone, Debug)]
pub(crate) struct UnsavedVolume {
    pub(crate) name: String,
    pub(crate) pending: Arc<Pending>,
    /// The object to send.
    pub(crate) body: Vec<u8>,
    /// The provisioner's warning for the claim's user.
    pub(crate) warning: Option<String>,
    /// The uid of the volume with another asset that must be deleted first.
    pub(crate) after: Option<Arc<str>>,
}
