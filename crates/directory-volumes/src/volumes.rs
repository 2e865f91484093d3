//! Making and removing the directory of one volume.
//!
//! What the creation of a volume costs, and why (where no directory is above the volume and no quota limits it):
//!
//! | system calls | without them |
//! |---|---|
//! | open the root, `.kube-provisioner` and its marker, read that, open `volumes` and `tmp` | a volume on another disk than that of the marker. [`Worker`](crate::Worker) does it twice: before the claim's node is certain, and when the volume is made. It is a step of its own in the thread, so that a root that hangs keeps nobody waiting |
//! | quotactl of the root, as often | a size that nobody enforces, or a warning that is wrong |
//! | open `deleting/VOLUME` | the project of an earlier volume of this name is given back after this one has got it |
//! | open and lock one of the locks | two processes mark one path for two volumes |
//! | open the mark, look for the directory | a directory that nobody has marked is taken over |
//! | write a file in `tmp`, fsync, link, unlink | after a power cut the mark is empty |
//! | fsync of the marks | after a power cut there is a directory without a mark |
//! | mkdir, open, fstat, fchmod | the umask decides who may use it; a directory of somebody else is given away |
//! | fsync of the directory | after a power cut nobody may write in it |
//! | fsync of the one above | after a power cut the volume is gone |
//!
//! And of a deletion, beside the root, the lock and the mark:
//!
//! | system calls | without them |
//! |---|---|
//! | mkdir `deleting/VOLUME`; its record: write in `tmp`, fsync, link, fsync, unlink | nobody knows what a removal has left that was cut off |
//! | rename of the directory to it | a volume that is half removed is mounted |
//! | fsync of the directory above | after a power cut the volume is back, and nobody asks again to delete it |
//! | unlink of the mark | nobody else gets the path |
//! | open, fchmod, read and unlink all that is in it | the data stay |
//! | open the record, and up to 16 names in `projects` | the project of its size is never given back |
//! | unlink of the record, rmdir | the next start does it again |
//!
//! Nothing is synced after that: what a power cut brings back of the mark and of the entry, the next start removes.
//!
//! The four fsyncs of a volume follow each other, and those of several volumes share the commits of the file system's journal: the
//! kernel lets all who wait share one. A second such mechanism here, one fsync of the marks and of the root for all threads that
//! wait, was slower on a disk, because a thread waits for the rest of one round and for the next. A syncfs(2) waits for what pods
//! write on the same disk.
//!
//! The tests of power cuts (`examples/power_cut.rs`) fail on XFS and ext4 without the fsync of the mark's file and without that
//! after the rename, and on XFS without that of the directory. There, that of the directory brings the names of the directory and of
//! its mark along; other file systems do not promise that.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use jiff::Timestamp;
use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::above::Proof;
use crate::descend;
use crate::entry::Discarded;
use crate::error::{DirectoryError, Holder, failed};
use crate::files;
use crate::mark::{Mark, Owner};
use crate::path::VolumePath;
use crate::remove;
use crate::root::Root;
use crate::state::{DELETING, State, TRASH, open_down};

/// So often the last volume in a directory above may go between two calls.
const MOST_ATTEMPTS: usize = 16;

/// Who may do what in a volume's directory.
#[derive(Clone, Copy, Debug)]
pub struct Permissions {
    /// The mode, without the type.
    pub mode: u32,
    /// The user that owns it; without one, who this process is.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

/// What is made for a volume.
pub(crate) struct NewVolume<'a> {
    pub(crate) path: &'a VolumePath,
    pub(crate) owner: &'a Owner,
    /// Whether its data stay when the volume is deleted.
    pub(crate) retain: bool,
    pub(crate) permissions: &'a Permissions,
    /// In bytes, where it is enforced.
    pub(crate) size: Option<u64>,
}

impl Root {
    /// Makes the directory of a volume, or finds it as an earlier attempt left it. With a size, it can hold no more bytes.
    /// `retain` says whether its reclaim policy is Retain. The path is for the PersistentVolume only.
    ///
    /// # Errors
    /// When the root is not what it was, or something else is at the path.
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
        let error = |error| failed("cannot make the directory", path.as_str(), error);
        // Its project would be given back only then.
        self.finish_removal(state, &owner.volume, fencing_token)?;
        // Two processes may work on one volume for a moment, where one stood still and does not know that it was succeeded.
        let _lock = state.lock(path)?;
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        // What an earlier attempt has marked, it has checked.
        let proof = if self.marked(state, path, owner)?.is_some() { Proof::Rights } else { Proof::Made };
        self.check_above(state, path, proof)?;
        let (mark, is_new) = state.reserve(path, owner, retain)?;
        self.expect(path, owner, &mark)?;
        for _ in 0..MOST_ATTEMPTS {
            let directory = match self.make_above(state, path) {
                Ok(Some(directory)) => directory,
                // The last volume in it went.
                Ok(None) => continue,
                // The mark would be taken for a proof that the directory is ours.
                Err(error @ DirectoryError::Exposed { .. }) if is_new => {
                    state.unmark(path)?;
                    self.remove_above(state, path);
                    return Err(error);
                }
                Err(error) => return Err(error),
            };
            match rustix::fs::mkdirat(&directory, last, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => continue,
                Err(failure) => return Err(error(failure)),
            }
            let opened = descend::open(directory.as_fd(), last)
                .map_err(|failure| self.not_a_directory(path, failure, "cannot open the directory"))?;
            if let Some(bytes) = size {
                self.limit(state, path, owner, &opened, bytes)?;
            }
            self.open_up(state, path, &opened, permissions)?;
            // Both also where an earlier attempt has made it: that may have ended before it was on the disk.
            rustix::fs::fsync(&opened).map_err(error)?;
            rustix::fs::fsync(&directory).map_err(error)?;
            return Ok(self.path().join(path.as_str()));
        }
        Err(error(Errno::BUSY))
    }

    /// Removes the directory of a volume with all that is in it. Gone already is success.
    ///
    /// Stops early when the fencing token ends; the next call continues.
    ///
    /// # Errors
    /// When the directory is not that volume's, or cannot be removed now.
    pub fn remove(&self, path: &VolumePath, owner: &Owner, fencing_token: &FencingToken) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        // What an earlier call left makes room first.
        self.finish_removal(&state, &owner.volume, fencing_token)?;
        let lock = state.lock(path)?;
        let Some(mark) = self.marked(&state, path, owner)? else {
            return Ok(());
        };
        if !fencing_token.is_valid() {
            return Err(DirectoryError::Fenced(path.to_string()));
        }
        let leaving = Discarded::now(mark, path.clone());
        let moved = self.discard(&state, DELETING, &leaving);
        drop(lock);
        match moved {
            Ok(()) => self.finish_removal(&state, &owner.volume, fencing_token),
            // A full disk has no room for the new name, and removing things is what helps it.
            Err(DirectoryError::Io { source, .. })
                if matches!(Errno::from_io_error(&source), Some(Errno::NOSPC | Errno::DQUOT)) =>
            {
                self.remove_in_place(&state, &leaving, fencing_token)
            }
            Err(error) => Err(error),
        }
    }

    /// Leaves the directory of a deleted volume where it is, and notes that. Gone already is success.
    ///
    /// # Errors
    /// When the directory is not that volume's.
    pub fn keep(&self, path: &VolumePath, owner: &Owner) -> Result<(), DirectoryError> {
        let state = self.enter()?;
        let _lock = state.lock(path)?;
        match self.marked(&state, path, owner)? {
            Some(mark) if mark.kept.is_none() => state.update(path, &Mark { kept: Some(Timestamp::now()), ..mark }),
            _ => Ok(()),
        }
    }

    /// Finishes what earlier removals left. Their volumes may be gone, so nobody would ask again.
    ///
    /// One that cannot be removed does not keep the others: all are tried, and the first error is returned.
    ///
    /// # Errors
    /// What kept something.
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

    /// Removes the mark of a volume that has left its path, and the directories above it. A power cut brings them back,
    /// because their removal is not synced to the disk, and the mark would block the path for other volumes. A process that is killed
    /// leaves them.
    fn unmark_moved(&self, state: &State, of: &'static str, volume: &str) -> Result<(), DirectoryError> {
        // One that cannot be read must not keep the others, and says nothing about a path.
        let Ok(Some(Discarded { mark, path, .. })) = state.discarded(of, volume) else { return Ok(()) };
        let _lock = state.lock(&path)?;
        if self.is_there(state, &path)? {
            return Ok(());
        }
        if state.mark(&path)?.is_some_and(|found| found.owner == mark.owner) {
            state.unmark(&path)?;
        }
        self.remove_above(state, &path);
        Ok(())
    }

    /// The volume's own mark; `None` when neither that nor a directory is there.
    pub(crate) fn marked(
        &self,
        state: &State,
        path: &VolumePath,
        owner: &Owner,
    ) -> Result<Option<Mark>, DirectoryError> {
        match state.mark(path)? {
            Some(mark) => self.expect(path, owner, &mark).map(|()| Some(mark)),
            None if self.is_there(state, path)? => {
                Err(DirectoryError::NotOurs { path: self.path().join(path.as_str()) })
            }
            None => Ok(None),
        }
    }

    fn remove_in_place(
        &self,
        state: &State,
        leaving: &Discarded,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let (above, last) = leaving.path.split();
        match open_down(state.root.as_fd(), &above) {
            Ok(directory) => remove::tree(&directory, last, &leaving.mark.owner.volume, fencing_token)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed("cannot open", leaving.path.as_str(), error)),
        }
        self.release_project(state, &leaving.mark.owner)?;
        state.unmark(&leaving.path)?;
        self.remove_above(state, &leaving.path);
        Ok(())
    }

    /// Refuses a path that another volume has.
    pub(crate) fn expect(&self, path: &VolumePath, owner: &Owner, mark: &Mark) -> Result<(), DirectoryError> {
        if mark.is_of(owner) {
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

    /// Whether anything is at a path.
    fn is_there(&self, state: &State, path: &VolumePath) -> Result<bool, DirectoryError> {
        let (above, last) = path.split();
        let found = open_down(state.root.as_fd(), &above)
            .and_then(|directory| rustix::fs::statat(directory, last, AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.not_a_directory(path, error, "cannot look at")),
        }
    }

    /// Gives the directory to whom the class says, whatever the umask is.
    fn open_up(
        &self,
        state: &State,
        path: &VolumePath,
        directory: &OwnedFd,
        permissions: &Permissions,
    ) -> Result<(), DirectoryError> {
        let Permissions { mode, uid, gid } = *permissions;
        let name = path.as_str();
        let stat = rustix::fs::fstat(directory).map_err(|error| failed("cannot look at", name, error))?;
        let us = self.owner(state).map_err(|error| failed("cannot find the owner of", name, error))?;
        // An earlier attempt may have given it away already.
        if stat.st_uid != us && Some(stat.st_uid) != uid {
            return Err(self.in_the_way(path, "belongs to somebody else"));
        }
        if uid.is_some() || gid.is_some() {
            let given = rustix::fs::fchown(directory, uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            given.map_err(|error| match error {
                Errno::PERM => DirectoryError::NotAllowed { name: name.to_owned() },
                error => failed("cannot change the owner of", name, error),
            })?;
        }
        // After the owner: changing that takes the set-group-id bit away.
        rustix::fs::fchmod(directory, Mode::from_raw_mode(mode))
            .map_err(|error| failed("cannot change the mode of", name, error))
    }

    /// What it means that a directory cannot be opened.
    pub(crate) fn not_a_directory(&self, path: &VolumePath, error: Errno, doing: &'static str) -> DirectoryError {
        match error {
            Errno::LOOP | Errno::NOTDIR => self.in_the_way(path, "is not a directory"),
            Errno::XDEV => self.in_the_way(path, "is a mounted file system"),
            // Not even readable for this process, which would have made it so.
            Errno::ACCESS => self.in_the_way(path, "belongs to somebody else"),
            error => failed(doing, path.as_str(), error),
        }
    }

    fn in_the_way(&self, path: &VolumePath, what: &'static str) -> DirectoryError {
        DirectoryError::InTheWay { path: self.path().join(path.as_str()), what }
    }
}
