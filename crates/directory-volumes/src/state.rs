//! The root and its `.kube-provisioner`, opened for one operation.

use std::fmt::Display;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use crate::error::{DirectoryError, Holder, failed};
use crate::files::Durability;
use crate::mark::{Mark, Owner};
use crate::path::VolumePath;
use crate::{files, lock, open_directory};

/// The provisioner's own directory below the root.
pub(crate) const OWN: &str = ".kube-provisioner";
/// The root's marker.
pub(crate) const MARKER: &str = "root";
pub(crate) const VOLUMES: &str = "volumes";
pub(crate) const PROJECTS: &str = "projects";
pub(crate) const DELETING: &str = "deleting";
pub(crate) const TRASH: &str = "trash";
pub(crate) const RESTORING: &str = "restoring";
pub(crate) const LOCKS: &str = "locks";
pub(crate) const NOTES: &str = "notes";
pub(crate) const TMP: &str = "tmp";

/// Retry limit when another process removes the same directories because they are empty.
const MAX_ATTEMPTS: usize = 16;

/// Handles of the root after its marker was checked.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) root: OwnedFd,
    pub(crate) own: OwnedFd,
    pub(crate) volumes: OwnedFd,
    pub(crate) tmp: OwnedFd,
}

impl State {
    /// Opens the directories created by [`State::make`].
    pub(crate) fn open(root: OwnedFd, own: OwnedFd) -> Result<Self, Errno> {
        let (volumes, tmp) = (open_directory::open(own.as_fd(), VOLUMES)?, open_directory::open(own.as_fd(), TMP)?);
        Ok(Self { root, own, volumes, tmp })
    }

    /// Creates the directories for a new root.
    pub(crate) fn make(root: OwnedFd) -> Result<Self, Errno> {
        let own = files::make_directory(root.as_fd(), OWN, Mode::RWXU)?;
        for name in [VOLUMES, PROJECTS, DELETING, TRASH, RESTORING, NOTES, TMP] {
            files::make_directory(own.as_fd(), name, Mode::RWXU)?;
        }
        lock::make_all(&files::make_directory(own.as_fd(), LOCKS, Mode::RWXU)?)?;
        rustix::fs::fsync(&root)?;
        Self::open(root, own)
    }

    /// Opens one of the provisioner's own directories.
    pub(crate) fn directory(&self, name: &'static str) -> Result<OwnedFd, DirectoryError> {
        open_directory::open(self.own.as_fd(), name)
            .map_err(|error| failed("cannot open", format!("{OWN}/{name}"), error))
    }

    /// Creates a small file durably in one of the provisioner's own directories, see [`files::create`].
    pub(crate) fn create_file(&self, directory: BorrowedFd<'_>, name: &str, content: &[u8]) -> Result<(), Errno> {
        files::create(self.tmp.as_fd(), directory, name, content, Durability::Immediate)
    }

    /// Returns the mark of a directory.
    pub(crate) fn mark(&self, path: &VolumePath) -> Result<Option<Mark>, DirectoryError> {
        let (above, last) = path.split();
        match self.above(&above) {
            Ok(directory) => self.read_mark(&directory, last, path),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(failed("cannot read the mark of", path.as_str(), error)),
        }
    }

    /// Marks a directory for its owner, unless it has a mark. Returns its current mark, and whether it is new.
    ///
    /// The tree of marks mirrors the tree of volumes, so a volume within another one has no place for its mark.
    pub(crate) fn reserve(
        &self,
        path: &VolumePath,
        owner: &Owner,
        retain: bool,
        durable: Durability,
    ) -> Result<(Mark, bool), DirectoryError> {
        let mark = Mark { owner: owner.clone(), volume_uid: None, created: Timestamp::now(), kept: None, retain };
        let content = to_json(&mark);
        let (above, last) = path.split();
        let error = |error| {
            // If the directories above the mark remained, they would prove that this provisioner created the
            // directories above the volume.
            self.remove_empty_parents(path);
            failed("cannot mark", path.as_str(), error)
        };
        for _ in 0..MAX_ATTEMPTS {
            let directory = match self.create_parents(&above) {
                Ok(directory) => directory,
                // The directory is missing again, because its last volume was removed.
                Err(Errno::NOENT) => continue,
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(self.nested(path)),
                Err(failure) => return Err(error(failure)),
            };
            match files::create(self.tmp.as_fd(), directory.as_fd(), last, &content, durable) {
                Ok(()) => return Ok((mark, true)),
                Err(Errno::NOENT) => continue,
                // The directory was above volumes, but no longer is.
                Err(Errno::EXIST) if rustix::fs::unlinkat(&directory, last, AtFlags::REMOVEDIR).is_ok() => continue,
                Err(Errno::EXIST) => {}
                Err(failure) => return Err(error(failure)),
            }
            // `None` means that the mark was removed between the two calls.
            if let Some(mark) = self.read_mark(&directory, last, path)? {
                return Ok((mark, false));
            }
        }
        Err(error(Errno::BUSY))
    }

    /// Opens a mark, and the directory that contains it.
    pub(crate) fn open_mark(&self, path: &VolumePath) -> Result<(OwnedFd, OwnedFd), Errno> {
        let (above, last) = path.split();
        let directory = self.above(&above)?;
        Ok((files::open(directory.as_fd(), last)?, directory))
    }

    /// Returns true if a power cut left the mark without content, before it was synced.
    pub(crate) fn is_mark_empty(&self, path: &VolumePath) -> Result<bool, Errno> {
        let (above, last) = path.split();
        let content = files::read(self.above(&above)?.as_fd(), last)?;
        Ok(content.is_some_and(|content| content.iter().all(|byte| *byte == 0)))
    }

    /// Updates a mark with new information about its owner.
    pub(crate) fn update(&self, path: &VolumePath, mark: &Mark) -> Result<(), DirectoryError> {
        let (above, last) = path.split();
        let replaced = self
            .above(&above)
            .and_then(|directory| files::replace(self.tmp.as_fd(), directory.as_fd(), last, &to_json(mark)));
        replaced.map_err(|error| failed("cannot mark", path.as_str(), error))
    }

    /// Removes a mark. The directories above it stay, see [`remove_empty_parents`](Self::remove_empty_parents).
    pub(crate) fn unmark(&self, path: &VolumePath) -> Result<(), DirectoryError> {
        let (above, last) = path.split();
        let removed = match self.above(&above) {
            Ok(directory) => files::remove(directory.as_fd(), last, AtFlags::empty()),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|error| failed("cannot remove the mark of", path.as_str(), error))
    }

    fn above(&self, names: &[&str]) -> Result<OwnedFd, Errno> {
        open_down(self.volumes.as_fd(), names)
    }

    fn create_parents(&self, names: &[&str]) -> Result<OwnedFd, Errno> {
        make_down(self.volumes.as_fd(), names, Mode::RWXU)
    }

    fn read_mark(&self, directory: &OwnedFd, last: &str, path: &VolumePath) -> Result<Option<Mark>, DirectoryError> {
        match read_json(directory.as_fd(), last, format_args!("{VOLUMES}/{path}")) {
            Err(DirectoryError::Io { source, .. }) if source.kind() == ErrorKind::IsADirectory => {
                match open_directory::open(directory.as_fd(), last).and_then(|below| files::names(&below)) {
                    // The directory was above volumes, but no longer is.
                    Ok(below) if below.is_empty() => Ok(None),
                    Err(Errno::NOENT) => Ok(None),
                    Ok(_) => Err(self.nested(path)),
                    Err(error) => Err(failed("cannot read the mark of", path.as_str(), error)),
                }
            }
            read => read,
        }
    }

    /// Returns the error for a path with a volume above or below it.
    pub(crate) fn nested(&self, path: &VolumePath) -> DirectoryError {
        DirectoryError::Taken { path: path.to_string(), holder: Holder::Nested }
    }
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    // The structs contain only texts and numbers, so this cannot fail.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Reads a file in a directory. `path` is its path below `.kube-provisioner`, for the error.
pub(crate) fn read_json<T: serde::de::DeserializeOwned>(
    directory: BorrowedFd<'_>,
    name: &str,
    path: impl Display,
) -> Result<Option<T>, DirectoryError> {
    let content = files::read(directory, name).map_err(|error| failed("cannot read", name, error))?;
    let read = content.map(|content| serde_json::from_slice(&content)).transpose();
    read.map_err(|error| DirectoryError::Damaged { name: path.to_string(), reason: error.to_string() })
}

/// Opens nested directories.
pub(crate) fn open_down(top: BorrowedFd<'_>, names: &[&str]) -> Result<OwnedFd, Errno> {
    let (first, others) = names.split_first().unwrap_or((&".", &[]));
    let mut directory = open_directory::open(top, *first)?;
    for name in others {
        directory = open_directory::open(directory.as_fd(), *name)?;
    }
    Ok(directory)
}

/// Same as [`open_down`], creating missing directories.
pub(crate) fn make_down(top: BorrowedFd<'_>, names: &[&str], mode: Mode) -> Result<OwnedFd, Errno> {
    let mut directory = open_directory::open(top, ".")?;
    for name in names {
        directory = files::make_directory(directory.as_fd(), name, mode)?;
    }
    Ok(directory)
}

/// Removes empty directories, from the lowest one up, except the first `keep`. Stops at a directory that is not empty.
/// Another process may remove the same directories. Returns the number of directories that remain.
pub(crate) fn remove_empty(top: BorrowedFd<'_>, names: &[&str], keep: usize) -> usize {
    for count in (keep + 1..=names.len()).rev() {
        let removed = open_down(top, &names[..count - 1])
            .and_then(|directory| rustix::fs::unlinkat(directory, names[count - 1], AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(_) => return count,
        }
    }
    keep
}
