//! Volumes on their way out: those that are being removed, and those that are kept for some time.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, Dir, FileType, Mode, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DirectoryError, failed};
use crate::mark::{Mark, Owner};
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{DELETING, State, TRASH, make_down, read_json, to_json};
use crate::{files, remove};

/// In an entry: what the volume's directory is called.
pub(crate) const DATA: &str = "data";
/// In an entry: the mark, and what else is known of the volume.
const RECORD: &str = "mark";

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
    /// Moves the directory of a volume to the trash. There already, or gone, is success.
    ///
    /// # Errors
    /// When the directory is not that volume's.
    pub fn move_to_trash(
        &self,
        path: &VolumePath,
        owner: &Owner,
        keep: Option<Duration>,
        object: serde_json::Value,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let Some(mark) = self.marked(&state, path, owner)? else {
            return Ok(());
        };
        if !fencing_token.is_valid() {
            return Err(DirectoryError::CutOff(path.to_string()));
        }
        let mut leaving = Discarded { object, ..Discarded::now(mark, path.clone()) };
        leaving.expires = keep.and_then(|keep| leaving.deleted.checked_add(keep).ok());
        self.discard(&state, TRASH, &leaving)
    }

    /// What is in the trash.
    ///
    /// # Errors
    /// When it cannot be read. An entry that is damaged does not hide the others.
    pub fn trash(&self) -> Result<Vec<Result<Discarded, DirectoryError>>, DirectoryError> {
        let state = self.enter()?;
        let entries = state.list(TRASH)?.into_iter();
        Ok(entries.filter_map(|volume| state.discarded(TRASH, &volume).transpose()).collect())
    }

    /// Puts a volume back from the trash to where it was, with a mark for whichever claim gets it.
    ///
    /// # Errors
    /// When it is not in the trash, or something else is where it was.
    pub fn restore(&self, volume: &str) -> Result<Discarded, DirectoryError> {
        let state = self.enter()?;
        let mut discarded = self.in_trash(&state, volume)?;
        (discarded.mark.owner.uid, discarded.mark.owner.claim) = (None, None);
        let path = &discarded.path;
        let (above, last) = path.split();
        let (mark, _) = state.reserve(path, &discarded.mark.owner)?;
        if !mark.owner.is(&discarded.mark.owner) {
            return Err(DirectoryError::Taken { path: path.to_string(), holder: mark.owner.to_string() });
        }
        state.update(path, &discarded.mark)?;
        let entry = state.open_entry(TRASH, volume).map_err(|error| failed("cannot open", volume, error))?;
        let moved = make_down(state.root.as_fd(), &above, Mode::from_raw_mode(0o711)).and_then(|directory| {
            match rustix::fs::renameat_with(&entry, DATA, &directory, last, RenameFlags::NOREPLACE) {
                // An earlier call has moved it.
                Err(Errno::NOENT) => Ok(()),
                // Not every network file system can do it; what is replaced then is an empty directory.
                Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&entry, DATA, &directory, last),
                moved => moved,
            }
        });
        match moved {
            Ok(()) => state.remove_entry(TRASH, volume),
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                state.unmark(path)?;
                return Err(DirectoryError::NotOurs { path: self.path().join(path.as_str()) });
            }
            Err(error) => return Err(self.not_a_directory(path, error, "cannot put back the directory")),
        }
        Ok(discarded)
    }

    /// Removes a volume from the trash for good.
    ///
    /// # Errors
    /// When it is not there, or cannot be removed now.
    pub fn purge(&self, volume: &str, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        self.in_trash(&state, volume)?;
        state.finish_removal(volume, fencing_token)?;
        let (from, to) = (state.directory(TRASH)?, state.directory(DELETING)?);
        match rustix::fs::renameat(&from, volume, &to, volume) {
            // Another one was faster.
            Ok(()) | Err(Errno::NOENT) => state.finish_removal(volume, fencing_token),
            Err(Errno::NOSPC | Errno::DQUOT) => state.empty_entry(TRASH, volume, fencing_token),
            Err(error) => Err(failed("cannot move aside", volume, error)),
        }
    }

    /// Removes what has been in the trash for its time. All are tried, and the first error is returned.
    ///
    /// # Errors
    /// What kept something.
    pub fn purge_expired(&self, now: Timestamp, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let mut result = Ok(());
        for discarded in self.trash()? {
            result = result.and(match discarded {
                Ok(discarded) if discarded.has_expired(now) => self.purge(&discarded.mark.owner.volume, fencing_token),
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            });
        }
        result
    }

    fn in_trash(&self, state: &State, volume: &str) -> Result<Discarded, DirectoryError> {
        // It becomes a name in a directory.
        let name = VolumePath::try_from(volume.to_owned()).ok().filter(|path| path.names().count() == 1);
        let found = name.and_then(|_| state.discarded(TRASH, volume).transpose()).transpose()?;
        found.ok_or_else(|| DirectoryError::NotThere { what: "volume in the trash", name: volume.to_owned() })
    }
}

impl State {
    /// Makes an entry for a volume on its way out, with its record. One that is there already is a call's that was cut off.
    pub(crate) fn make_entry(&self, to: &'static str, leaving: &Discarded) -> Result<OwnedFd, Errno> {
        let directory = crate::state::open_down(self.own.as_fd(), &[to])?;
        let entry = files::make_directory(directory.as_fd(), &leaving.mark.owner.volume, Mode::RWXU)?;
        match self.create_file(entry.as_fd(), RECORD, &to_json(leaving)) {
            Ok(()) | Err(Errno::EXIST) => Ok(entry),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn open_entry(&self, of: &'static str, volume: &str) -> Result<OwnedFd, Errno> {
        crate::state::open_down(self.own.as_fd(), &[of, volume])
    }

    /// Removes an entry that has no data. One that has some stays.
    pub(crate) fn remove_entry(&self, of: &'static str, volume: &str) {
        let Ok(entry) = self.open_entry(of, volume) else { return };
        if matches!(rustix::fs::statat(&entry, DATA, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT)) {
            let _ = files::remove(entry.as_fd(), RECORD, AtFlags::empty());
            if let Ok(directory) = self.directory(of) {
                let _ = files::remove(directory.as_fd(), volume, AtFlags::REMOVEDIR);
            }
        }
    }

    /// Removes a volume that waits for its removal, if one of this name does.
    pub(crate) fn finish_removal(&self, volume: &str, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        self.empty_entry(DELETING, volume, fencing_token)
    }

    /// Removes an entry with its data. The record goes last: it says what else there is to release.
    fn empty_entry(&self, of: &'static str, volume: &str, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let entry = match self.open_entry(of, volume) {
            Ok(entry) => entry,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed("cannot open", volume, error)),
        };
        remove::tree(&entry, DATA, volume, fencing_token)?;
        remove::tree(&self.directory(of)?, volume, volume, fencing_token)
    }

    fn discarded(&self, of: &'static str, volume: &str) -> Result<Option<Discarded>, DirectoryError> {
        match self.open_entry(of, volume) {
            Ok(entry) => read_json(entry.as_fd(), RECORD),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed("cannot open", volume, error)),
        }
    }

    /// The entries of one of our own directories.
    pub(crate) fn list(&self, of: &'static str) -> Result<Vec<String>, DirectoryError> {
        let directory = self.directory(of)?;
        let names = names(&directory).map_err(|error| failed("cannot list", of, error))?;
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }
}

/// What is in a directory, and whether it is a directory itself. Names that are no text are left out: no volume has one.
pub(crate) fn names(directory: &OwnedFd) -> Result<Vec<(String, FileType)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            names.push((name.to_owned(), kind));
        }
    }
    names.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(names)
}
