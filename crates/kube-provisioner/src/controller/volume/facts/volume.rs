//! What is known of one volume of ours.

use std::sync::Arc;

use provisioner_runtime::limiter::{Flow, Purpose};

use super::class::class_name;
use crate::controller::shared::fingerprint::fingerprint;
use crate::controller::volume::key::ClaimUid;
use crate::controller::volume::partial::{self, ClaimRef, amount_text};
use crate::protocol;
use crate::quantity;

/// A volume of ours.
#[derive(Debug)]
pub(crate) struct OurVolume {
    pub(crate) facts: VolumeFacts,
    pub(crate) resource_version: Box<str>,
}

/// A volume of ours that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableVolume {
    pub(crate) uid: Arc<str>,
    pub(crate) problem: String,
}

impl OurVolume {
    /// The volume's claim.
    pub(crate) fn owner(&self) -> Option<ClaimUid> {
        let uid = &self.facts.claim.as_ref()?.uid;
        (!uid.is_empty()).then(|| ClaimUid::new(uid))
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
    /// In bytes; 0 where it is not known.
    pub(crate) capacity: u64,
    /// The installation that made it, if it says so.
    pub(crate) identity: Option<Box<str>>,
    /// The cluster in which it was made, if it says so.
    pub(crate) cluster_id: Option<Box<str>>,
    /// The deletion of its asset has begun, and that is recorded on the volume itself.
    pub(crate) deletion_begun: bool,
    /// It may be a copy from a backup, and no person has said that its data may go: its phase says nothing about its claim.
    pub(crate) unproven: bool,
    /// An administrator has confirmed that the data may be deleted.
    pub(crate) confirmed: bool,
    /// When an administrator adopted it. Failed work is retried when this changes.
    pub(crate) adopted: Option<Box<str>>,
}

impl VolumeFacts {
    pub(crate) fn read(volume: &partial::VolumeFields) -> Option<Self> {
        let (meta, spec) = (&volume.metadata, volume.spec.clone().unwrap_or_default());
        // What is copied to another object means nothing there.
        let is_uid = |value: &Option<Box<str>>| value.is_some() && value.as_deref() == meta.uid.as_deref();
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            phase: Phase::read(volume.status.phase.as_deref()),
            policy: ReclaimPolicy::read(spec.persistent_volume_reclaim_policy.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            protected: meta.finalizers.iter().any(|name| name == protocol::FINALIZER),
            claim: spec.claim_ref,
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            capacity: spec.capacity.storage.as_ref().and_then(amount_text).map_or(0, |text| {
                // The API server takes nothing else.
                quantity::parse_bytes(&text).unwrap_or_default()
            }),
            identity: meta.annotations.identity.clone(),
            cluster_id: meta.annotations.cluster_id.clone(),
            deletion_begun: is_uid(&meta.annotations.deleting),
            unproven: meta.writers.copied(meta.creation_timestamp.as_deref(), meta.annotations.cluster_id.is_some())
                && !is_uid(&meta.annotations.release),
            confirmed: is_uid(&meta.annotations.release),
            adopted: meta.annotations.adopted.clone(),
        })
    }
}

impl VolumeFacts {
    /// Returns whether the volume is being deleted although no claim ever releases it: an administrator has removed its
    /// `claimRef`, or the UID in it.
    pub(crate) fn goes_unreleased(&self) -> bool {
        let unclaimed = self.claim.as_ref().is_none_or(|claim| claim.uid.is_empty());
        self.deleting && self.phase == Phase::Available && unclaimed
    }

    /// Whether the volume is another claim's than this one.
    pub(crate) fn is_for_another(&self, uid: &str) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.uid.is_empty() && claim.uid != *uid)
    }

    /// What a call takes its permits for: classes share them, and so do the namespaces of a class.
    pub(crate) fn flow(&self, purpose: Purpose) -> Flow {
        let flow = Flow { purpose, group: self.class.as_deref().unwrap_or_default().into(), tenant: None };
        match &self.claim {
            Some(claim) => flow.of_tenant(&*claim.namespace),
            None => flow,
        }
    }

    /// A fingerprint of the facts that work on the volume depends on. Our own writes during a deletion do not change
    /// it, so they do not shorten the pause after a failure.
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
