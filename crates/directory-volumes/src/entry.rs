//! Entries for volumes that are in the trash, being removed or being restored. Each is a directory in one of the
//! provisioner's own directories.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DirectoryError, failed};
use crate::mark::Mark;
use crate::path::VolumePath;
use crate::remove::{self, MOUNTED, make_accessible};
use crate::root::Root;
use crate::state::{DELETING, RESTORING, State, TRASH, open_down, read_json, to_json};
use crate::sync::has_one_log;
use crate::{files, open_directory};

/// The name of the volume's directory within an entry.
pub(crate) const DATA: &str = "data";
/// The name of the file that describes the volume within an entry.
pub(crate) const RECORD: &str = "record";

/// Retry limit when another process finishes a removal between two calls.
const MAX_ATTEMPTS: usize = 16;

/// A volume that was deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Discarded {
    /// The owner of the directory.
    #[serde(flatten)]
    pub mark: Mark,
    /// The former path of the directory.
    pub path: VolumePath,
    /// The time of the deletion.
    pub deleted: Timestamp,
    /// The time when the data expires. `None` if it never expires, or if the time is not known yet; see `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The retention in seconds, while `expires` is not known because the clock was not plausible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
    /// The disk usage of the data, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The PersistentVolume, to recreate it.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub object: serde_json::Value,
}

impl Discarded {
    pub(crate) fn new(mark: Mark, path: VolumePath) -> Self {
        let (deleted, object) = (Timestamp::now(), serde_json::Value::Null);
        Self { mark, path, deleted, expires: None, keep: None, bytes: None, object }
    }

    /// Returns true if the retention is over. Data does not expire while the clock is earlier than its deletion.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.deleted <= now && self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Root {
    /// Moves a volume's directory aside for removal, and removes its mark. Renaming is atomic, so a volume is moved
    /// entirely or not at all. Requires the path's lock.
    pub(crate) fn discard(&self, state: &State, to: &'static str, discarded: &Discarded) -> Result<(), DirectoryError> {
        let (path, volume) = (&discarded.path, &discarded.mark.owner.volume);
        let (above, last) = path.split();
        let doing = "cannot move the directory aside";
        // An interrupted restore may have left an entry, which would hide the new one.
        state.remove_entry(RESTORING, volume);
        for _ in 0..MAX_ATTEMPTS {
            let found = open_down(state.root.as_fd(), &above).and_then(|directory| {
                // Anything else was not created by this provisioner, and a symlink does not lead to a volume.
                is_directory(directory.as_fd(), last)?;
                Ok(directory)
            });
            let moved = match found {
                Ok(directory) => state.make_entry(to, discarded).and_then(|entry| {
                    let move_aside = || files::move_into(&directory, last, &entry, DATA);
                    match move_aside() {
                        Err(Errno::ACCESS) => {
                            let _ = make_accessible(directory.as_fd(), last);
                            move_aside()?;
                        }
                        moved => moved?,
                    }
                    // Otherwise a power cut could leave the directory in neither of the two places.
                    if !has_one_log(&entry)? {
                        rustix::fs::fsync(&entry)?;
                    }
                    rustix::fs::fsync(&directory)
                }),
                // An earlier call has moved it, or it was never created.
                Err(Errno::NOENT) => {
                    state.remove_entry(to, volume);
                    // An entry with data still needs its project.
                    let is_absent = |of| matches!(state.open_entry(of, volume), Err(Errno::NOENT));
                    if [DELETING, TRASH, RESTORING].into_iter().all(is_absent) {
                        self.release_project(state, &discarded.mark.owner)?;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match moved {
                Ok(()) => {
                    state.unmark(path)?;
                    state.remove_empty_parents(path);
                    return Ok(());
                }
                // The entry of an earlier removal was deleted in the meantime.
                Err(Errno::NOENT) => {}
                Err(Errno::EXIST | Errno::NOTEMPTY) => {
                    let why = match to {
                        TRASH => "an earlier volume of this name is in the trash until `trash purge` removes it",
                        _ => "an earlier removal is not finished",
                    };
                    return Err(DirectoryError::Busy { name: volume.clone(), why });
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

    /// Finishes the removal of a volume, if a volume with this name is being removed.
    pub(crate) fn finish_removal(
        &self,
        state: &State,
        volume: &str,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        self.empty_entry(state, DELETING, volume, fencing_token)
    }

    /// Removes an entry with its data. The record is removed last, because it lists the other resources to release.
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
        // An unreadable record must not keep the entry forever.
        if let Ok(Some(discarded)) = state.discarded(of, volume) {
            self.release_project(state, &discarded.mark.owner)?;
        }
        remove::tree(&state.directory(of)?, volume, volume, fencing_token)
    }
}

impl State {
    /// Creates an entry with its record, or reuses one without data that an interrupted call left.
    fn make_entry(&self, to: &'static str, discarded: &Discarded) -> Result<OwnedFd, Errno> {
        let directory = open_down(self.own.as_fd(), &[to])?;
        let entry = files::make_directory(directory.as_fd(), &discarded.mark.owner.volume, Mode::RWXU)?;
        match self.create_file(entry.as_fd(), RECORD, &to_json(discarded)) {
            Ok(()) => Ok(entry),
            // The entry has data, so it belongs to another volume.
            Err(Errno::EXIST) if !is_missing(entry.as_fd(), DATA) => Err(Errno::EXIST),
            // The record of the interrupted call contains another time, so replace it.
            Err(Errno::EXIST) => {
                files::replace(self.tmp.as_fd(), entry.as_fd(), RECORD, &to_json(discarded)).map(|()| entry)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn open_entry(&self, of: &'static str, volume: &str) -> Result<OwnedFd, Errno> {
        open_down(self.own.as_fd(), &[of, volume])
    }

    /// Reads the record of an entry.
    pub(crate) fn discarded(&self, of: &'static str, volume: &str) -> Result<Option<Discarded>, DirectoryError> {
        match self.open_entry(of, volume) {
            Ok(entry) => read_json(entry.as_fd(), RECORD, format_args!("{of}/{volume}/{RECORD}")),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("cannot open", volume, error)),
        }
    }

    /// Overwrites the record of an entry.
    pub(crate) fn rewrite(&self, of: &'static str, discarded: &Discarded) -> Result<(), DirectoryError> {
        let volume = &*discarded.mark.owner.volume;
        let replaced = self
            .open_entry(of, volume)
            .and_then(|entry| files::replace(self.tmp.as_fd(), entry.as_fd(), RECORD, &to_json(discarded)));
        replaced.map_err(|error| failed("cannot record the time of", volume, error))
    }

    /// Removes an entry, unless it has data.
    pub(crate) fn remove_entry(&self, of: &'static str, volume: &str) {
        let Ok(entry) = self.open_entry(of, volume) else { return };
        if is_missing(entry.as_fd(), DATA) {
            let _ = files::remove(entry.as_fd(), RECORD, AtFlags::empty());
            if let Ok(directory) = self.directory(of) {
                let _ = files::remove(directory.as_fd(), volume, AtFlags::REMOVEDIR);
            }
        }
    }

    /// Lists the entries of one of the provisioner's own directories.
    pub(crate) fn list(&self, of: &'static str) -> Result<Vec<String>, DirectoryError> {
        let directory = match open_directory::open(self.own.as_fd(), of) {
            Ok(directory) => directory,
            // Earlier versions had fewer directories.
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(failed("cannot open", of, error)),
        };
        let names = files::names(&directory).map_err(|error| failed("cannot list", of, error))?;
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }
}

fn is_missing(directory: BorrowedFd<'_>, name: &str) -> bool {
    matches!(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Returns `NOTDIR` if `name` is not a directory. A symlink is not one.
fn is_directory(above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let stat = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        _ => Err(Errno::NOTDIR),
    }
}
