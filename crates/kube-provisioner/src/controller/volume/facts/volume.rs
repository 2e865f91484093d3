//! The facts about one of our volumes.

use std::sync::Arc;

use provisioner_runtime::fingerprint;
use provisioner_runtime::limiter::{Flow, Purpose};

use super::class::class_name;
use crate::controller::volume::key::ClaimUid;
use crate::controller::volume::partial::{self, ClaimRef, amount_text};
use crate::protocol;
use crate::quantity;

#[derive(Debug)]
pub(crate) struct OurVolume {
    pub(crate) facts: VolumeFacts,
    pub(crate) resource_version: Box<str>,
}

/// One of our volumes that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableVolume {
    pub(crate) uid: Arc<str>,
    pub(crate) problem: String,
}

impl OurVolume {
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
    /// True if the volume has our finalizer.
    pub(crate) protected: bool,
    pub(crate) claim: Option<ClaimRef>,
    /// True if it was migrated to us: the cache does not have claims that name the in-tree plugin.
    pub(crate) migrated: bool,
    pub(crate) class: Option<Box<str>>,
    /// The capacity in bytes; 0 if it is unknown.
    pub(crate) capacity: u64,
    /// The installation that created it, if recorded.
    pub(crate) identity: Option<Box<str>>,
    /// The cluster in which it was created, if recorded.
    pub(crate) cluster_id: Option<Box<str>>,
    /// True if it may be a copy from a backup, and no administrator has permitted its deletion: its phase says nothing
    /// about its claim.
    pub(crate) unproven: bool,
    /// An administrator has confirmed that the data may be deleted.
    pub(crate) confirmed: bool,
    /// The time at which an administrator adopted it. Failed work is retried when this changes.
    pub(crate) adopted: Option<Box<str>>,
}

impl VolumeFacts {
    pub(crate) fn read(volume: &partial::VolumeFields) -> Option<Self> {
        let (meta, spec) = (&volume.metadata, volume.spec.clone().unwrap_or_default());
        // A value that was copied to another object is not valid there.
        let is_uid = |value: &Option<Box<str>>| value.is_some() && value.as_deref() == meta.uid.as_deref();
        Some(Self {
            uid: meta.uid.as_deref()?.into(),
            phase: Phase::read(volume.status.phase.as_deref()),
            policy: ReclaimPolicy::read(spec.persistent_volume_reclaim_policy.as_deref()),
            deleting: meta.deletion_timestamp.is_some(),
            protected: meta.finalizers.iter().any(|name| name == protocol::FINALIZER),
            claim: spec.claim_ref,
            migrated: meta.annotations.migrated_to.is_some(),
            class: class_name(meta.annotations.beta_storage_class.as_deref(), spec.storage_class_name.as_deref()),
            capacity: spec.capacity.storage.as_ref().and_then(amount_text).map_or(0, |text| {
                // The API server accepts only valid quantities.
                quantity::parse_bytes(&text).unwrap_or_default()
            }),
            identity: meta.annotations.identity.clone(),
            cluster_id: meta.annotations.cluster_id.clone(),
            unproven: meta.writers.copied(meta.creation_timestamp.as_deref(), meta.annotations.cluster_id.is_some())
                && !is_uid(&meta.annotations.release),
            confirmed: is_uid(&meta.annotations.release),
            adopted: meta.annotations.adopted.clone(),
        })
    }
}

impl VolumeFacts {
    /// Returns true if the volume is being deleted although no claim ever releases it: an administrator has removed its
    /// `claimRef`, or the UID in it.
    pub(crate) fn is_deleted_unreleased(&self) -> bool {
        let unclaimed = self.claim.as_ref().is_none_or(|claim| claim.uid.is_empty());
        self.deleting && self.phase == Phase::Available && unclaimed
    }

    /// Returns true if the volume belongs to another claim than this one.
    pub(crate) fn is_for_another(&self, uid: &str) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.uid.is_empty() && claim.uid != *uid)
    }

    /// Returns the flow in which a call takes its permits: classes share them, and so do the namespaces of a class.
    pub(crate) fn flow(&self, purpose: Purpose) -> Flow {
        let flow = Flow { purpose, group: self.class.as_deref().unwrap_or_default().into(), tenant: None };
        match &self.claim {
            Some(claim) => flow.of_tenant(&*claim.namespace),
            None => flow,
        }
    }

    /// Returns a fingerprint of the facts that work on the volume depends on. Our own writes during a deletion do not
    /// change it, so they do not shorten the pause after a failure.
    pub(crate) fn fingerprint(&self) -> u64 {
        match self.phase {
            Phase::Released => fingerprint(&Self { deleting: false, ..self.clone() }),
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
    /// `Retain`, `Recycle` and values added in the future: the volume must not be deleted.
    Keep,
}

impl ReclaimPolicy {
    fn read(text: Option<&str>) -> Self {
        if text == Some("Delete") { Self::Delete } else { Self::Keep }
    }
}
