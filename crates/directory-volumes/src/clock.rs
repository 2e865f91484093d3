//! Whether the clock is plausible. A node whose clock was reset says 1970, and one that was wrong may have made entries in a year to
//! come: neither says how long data were kept.

use std::time::Duration;

use jiff::Timestamp;

use crate::entry::Discarded;
use crate::error::DirectoryError;
use crate::root::Root;

/// No clock stands before this. Raised with each release; a build that sets `SOURCE_DATE_EPOCH` has its own date.
const RELEASED: i64 = 1_767_225_600; // 2026-01-01

/// When this program was built, at the earliest.
pub(crate) fn built() -> Timestamp {
    let given = option_env!("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.trim().parse().ok());
    Timestamp::from_second(given.unwrap_or(RELEASED).max(RELEASED)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When the data of a volume may go that is deleted now, and what is to be counted later where the clock cannot be believed now.
pub(crate) fn expiry(leaving: &Discarded, keep: Option<Duration>) -> (Option<Timestamp>, Option<u64>) {
    match keep {
        None => (None, None),
        Some(keep) if leaving.deleted < built().max(leaving.mark.created) => (None, Some(keep.as_secs())),
        Some(keep) => (leaving.deleted.checked_add(keep).ok(), None),
    }
}

impl Root {
    /// Refuses a clock that stands before the program's build, or before anything in the root was made.
    pub(crate) fn check_clock(&self, now: Timestamp) -> Result<(), DirectoryError> {
        let doubtful = |what: String, when| Err(DirectoryError::Clock { now, what, when });
        if now < built() {
            return doubtful("this program was built".to_owned(), built());
        }
        let survey = self.survey()?;
        let marks = survey.marked.iter().map(|found| (found.mark.created, found.path.as_str(), "made"));
        let trash = survey.trash.iter().map(|entry| (entry.deleted, entry.mark.owner.volume.as_str(), "deleted"));
        match marks.chain(trash).max() {
            Some((when, name, what)) if now < when => doubtful(format!("{name} was {what}"), when),
            _ => Ok(()),
        }
    }
}
