//! Events before the reference to their object is added.

use crate::controller::shared::texts::limited;

/// An event on the claim or on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventDraft {
    pub(crate) object: EventObject,
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    /// True if every replica sends the same event.
    pub(crate) same_from_all: bool,
}

impl EventDraft {
    pub(crate) fn action(&self) -> &'static str {
        match self.reason {
            reason::RESIZING | reason::RESIZED | reason::RESIZE_FAILED => "Resize",
            reason::DELETE | reason::DELETE_FAILED => "Delete",
            _ => "Provision",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventObject {
    Claim,
    Volume,
}

/// The reasons of events, which users of the Go library know.
pub(super) mod reason {
    pub(crate) const PROVISIONING: &str = "Provisioning";
    pub(crate) const FAILED: &str = "ProvisioningFailed";
    pub(crate) const CLEANUP_FAILED: &str = "ProvisioningCleanupFailed";
    pub(crate) const SUCCEEDED: &str = "ProvisioningSucceeded";
    pub(crate) const WARNING: &str = "ProvisioningWarning";
    pub(crate) const RESIZING: &str = "Resizing";
    pub(crate) const RESIZED: &str = "VolumeResizeSuccessful";
    pub(crate) const RESIZE_FAILED: &str = "VolumeResizeFailed";
    pub(crate) const DELETE: &str = "VolumeDelete";
    pub(crate) const DELETE_FAILED: &str = "VolumeFailedDelete";
}

pub(super) fn failed(text: String) -> EventDraft {
    warning(EventObject::Claim, reason::FAILED, text)
}

pub(super) fn warning(object: EventObject, reason: &'static str, text: String) -> EventDraft {
    EventDraft { object, warning: true, reason, text: limited(text), same_from_all: false }
}

pub(super) fn normal(object: EventObject, reason: &'static str, text: String) -> EventDraft {
    EventDraft { object, warning: false, reason, text: limited(text), same_from_all: false }
}
