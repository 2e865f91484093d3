//! Deleted volumes whose data is kept for some time.
//!
//! An administrator may restore an entry while it expires. Each operation first claims the entry by renaming it, so one
//! of them succeeds and the other finds no entry. The lock protects the steps that follow.

mod limits;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use crate::clock;
use crate::entry::{DATA, Discarded};
use crate::error::{DirectoryError, failed};
use crate::files::{self, Durability};
use crate::mark::Owner;
use crate::open_directory;
use crate::parents::Proof;
use crate::path::VolumePath;
use crate::root::Root;
use crate::state::{DELETING, RESTORING, State, TRASH, open_down};

pub use self::limits::TrashLimits;

const CANNOT_RESTORE: &str = "cannot put back the directory";

impl Root {
    /// Moves the directory of a volume to the trash. Succeeds if it is already there, or no longer exists.
    ///
    /// # Errors
    /// Fails if the directory does not belong to that volume.
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
        let Some(mark) = self.recover_mark(&state, path, owner, fencing_token)? else {
            return Ok(());
        };
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        let mut discarded = Discarded { object, ..Discarded::new(mark, path.clone()) };
        (discarded.expires, discarded.keep) = clock::expiry(&discarded, keep);
        let _trash = state.lock_trash()?;
        self.discard(&state, TRASH, &discarded)
    }

    /// Lists the trash.
    ///
    /// # Errors
    /// Fails if the trash cannot be read. A damaged entry does not hide the others.
    pub fn trash(&self) -> Result<Vec<Result<Discarded, DirectoryError>>, DirectoryError> {
        self.entries(TRASH)
    }

    /// Lists entries that have left the trash, but whose volume does not exist yet.
    ///
    /// # Errors
    /// Same as [`Root::trash`].
    pub fn restoring(&self) -> Result<Vec<Result<Discarded, DirectoryError>>, DirectoryError> {
        self.entries(RESTORING)
    }

    /// Returns an entry of the trash, or one whose restore has not finished.
    ///
    /// # Errors
    /// Fails if there is no such entry, or if it cannot be read.
    pub fn discarded(&self, volume: &str) -> Result<Discarded, DirectoryError> {
        let state = self.enter()?;
        match self.entry(&state, RESTORING, volume) {
            Err(DirectoryError::NotThere { .. }) => self.entry(&state, TRASH, volume),
            found => found,
        }
    }

    /// Lists entries whose removal has begun.
    ///
    /// # Errors
    /// Same as [`Root::trash`].
    pub(crate) fn deleting(&self) -> Result<Vec<Result<Discarded, DirectoryError>>, DirectoryError> {
        self.entries(DELETING)
    }

    /// Same as [`discarded`](Self::discarded), but also finds an entry whose removal was interrupted.
    pub(crate) fn purgeable(&self, volume: &str) -> Result<Discarded, DirectoryError> {
        match self.discarded(volume) {
            Err(DirectoryError::NotThere { .. }) => self.entry(&self.enter()?, DELETING, volume),
            found => found,
        }
    }

    /// Restores a volume from the trash to its former path, with a mark that accepts any claim of this cluster. Does
    /// not change a volume that is already restored. [`Root::end_restore`] removes the entry.
    ///
    /// # Errors
    /// Fails if the volume is not in the trash, or if its former path is taken.
    pub fn restore(&self, volume: &str, cluster: Option<&str>) -> Result<Discarded, DirectoryError> {
        let path = self.discarded(volume)?.path;
        let state = self.enter()?;
        let (_lock, _trash) = (state.lock(&path)?, state.lock_trash()?);
        state.move_out_of_trash(volume)?;
        let mut discarded = self.entry(&state, RESTORING, volume)?;
        discarded.mark.volume_uid = None;
        let former = discarded.mark.owner.clone();
        let owner = &mut discarded.mark.owner;
        (owner.uid, owner.claim) = (None, None);
        owner.cluster = cluster.map(str::to_owned).or(owner.cluster.take());
        let put_back = if discarded.path == path {
            self.restore_directory(&state, &discarded)
        } else {
            Err(DirectoryError::Busy { name: volume.to_owned(), why: "another process works on it" })
        };
        match put_back {
            // If a later step fails, the next call continues here.
            Ok(above) => {
                // The new volume has another uid.
                self.rename_project(&state, &former, &discarded.mark.owner)?;
                self.assign_again(&state, &path, &discarded.mark.owner)?;
                rustix::fs::fsync(above).map_err(|error| failed(CANNOT_RESTORE, path.as_str(), error))?;
                Ok(discarded)
            }
            Err(error) => {
                state.move_back_to_trash(volume)?;
                Err(error)
            }
        }
    }

    /// Removes the entry of a restored volume.
    ///
    /// # Errors
    /// Fails if the entry still contains its data.
    pub fn end_restore(&self, volume: &str) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _trash = state.lock_trash()?;
        state.remove_entry(RESTORING, volume);
        match state.open_entry(RESTORING, volume) {
            Err(Errno::NOENT) => Ok(()),
            _ => Err(DirectoryError::Busy { name: volume.to_owned(), why: "its restore is incomplete" }),
        }
    }

    /// Moves a restored volume back to the trash unchanged.
    ///
    /// # Errors
    /// Fails if the directory received another mark in the meantime, or cannot be moved.
    pub fn undo_restore(&self, discarded: &Discarded) -> Result<(), DirectoryError> {
        let (path, volume) = (&discarded.path, &*discarded.mark.owner.volume);
        let state = self.enter()?;
        let (_lock, _trash) = (state.lock(path)?, state.lock_trash()?);
        let error = |error| failed("cannot put back into the trash", volume, error);
        if self.own_mark(&state, path, &discarded.mark.owner)?.is_some() {
            let entry = state.open_entry(RESTORING, volume).map_err(error)?;
            let (above, last) = path.split();
            let directory = open_down(state.root.as_fd(), &above).map_err(error)?;
            files::move_into(&directory, last, &entry, DATA).map_err(error)?;
            state.unmark(path)?;
            state.remove_empty_parents(path);
        }
        state.move_back_to_trash(volume)
    }

    /// Restores the directory of a volume whose object is unknown, without a mark.
    ///
    /// # Errors
    /// Same as [`Root::restore`]; also fails if the directory received another mark in the meantime.
    pub fn restore_without_mark(&self, volume: &str) -> Result<Discarded, DirectoryError> {
        let discarded = self.restore(volume, None)?;
        self.remove_mark(&discarded.path, &discarded.mark.owner)?;
        self.end_restore(volume)?;
        Ok(discarded)
    }

    /// Removes a volume from the trash permanently.
    ///
    /// # Errors
    /// Fails if the volume is not in the trash, or cannot be removed now.
    pub fn purge(&self, volume: &str, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let deleted = self.entry(&self.enter()?, TRASH, volume)?.deleted;
        self.purge_deleted_at(deleted, volume, fencing_token)
    }

    /// Same as [`purge`](Self::purge), but fails unless the volume was deleted at this time. The entry may have been
    /// listed hours ago, before other removals, and the volume may have been restored and deleted again since. It
    /// continues an interrupted removal.
    pub(crate) fn purge_deleted_at(
        &self,
        deleted: Timestamp,
        volume: &str,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        if matches!(state.discarded(DELETING, volume), Ok(Some(begun)) if begun.deleted == deleted) {
            return self.finish_removal(&state, volume, fencing_token);
        }
        self.deleted_at(deleted, &state, volume)?;
        self.finish_removal(&state, volume, fencing_token)?;
        let trash = state.lock_trash()?;
        self.deleted_at(deleted, &state, volume)?;
        let (from, to) = (state.directory(TRASH)?, state.directory(DELETING)?);
        match files::move_into(&from, volume, &to, volume) {
            Ok(()) => {
                drop(trash);
                self.finish_removal(&state, volume, fencing_token)
            }
            // Another operation was faster, and may have restored the volume.
            Err(Errno::NOENT) => Err(not_in_trash(volume)),
            Err(Errno::NOSPC | Errno::DQUOT) => self.empty_entry(&state, TRASH, volume, fencing_token),
            Err(error) => Err(failed("cannot move aside", volume, error)),
        }
    }

    /// Removes expired entries from the trash, except entries of other clusters. Tries all of them, and returns the
    /// first error.
    ///
    /// # Errors
    /// Fails if an entry cannot be removed, or if the clock is not plausible.
    pub fn purge_expired(
        &self,
        now: Timestamp,
        cluster: Option<&str>,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let mut result = Ok(());
        let mut due = Vec::new();
        for discarded in self.trash()? {
            match discarded {
                Ok(discarded) if discarded.mark.owner.is_of_another_cluster(cluster) => {}
                Ok(discarded) if discarded.has_expired(now) || discarded.keep.is_some() => due.push(discarded),
                Ok(_) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        if due.is_empty() {
            return result;
        }
        self.check_clock(now)?;
        for discarded in due {
            let done = match discarded.keep {
                Some(seconds) => self.start_retention(&discarded, now, Duration::from_secs(seconds)),
                None => self.purge_deleted_at(discarded.deleted, &discarded.mark.owner.volume, fencing_token),
            };
            result = result.and(match done {
                Err(DirectoryError::NotThere { .. }) => Ok(()),
                done => done,
            });
        }
        result
    }

    /// Starts the retention now, because the clock was not plausible when the volume was deleted.
    fn start_retention(&self, discarded: &Discarded, now: Timestamp, keep: Duration) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _trash = state.lock_trash()?;
        let current = self.deleted_at(discarded.deleted, &state, &discarded.mark.owner.volume)?;
        let counted = Discarded { expires: now.checked_add(keep).ok(), keep: None, ..current };
        state.rewrite(TRASH, &counted)
    }

    /// Moves the data back. Returns the directory above it. Requires both locks.
    fn restore_directory(&self, state: &State, discarded: &Discarded) -> Result<OwnedFd, DirectoryError> {
        let (path, volume) = (&discarded.path, &*discarded.mark.owner.volume);
        let (_, last) = path.split();
        let proof = if state.mark(path)?.is_some() { Proof::Permissions } else { Proof::Created };
        self.check_parents(state, path, proof)?;
        let (mark, is_new) =
            state.reserve(path, &discarded.mark.owner, discarded.mark.retain, Durability::Immediate)?;
        self.check_owner(path, &discarded.mark.owner, &mark)?;
        state.update(path, &discarded.mark)?;
        let moved = (|| {
            let entry = state.open_entry(RESTORING, volume).map_err(|error| failed("cannot open", volume, error))?;
            let above =
                self.create_parents(state, path)?.ok_or_else(|| failed(CANNOT_RESTORE, path.as_str(), Errno::BUSY))?;
            let move_back = || match rustix::fs::renameat_with(&entry, DATA, &above, last, RenameFlags::NOREPLACE) {
                // Some network file systems do not support this flag. A plain rename only replaces an empty directory.
                Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&entry, DATA, &above, last),
                moved => moved,
            };
            let mut moved = move_back();
            if moved == Err(Errno::XDEV) {
                self.inherit_project(path, &entry, &above)?;
                moved = move_back();
            }
            match moved {
                Ok(()) => Ok(above),
                // An earlier call has moved it, or there is nothing to restore.
                Err(Errno::NOENT) if open_directory::open(above.as_fd(), last).is_ok() => Ok(above),
                Err(Errno::NOENT) => Err(not_in_trash(volume)),
                Err(Errno::EXIST | Errno::NOTEMPTY) => {
                    Err(DirectoryError::NotOurs { path: self.path().join(path.as_str()) })
                }
                Err(error) => Err(self.not_a_directory(path, error, CANNOT_RESTORE)),
            }
        })();
        if moved.is_err() && is_new {
            state.unmark(path)?;
            state.remove_empty_parents(path);
        }
        moved
    }

    fn entries(&self, of: &'static str) -> Result<Vec<Result<Discarded, DirectoryError>>, DirectoryError> {
        let state = self.enter()?;
        let entries = state.list(of)?.into_iter();
        Ok(entries.filter_map(|volume| state.discarded(of, &volume).transpose()).collect())
    }

    /// Returns an entry of the trash if the volume was deleted at this time.
    fn deleted_at(&self, deleted: Timestamp, state: &State, volume: &str) -> Result<Discarded, DirectoryError> {
        let entry = self.entry(state, TRASH, volume)?;
        if entry.deleted == deleted { Ok(entry) } else { Err(not_in_trash(volume)) }
    }

    fn entry(&self, state: &State, of: &'static str, volume: &str) -> Result<Discarded, DirectoryError> {
        // The name is used as a file name, so it must be a single path component.
        let name = VolumePath::try_from(volume.to_owned()).ok().filter(|path| path.names().count() == 1);
        let found = name.and_then(|_| state.discarded(of, volume).transpose()).transpose()?;
        found.ok_or_else(|| not_in_trash(volume))
    }
}

impl State {
    /// Moves an entry out of the trash, so that no other operation uses it. Succeeds if an earlier call has moved it.
    fn move_out_of_trash(&self, volume: &str) -> Result<(), DirectoryError> {
        let error = |error| failed("cannot take out of the trash", volume, error);
        let to = files::make_directory(self.own.as_fd(), RESTORING, Mode::RWXU).map_err(error)?;
        match files::move_into(&self.directory(TRASH)?, volume, &to, volume) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) if self.open_entry(RESTORING, volume).is_ok() => Ok(()),
            Err(Errno::NOENT) => Err(not_in_trash(volume)),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(DirectoryError::Busy {
                name: volume.to_owned(),
                why: "the restore of an earlier volume with this name is incomplete",
            }),
            Err(failure) => Err(error(failure)),
        }
    }

    fn move_back_to_trash(&self, volume: &str) -> Result<(), DirectoryError> {
        match files::move_into(&self.directory(RESTORING)?, volume, &self.directory(TRASH)?, volume) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("cannot put back into the trash", volume, error)),
        }
    }
}

fn not_in_trash(volume: &str) -> DirectoryError {
    DirectoryError::NotThere { what: "volume in the trash", name: volume.to_owned() }
}
