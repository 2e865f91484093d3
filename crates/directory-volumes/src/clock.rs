//! Plausibility checks of the clock. A node whose clock was reset reports 1970, and one whose clock was wrong may have
//! created entries dated in the future: neither shows how long data was kept.

use std::time::Duration;

use jiff::Timestamp;

use crate::entry::{Discarded, RECORD};
use crate::error::DirectoryError;
use crate::root::Root;
use crate::state::{OWN, TRASH, VOLUMES};

/// No valid clock is earlier than this. Raised with each release; a build that sets `SOURCE_DATE_EPOCH` uses that date.
const RELEASED: i64 = 1_767_225_600; // 2026-01-01

/// Returns the earliest time at which this binary can have been built.
pub(crate) fn built() -> Timestamp {
    let given = option_env!("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.trim().parse().ok());
    Timestamp::from_second(given.unwrap_or(RELEASED).max(RELEASED)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns when the data of a volume deleted now expires, and the retention to apply later if the clock is not
/// plausible now.
pub(crate) fn expiry(discarded: &Discarded, keep: Option<Duration>) -> (Option<Timestamp>, Option<u64>) {
    match keep {
        None => (None, None),
        Some(keep) if discarded.deleted < built().max(discarded.mark.created) => (None, Some(keep.as_secs())),
        Some(keep) => (discarded.deleted.checked_add(keep).ok(), None),
    }
}

impl Root {
    /// Fails if the clock is earlier than the build of this binary, or than any time recorded in the root.
    pub(crate) fn check_clock(&self, now: Timestamp) -> Result<(), DirectoryError> {
        if now < built() {
            let what = "this program was built".to_owned();
            return Err(DirectoryError::Clock { now, what, when: built(), file: None });
        }
        let survey = self.survey()?;
        let marks = survey.marked.iter().map(|found| (found.mark.created, found.path.as_str(), false));
        let trash = survey.trash.iter().map(|entry| (entry.deleted, entry.mark.owner.volume.as_str(), true));
        match marks.chain(trash).max() {
            Some((when, name, is_deleted)) if now < when => {
                let (what, file) = if is_deleted {
                    (format!("{name} was deleted"), format!("{OWN}/{TRASH}/{name}/{RECORD}"))
                } else {
                    (format!("{name} was created"), format!("{OWN}/{VOLUMES}/{name}"))
                };
                Err(DirectoryError::Clock { now, what, when, file: Some(file) })
            }
            _ => Ok(()),
        }
    }
}
