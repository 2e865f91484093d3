//! Creation and removal of the directory of one volume.
//!
//! Costs of creating a volume, and the reason for each (assuming no directory above the volume and no quota):
//!
//! | system calls | consequence without them |
//! |---|---|
//! | open the root, `.kube-provisioner` and its marker, read it, open `volumes` and `tmp` | a volume may be created on a disk without the marker. [`Worker`](crate::Worker) does this in a separate step of its thread, so that a root that hangs blocks no caller |
//! | quotactl of the root | a size that is not enforced, or a wrong warning |
//! | open `deleting/VOLUME` | the project of an earlier volume with this name is released after this volume received it |
//! | open and lock one of the locks | two processes mark one path for two volumes |
//! | open the mark, look up the directory | a directory without a mark is taken over |
//! | write a file in `tmp`, link, unlink | a killed process leaves a mark with incomplete content |
//! | mkdir, open, fstat, fchmod | the umask decides who may use it; the owner of a foreign directory is changed |
//! | fstatfs; on ext4, look for its journal | a file system that needs four fsyncs gets two |
//! | fsync of the directory | pods cannot write to the volume after a power cut |
//! | open the mark, fadvise, fsync | the mark of a volume that is in use is empty after a power cut |
//! | fsync of the marks, except on XFS, and ext4 with a journal | a directory has no mark after a power cut |
//! | fsync of the directory's parent, with the same exceptions | the volume is missing after a power cut |
//!
//! Costs of a deletion, in addition to the root, the lock and the mark:
//!
//! | system calls | consequence without them |
//! |---|---|
//! | mkdir `deleting/VOLUME`; its record: write in `tmp`, fsync, link, fsync, unlink | leftovers of an interrupted removal are unknown |
//! | rename of the directory into it | a half-removed volume is mounted |
//! | fsync of the entry, except on XFS, and ext4 with a journal | a power cut loses the data in the trash |
//! | fsync of its parent | the directory reappears after a power cut, and the controller does not request its deletion again |
//! | unlink of the mark | no other volume can use the path |
//! | open, fchmod, read and unlink all its contents | the data is not deleted |
//! | open the record, and up to 16 names in `projects` | the project that enforces its size is never released |
//! | unlink of the record, rmdir | the next start repeats the removal |
//!
//! These last steps are not synced: if a power cut brings back parts of the mark or the entry, the next start removes
//! them.
//!
//! The fsyncs of a volume come last. A power cut before that can leave an empty mark, with or without an empty
//! directory; the next attempt or the deletion removes both, see `Root::recovered`. A syncfs(2) instead would also wait
//! for the writes of pods on the same disk.
//!
//! XFS and ext4 write all changes of names and inodes to one log, in order, and an fsync persists the log up to the
//! file's last change. The directory is changed last, so its fsync also persists both names, and only the content of
//! the mark needs another fsync. Additional fsyncs are expensive: since Linux 6.4, each fsync of a directory on ext4
//! commits what other threads are writing at that moment, so a volume would wait for up to four commits. The
//! directory's fsync is necessary on ext4 with fast commits, which do not contain modes of directories.
//!
//! Volumes share commits, because threads sync in rounds ([`Rounds`](crate::sync::Rounds)), at most one in 10 ms.
//! Without rounds, a commit would begin as soon as the last one ends, and contain only the few volumes created in
//! between. A single volume does not wait.
//!
//! The power-cut tests (`examples/power_cut.rs`) fail on XFS and ext4 without the fsync of the mark's file and without
//! the fsync after the rename.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::entry::Discarded;
use crate::error::{DirectoryError, Holder, failed};
use crate::files::{self, Durability};
use crate::mark::{Mark, Owner};
use crate::open_directory;
use crate::parents::Proof;
use crate::path::VolumePath;
use crate::remove;
use crate::root::Root;
use crate::state::{DELETING, State, TRASH, open_down};
use crate::sync::Parts;

/// Retry limit when a parent directory is removed concurrently.
const MAX_ATTEMPTS: usize = 16;

/// Owner and mode of a volume's directory.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    /// The mode without the file type.
    pub mode: u32,
    /// The user that owns it; defaults to the user of this process.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

/// The parameters of a new volume.
pub(crate) struct NewVolume<'a> {
    pub(crate) path: &'a VolumePath,
    pub(crate) owner: &'a Owner,
    /// True if the volume's reclaim policy is Retain.
    pub(crate) retain: bool,
    pub(crate) permissions: &'a Permissions,
    /// The size in bytes, if it is enforced.
    pub(crate) size: Option<u64>,
}

impl Root {
    /// Creates the directory of a volume, or completes one that an earlier attempt left. `size` is its limit in bytes.
    /// `retain` is true if the volume's reclaim policy is Retain. The returned path is only for the PersistentVolume.
    ///
    /// # Errors
    /// Fails if the root's marker is not the expected one, or if the path is taken.
    pub fn create(
        &self,
        path: &VolumePath,
        owner: &Owner,
        retain: bool,
        permissions: &Permissions,
        size: Option<u64>,
        fencing_token: &FencingToken,
    ) -> Result<PathBuf, DirectoryError> {
        self.create_within(&self.enter()?, &NewVolume { path, owner, retain, permissions, size }, fencing_token)
    }

    pub(crate) fn create_within(
        &self,
        state: &State,
        volume: &NewVolume<'_>,
        fencing_token: &FencingToken,
    ) -> Result<PathBuf, DirectoryError> {
        let NewVolume { path, owner, retain, permissions, size } = *volume;
        let (_, last) = path.split();
        let error = |error| failed("cannot create the directory", path.as_str(), error);
        // Finish an earlier removal first, because it releases the project of this name.
        self.finish_removal(state, &owner.volume, fencing_token)?;
        // Two processes may briefly work on one volume, if one of them was suspended and does not know about its
        // successor.
        let lock = state.lock(path)?;
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        // An earlier attempt that marked the path has already checked it.
        let proof = if self.recover_mark(state, path, owner, fencing_token)?.is_some() {
            Proof::Permissions
        } else {
            Proof::Created
        };
        self.check_parents(state, path, proof)?;
        let (mark, is_new) = state.reserve(path, owner, retain, Durability::Deferred)?;
        self.check_owner(path, owner, &mark)?;
        for _ in 0..MAX_ATTEMPTS {
            let directory = match self.create_parents(state, path) {
                Ok(Some(directory)) => directory,
                // The last volume in it was removed.
                Ok(None) => continue,
                // Remove the mark, which would prove that the directory belongs to this provisioner.
                Err(error @ DirectoryError::Exposed { .. }) if is_new => {
                    state.unmark(path)?;
                    state.remove_empty_parents(path);
                    return Err(error);
                }
                Err(error) => return Err(error),
            };
            match rustix::fs::mkdirat(&directory, last, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => continue,
                Err(failure) => return Err(error(failure)),
            }
            let opened = open_directory::open(directory.as_fd(), last)
                .map_err(|failure| self.not_a_directory(path, failure, "cannot open the directory"))?;
            if let Some(bytes) = size {
                self.limit(state, path, owner, &opened, bytes)?;
            }
            self.apply_permissions(state, path, &opened, permissions)?;
            let (mark, marks) = state.open_mark(path).map_err(error)?;
            // Waiting for the disk would delay other paths that share the lock.
            drop(lock);
            // Sync everything, even if an earlier attempt created it, because that attempt may have ended before its
            // sync.
            let parts = Parts { mark, marks, directory: opened, above: directory };
            parts.sync(&self.rounds).map_err(error)?;
            return Ok(self.path().join(path.as_str()));
        }
        Err(error(Errno::BUSY))
    }

    /// Removes the directory of a volume with all its contents. Succeeds if it no longer exists.
    ///
    /// Stops early when the fencing token becomes invalid; the next call continues.
    ///
    /// # Errors
    /// Fails if the directory does not belong to that volume, or cannot be removed now.
    pub fn remove(&self, path: &VolumePath, owner: &Owner, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        // Finish the removal of an earlier call first.
        self.finish_removal(&state, &owner.volume, fencing_token)?;
        let lock = state.lock(path)?;
        let Some(mark) = self.recover_mark(&state, path, owner, fencing_token)? else {
            return Ok(());
        };
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        let discarded = Discarded::new(mark, path.clone());
        let moved = self.discard(&state, DELETING, &discarded);
        drop(lock);
        match moved {
            Ok(()) => self.finish_removal(&state, &owner.volume, fencing_token),
            // A full disk has no room for the new name, but removing files frees space.
            Err(DirectoryError::Io { source, .. })
                if matches!(Errno::from_io_error(&source), Some(Errno::NOSPC | Errno::DQUOT)) =>
            {
                self.remove_in_place(&state, &discarded, fencing_token)
            }
            Err(error) => Err(error),
        }
    }

    /// Leaves the directory of a deleted volume in place, and records that. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Fails if the directory does not belong to that volume.
    pub fn keep(&self, path: &VolumePath, owner: &Owner) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        match self.own_mark(&state, path, owner)? {
            Some(mark) if mark.kept.is_none() => state.update(path, &Mark { kept: Some(Timestamp::now()), ..mark }),
            _ => Ok(()),
        }
    }

    /// Finishes interrupted removals. Their volumes may no longer exist, so the controller would not request them
    /// again.
    ///
    /// A removal that fails does not block the others: all are tried, and the first error is returned.
    ///
    /// # Errors
    /// Fails if a removal cannot be finished.
    pub fn finish_removals(&self, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let mut result = files::clear(&state.tmp, SystemTime::now())
            .map_err(|error| failed("cannot remove the files of former processes in", "tmp", error));
        for of in [DELETING, TRASH] {
            for volume in state.list(of)? {
                result = result.and(self.unmark_moved(&state, of, &volume));
            }
        }
        for volume in state.list(DELETING)? {
            result = result.and(self.finish_removal(&state, &volume, fencing_token));
        }
        result
    }

    /// Removes the mark of a volume that was moved from its path, and the directories above it. A power cut brings them
    /// back, because their removal is not synced to disk, and the mark would block the path for other volumes. A killed
    /// process also leaves them behind.
    fn unmark_moved(&self, state: &State, of: &'static str, volume: &str) -> Result<(), DirectoryError> {
        // An unreadable entry must not block the others, and its path is unknown.
        let Ok(Some(Discarded { mark, path, .. })) = state.discarded(of, volume) else { return Ok(()) };
        let _lock = state.lock(&path)?;
        if self.is_there(state, &path)? {
            return Ok(());
        }
        if state.mark(&path)?.is_some_and(|found| found.owner == mark.owner) {
            state.unmark(&path)?;
        }
        state.remove_empty_parents(&path);
        Ok(())
    }

    /// Returns the volume's own mark; `None` if neither the mark nor a directory exists.
    pub(crate) fn own_mark(
        &self,
        state: &State,
        path: &VolumePath,
        owner: &Owner,
    ) -> Result<Option<Mark>, DirectoryError> {
        match state.mark(path)? {
            Some(mark) => self.check_owner(path, owner, &mark).map(|()| Some(mark)),
            None if self.is_there(state, path)? => {
                Err(DirectoryError::NotOurs { path: self.path().join(path.as_str()) })
            }
            None => Ok(None),
        }
    }

    /// Like [`Self::own_mark`], but first removes a mark that a power cut left empty, and its empty directory.
    /// A mark is synced before its volume can be used, so no pod has written to the directory. Requires the lock.
    pub(crate) fn recover_mark(
        &self,
        state: &State,
        path: &VolumePath,
        owner: &Owner,
        fencing_token: &FencingToken,
    ) -> Result<Option<Mark>, DirectoryError> {
        let error = |error| failed("cannot remove the unfinished directory", path.as_str(), error);
        match self.own_mark(state, path, owner) {
            Err(DirectoryError::Damaged { .. }) if state.is_mark_empty(path).map_err(error)? => {}
            found => return found,
        }
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        let (above, last) = path.split();
        match open_down(state.root.as_fd(), &above)
            .and_then(|above| files::remove(above.as_fd(), last, AtFlags::REMOVEDIR))
        {
            Ok(()) | Err(Errno::NOENT) => {}
            // The mark was damaged in another way.
            Err(Errno::NOTEMPTY | Errno::EXIST) => return self.own_mark(state, path, owner),
            Err(failure) => return Err(error(failure)),
        }
        self.release_project(state, owner)?;
        state.unmark(path)?;
        state.remove_empty_parents(path);
        Ok(None)
    }

    fn remove_in_place(
        &self,
        state: &State,
        discarded: &Discarded,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let (above, last) = discarded.path.split();
        match open_down(state.root.as_fd(), &above) {
            Ok(directory) => remove::tree(&directory, last, &discarded.mark.owner.volume, fencing_token)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed("cannot open", discarded.path.as_str(), error)),
        }
        self.release_project(state, &discarded.mark.owner)?;
        state.unmark(&discarded.path)?;
        state.remove_empty_parents(&discarded.path);
        Ok(())
    }

    /// Refuses a path that belongs to another volume.
    pub(crate) fn check_owner(&self, path: &VolumePath, owner: &Owner, mark: &Mark) -> Result<(), DirectoryError> {
        if mark.belongs_to(owner) {
            Ok(())
        } else {
            let holder = &mark.owner;
            let is_namesake = owner.uid.is_some() && owner.volume == holder.volume;
            let kind = match mark.kept {
                _ if is_namesake => Holder::Namesake,
                Some(_) => Holder::Kept,
                None => Holder::Volume,
            };
            Err(DirectoryError::Taken { path: path.to_string(), holder: kind(Box::new(holder.clone())) })
        }
    }

    /// Returns true if a path exists.
    fn is_there(&self, state: &State, path: &VolumePath) -> Result<bool, DirectoryError> {
        let (above, last) = path.split();
        let found = open_down(state.root.as_fd(), &above)
            .and_then(|directory| rustix::fs::statat(directory, last, AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.not_a_directory(path, error, "cannot inspect")),
        }
    }

    /// Sets the directory's owner and mode according to the class, regardless of the umask.
    fn apply_permissions(
        &self,
        state: &State,
        path: &VolumePath,
        directory: &OwnedFd,
        permissions: &Permissions,
    ) -> Result<(), DirectoryError> {
        let Permissions { mode, uid, gid } = *permissions;
        let name = path.as_str();
        let stat = rustix::fs::fstat(directory).map_err(|error| failed("cannot inspect", name, error))?;
        let us = self.owner(state).map_err(|error| failed("cannot find the owner of", name, error))?;
        // An earlier attempt may have already changed the owner.
        if stat.st_uid != us && Some(stat.st_uid) != uid {
            return Err(self.in_the_way(path, "belongs to another owner"));
        }
        if uid.is_some() || gid.is_some() {
            let given = rustix::fs::fchown(directory, uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            given.map_err(|error| match error {
                Errno::PERM => DirectoryError::NotAllowed { name: name.to_owned() },
                error => failed("cannot change the owner of", name, error),
            })?;
        }
        // Do this after the owner, because chown clears the set-group-id bit.
        rustix::fs::fchmod(directory, Mode::from_raw_mode(mode))
            .map_err(|error| failed("cannot change the mode of", name, error))
    }

    /// Returns the error for a directory that cannot be opened.
    pub(crate) fn not_a_directory(&self, path: &VolumePath, error: Errno, doing: &'static str) -> DirectoryError {
        match error {
            Errno::LOOP | Errno::NOTDIR => self.in_the_way(path, "is not a directory"),
            // In a user namespace, the project of a directory cannot be changed.
            Errno::XDEV => self.in_the_way(path, "is a mounted file system, or in another quota project"),
            // This process cannot even read it, so it did not create it.
            Errno::ACCESS => self.in_the_way(path, "belongs to another owner"),
            error => failed(doing, path.as_str(), error),
        }
    }

    fn in_the_way(&self, path: &VolumePath, what: &'static str) -> DirectoryError {
        DirectoryError::InTheWay { path: self.path().join(path.as_str()), what }
    }
}
