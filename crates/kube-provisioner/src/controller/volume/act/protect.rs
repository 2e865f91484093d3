//! Adds our finalizer to volumes, and removes it from volumes that will not be deleted.

use provisioner_runtime::call::CallError;

use super::delete::Deleting;
use crate::controller::volume::decision::Decision;
use crate::controller::volume::facts::{Facts, VolumeState};
use crate::controller::volume::key::Key;
use crate::controller::volume::outcome::{Done, Outcome, Stopped};

impl Deleting {
    pub(super) async fn set_protection(&self, facts: &Facts, key: &Key, wanted: bool) -> Outcome {
        let VolumeState::Ours(volume) = &facts.volume else { return Err(Stopped::Changed) };
        let seen = if wanted { Decision::Protect } else { Decision::Unprotect };
        let live = self.context.as_decided(seen, volume, key).await?;
        match self.context.set_finalizer(&live, wanted).await {
            Ok(()) => Ok(Done::ProtectionSet),
            Err(error @ (CallError::Conflict | CallError::Invalid(_))) => {
                Err(Stopped::Rejected { doing: "setting the volume's finalizer", error })
            }
            Err(error) => Err(Stopped::CallFailed { doing: "setting the volume's finalizer", error }),
        }
    }
}
