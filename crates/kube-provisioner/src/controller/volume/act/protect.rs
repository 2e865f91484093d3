//! Adds our finalizer to volumes, and removes it from volumes that will not be deleted.

use provisioner_runtime::call::CallError;

use super::delete::Deleting;
use crate::controller::volume::decision::{Decision, NoAction};
use crate::controller::volume::facts::{Facts, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};

impl Deleting {
    pub(super) async fn set_protection(&self, facts: &Facts, key: &Key, wanted: bool) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        let seen = if wanted { Decision::Protect } else { Decision::Unprotect };
        let live = match self.context.read_volume(&key.to_string()).await {
            Ok(live) => live,
            Err(CallError::NotFound) => return Err(Stopped::NoAction(NoAction::VolumeTerminating)),
            Err(error) => return Err(Stopped::CallFailed { doing: "reading the volume", error }),
        };
        self.context.cache().observe_volume(live.seen);
        if live.object.metadata.uid.as_deref() != Some(&*volume.facts.uid) || self.context.decision_now(key) != seen {
            return Err(Stopped::Changed);
        }
        match self.context.set_finalizer(&live.object, wanted).await {
            Ok(()) => Ok(Done::ProtectionSet),
            Err(error @ (CallError::Conflict | CallError::Invalid(_))) => {
                Err(Stopped::Rejected { doing: "setting the volume's finalizer", error })
            }
            Err(error) => Err(Stopped::CallFailed { doing: "setting the volume's finalizer", error }),
        }
    }
}
