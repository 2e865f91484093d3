//! Deleted volumes whose data are kept for some time.

use std::os::fd::AsFd;
use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use crate::entry::{DATA, Discarded};
use crate::error::{DirectoryError, failed};
use crate::mark::Owner;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{DELETING, State, TRASH, make_down};

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
        let _lock = state.lock(path)?;
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
        let _lock = state.lock(path)?;
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
        self.finish_removal(&state, volume, fencing_token)?;
        let (from, to) = (state.directory(TRASH)?, state.directory(DELETING)?);
        match rustix::fs::renameat(&from, volume, &to, volume) {
            // Another one was faster.
            Ok(()) | Err(Errno::NOENT) => self.finish_removal(&state, volume, fencing_token),
            Err(Errno::NOSPC | Errno::DQUOT) => self.empty_entry(&state, TRASH, volume, fencing_token),
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
