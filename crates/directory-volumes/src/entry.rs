//! Volumes on their way out: one entry each, in one of our own directories.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DirectoryError, failed};
use crate::files;
use crate::mark::Mark;
use crate::path::VolumePath;
use crate::remove::{self, MOUNTED};
use crate::root::Root;
use crate::state::{DELETING, State, open_down, read_json, remove_empty, to_json};

/// In an entry: what the volume's directory is called.
pub(crate) const DATA: &str = "data";
/// In an entry: what is known of the volume.
const RECORD: &str = "record";

/// So often another process may finish a removal between two calls.
const MOST_ATTEMPTS: usize = 16;

/// A volume that was deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Discarded {
    /// Whose the directory was.
    #[serde(flatten)]
    pub mark: Mark,
    /// Where it was.
    pub path: VolumePath,
    /// Since when.
    pub deleted: Timestamp,
    /// When its data may go; never where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The PersistentVolume, for making it again.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub object: serde_json::Value,
}

impl Discarded {
    pub(crate) fn now(mark: Mark, path: VolumePath) -> Self {
        Self { mark, path, deleted: Timestamp::now(), expires: None, object: serde_json::Value::Null }
    }

    /// Whether its time is over.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Root {
    /// Moves a volume's directory to where it waits for its end, and removes its mark. Renaming is atomic, so a volume is there
    /// as a whole or not at all. Under the path's lock.
    pub(crate) fn discard(&self, state: &State, to: &'static str, leaving: &Discarded) -> Result<(), DirectoryError> {
        let (path, volume) = (&leaving.path, &leaving.mark.owner.volume);
        let (above, last) = path.split();
        let doing = "cannot move the directory aside";
        for _ in 0..MOST_ATTEMPTS {
            let found = open_down(state.root.as_fd(), &above).and_then(|directory| {
                // Something else was not made by this program, and where a link leads to is nobody's volume.
                is_directory(directory.as_fd(), last)?;
                Ok(directory)
            });
            let moved = match found {
                Ok(directory) => state.make_entry(to, leaving).and_then(|entry| {
                    rustix::fs::renameat(&directory, last, &entry, DATA)?;
                    rustix::fs::fsync(&directory)
                }),
                // An earlier call has moved it, or it was never made.
                Err(Errno::NOENT) => {
                    state.remove_entry(to, volume);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match moved {
                Ok(()) => {
                    state.unmark(path)?;
                    remove_empty(state.root.as_fd(), &above);
                    return Ok(());
                }
                // The entry of an earlier removal went meanwhile.
                Err(Errno::NOENT) => {}
                Err(Errno::EXIST | Errno::NOTEMPTY) => {
                    return Err(DirectoryError::Busy {
                        name: volume.clone(),
                        why: "an earlier removal is not finished",
                    });
                }
                Err(error) => {
                    state.remove_entry(to, volume);
                    return Err(match error {
                        Errno::BUSY => DirectoryError::Busy { name: path.to_string(), why: MOUNTED },
                        error => self.not_a_directory(path, error, doing),
                    });
                }
            }
        }
        Err(failed(doing, path.as_str(), Errno::BUSY))
    }

    /// Removes a volume that waits for its removal, if one of this name does.
    pub(crate) fn finish_removal(
        &self,
        state: &State,
        volume: &str,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        self.empty_entry(state, DELETING, volume, fencing_token)
    }

    /// Removes an entry with its data. The record goes last: it says what else there is to give back.
    pub(crate) fn empty_entry(
        &self,
        state: &State,
        of: &'static str,
        volume: &str,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let entry = match state.open_entry(of, volume) {
            Ok(entry) => entry,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed("cannot open", volume, error)),
        };
        remove::tree(&entry, DATA, volume, fencing_token)?;
        // A record that cannot be read must not keep the entry for ever.
        if let Ok(Some(leaving)) = state.discarded(of, volume) {
            self.release_project(state, &leaving.mark.owner)?;
        }
        remove::tree(&state.directory(of)?, volume, volume, fencing_token)
    }
}

impl State {
    /// Makes an entry with its record. One that is there already is a call's that was cut off.
    fn make_entry(&self, to: &'static str, leaving: &Discarded) -> Result<OwnedFd, Errno> {
        let directory = open_down(self.own.as_fd(), &[to])?;
        let entry = files::make_directory(directory.as_fd(), &leaving.mark.owner.volume, Mode::RWXU)?;
        match self.create_file(entry.as_fd(), RECORD, &to_json(leaving)) {
            Ok(()) | Err(Errno::EXIST) => Ok(entry),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn open_entry(&self, of: &'static str, volume: &str) -> Result<OwnedFd, Errno> {
        open_down(self.own.as_fd(), &[of, volume])
    }

    /// What is known of an entry.
    pub(crate) fn discarded(&self, of: &'static str, volume: &str) -> Result<Option<Discarded>, DirectoryError> {
        match self.open_entry(of, volume) {
            Ok(entry) => read_json(entry.as_fd(), RECORD),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("cannot open", volume, error)),
        }
    }

    /// Removes an entry that has no data. One that has some stays.
    pub(crate) fn remove_entry(&self, of: &'static str, volume: &str) {
        let Ok(entry) = self.open_entry(of, volume) else { return };
        if is_missing(entry.as_fd(), DATA) {
            let _ = files::remove(entry.as_fd(), RECORD, AtFlags::empty());
            if let Ok(directory) = self.directory(of) {
                let _ = files::remove(directory.as_fd(), volume, AtFlags::REMOVEDIR);
            }
        }
    }

    /// The entries of one of our own directories.
    pub(crate) fn list(&self, of: &'static str) -> Result<Vec<String>, DirectoryError> {
        let directory = self.directory(of)?;
        let names = files::names(&directory).map_err(|error| failed("cannot list", of, error))?;
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }
}

fn is_missing(directory: BorrowedFd<'_>, name: &str) -> bool {
    matches!(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// `NOTDIR` if it is something else.
fn is_directory(above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        _ => Err(Errno::NOTDIR),
    }
}
