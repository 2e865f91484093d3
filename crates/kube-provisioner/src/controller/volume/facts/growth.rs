//! The facts about a bound claim that requests more than it has.

use super::claim::ClaimFacts;
use crate::controller::volume::partial::{ClaimFields, amount_text};
use crate::quantity;

/// A bound claim that requests more than its volume provides. Few claims do, so the cache stores this separately.
#[derive(Debug)]
pub(crate) struct GrowingClaim {
    pub(crate) claim: ClaimFacts,
    pub(crate) resource_version: Box<str>,
    requested: Amount,
    /// `status.capacity` in bytes.
    capacity: u64,
    begun: Option<(ResizeStatus, Amount)>,
}

/// The progress of an expansion according to `status.allocatedResourceStatuses`. Values that only a kubelet writes are
/// not read: volumes of a provisioner have no expansion on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResizeStatus {
    InProgress,
    Infeasible,
}

/// A size, and its text: `1500Mi` stays `1500Mi`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Amount {
    bytes: u64,
    text: Box<str>,
}

impl ResizeStatus {
    const ALL: [Self; 2] = [Self::InProgress, Self::Infeasible];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "ControllerResizeInProgress",
            Self::Infeasible => "ControllerResizeInfeasible",
        }
    }
}

impl Amount {
    fn read(value: Option<&serde_json::Value>) -> Option<Self> {
        let text = amount_text(value?)?;
        Some(Self { bytes: quantity::parse_bytes(&text).ok()?, text: text.into() })
    }
}

impl GrowingClaim {
    /// Returns `None` if the claim has what it requests, or if its binding is not complete.
    pub(crate) fn read(claim: &ClaimFields) -> Option<Self> {
        let status = &claim.status;
        if status.phase.as_deref() != Some("Bound") {
            return None;
        }
        let requested = Amount::read(claim.spec.as_ref()?.resources.requests.get("storage"))?;
        let capacity = Amount::read(status.capacity.storage.as_ref())?.bytes;
        if requested.bytes <= capacity {
            return None;
        }
        let written = status.allocated_resource_statuses.storage.as_ref().and_then(|status| status.as_str());
        let resize = ResizeStatus::ALL.into_iter().find(|status| Some(status.as_str()) == written);
        Some(Self {
            claim: ClaimFacts::read(claim)?,
            resource_version: claim.metadata.resource_version.as_deref()?.into(),
            requested,
            capacity,
            begun: resize.zip(Amount::read(status.allocated_resources.storage.as_ref())),
        })
    }

    /// Returns the size to expand to, for a volume of this capacity. Like external-resizer, it first completes an
    /// expansion that may be in progress; after an infeasible one it uses the claim's current request, which may be
    /// smaller.
    pub(crate) fn target(&self, capacity: u64) -> u64 {
        let wanted = match &self.begun {
            Some((ResizeStatus::InProgress, begun)) => begun.bytes,
            _ => self.requested.bytes,
        };
        // A volume never shrinks.
        wanted.max(capacity)
    }

    /// Returns the claim's status of an expansion to this size.
    pub(crate) fn status_of(&self, bytes: u64) -> Option<ResizeStatus> {
        self.begun.as_ref().filter(|(_, begun)| begun.bytes == bytes).map(|(status, _)| *status)
    }

    /// Formats this size like the claim does, in whole bytes.
    pub(crate) fn text(&self, bytes: u64) -> String {
        let begun = self.begun.as_ref().map(|(_, begun)| begun);
        let known = [Some(&self.requested), begun].into_iter().flatten().find(|known| known.bytes == bytes);
        known.map_or_else(|| quantity::format_bytes(bytes), |known| quantity::in_whole_bytes(&known.text, bytes))
    }

    /// Returns the inputs of decisions, which our own writes of the status do not change.
    pub(crate) fn inputs(&self) -> (u64, u64) {
        (self.requested.bytes, self.capacity)
    }
}
