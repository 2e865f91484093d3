//! What is known of a bound claim that asks for more than it has.

use super::claim::ClaimFacts;
use crate::controller::volume::partial::{ClaimFields, amount_text};
use crate::quantity;

/// A bound claim that asks for more than its volume gives it. Few claims do, so the cache keeps this beside the others.
#[derive(Debug)]
pub(crate) struct GrowingClaim {
    pub(crate) claim: ClaimFacts,
    pub(crate) resource_version: Box<str>,
    requested: Amount,
    /// `status.capacity` in bytes.
    capacity: u64,
    begun: Option<(ResizeStatus, Amount)>,
}

/// How far `status.allocatedResourceStatuses` says that an expansion is. What only a kubelet writes is not read: volumes
/// of a provisioner have no expansion on the node.
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
    /// `None` for a claim that has what it asks for, or whose binding is not complete.
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

    /// The size to expand to, for a volume of this capacity. As external-resizer decides it: what may be under way is
    /// finished first, and after what cannot be done the claim's request counts again, which may be smaller.
    pub(crate) fn target(&self, capacity: u64) -> u64 {
        let wanted = match &self.begun {
            Some((ResizeStatus::InProgress, begun)) => begun.bytes,
            _ => self.requested.bytes,
        };
        // Nothing shrinks.
        wanted.max(capacity)
    }

    /// What the claim's status says of an expansion to this size.
    pub(crate) fn status_of(&self, bytes: u64) -> Option<ResizeStatus> {
        self.begun.as_ref().filter(|(_, begun)| begun.bytes == bytes).map(|(status, _)| *status)
    }

    /// This size as the claim writes it, in whole bytes.
    pub(crate) fn text(&self, bytes: u64) -> String {
        let begun = self.begun.as_ref().map(|(_, begun)| begun);
        let known = [Some(&self.requested), begun].into_iter().flatten().find(|known| known.bytes == bytes);
        known.map_or_else(|| quantity::format_bytes(bytes), |known| quantity::in_whole_bytes(&known.text, bytes))
    }

    /// What decisions depend on: our own writes of the status do not change it.
    pub(crate) fn inputs(&self) -> (u64, u64) {
        (self.requested.bytes, self.capacity)
    }
}
