//! Removal of a tree by descriptors: it follows no symlink, crosses no mount, and handles any depth.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use kube_provisioner::FencingToken;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::error::{DirectoryError, failed};
use crate::files;
use crate::names::{Budget, Names};
use crate::open_directory;

pub(crate) const MOUNTED: &str = "a file system is mounted in it";

/// Maximum depth. Deeper trees are flattened: a directory is moved up, where it is removed later.
const DEEPEST: usize = 64;
/// Maximum number of reads of a directory that keeps filling up, before the removal fails and is tried again later.
const MAX_READS: usize = 64;

/// Removes `name` in `above` with all its contents. Succeeds if it does not exist. Messages name the volume.
pub(crate) fn tree(
    above: &OwnedFd,
    name: &str,
    volume: &str,
    fencing_token: &FencingToken,
) -> Result<(), DirectoryError> {
    tree_within(Budget::shared(), above, name, volume, fencing_token)
}

/// Same as [`tree`], with a budget for the names that it keeps.
pub(crate) fn tree_within(
    budget: &Budget,
    above: &OwnedFd,
    name: &str,
    volume: &str,
    fencing_token: &FencingToken,
) -> Result<(), DirectoryError> {
    let removal = Removal { root: above.as_fd(), volume, fencing_token, budget };
    let name = CString::new(name).map_err(|_| removal.failed(Errno::INVAL))?;
    removal.run(&name)
}

struct Removal<'a> {
    root: BorrowedFd<'a>,
    /// The name of the volume, for messages.
    volume: &'a str,
    fencing_token: &'a FencingToken,
    budget: &'a Budget,
}

/// One directory on the path down.
struct Level<'a> {
    directory: OwnedFd,
    /// Its name in its parent directory.
    name: CString,
    /// Subdirectories that are known and not removed yet.
    children: Names<'a>,
    /// Number of reads since the last one that found a subdirectory.
    reads: usize,
}

impl<'a> Removal<'a> {
    fn level(&self, directory: OwnedFd, name: CString) -> Level<'a> {
        Level { directory, name, children: Names::new(self.budget), reads: 0 }
    }

    fn run(&self, name: &CStr) -> Result<(), DirectoryError> {
        let mut levels = match self.enter(self.root, name)? {
            Entered::Directory(directory) => vec![self.level(directory, name.to_owned())],
            Entered::NotThere => return Ok(()),
            Entered::Other => return self.unlink(self.root, name, AtFlags::empty()).map(drop),
        };
        // Directories that are moved up need distinct names.
        let mut moved = 0_u64;
        while let Some(mut level) = levels.pop() {
            self.check_fencing_token()?;
            if level.children.is_empty() {
                level.reads += 1;
                if level.reads > MAX_READS {
                    return Err(self.busy("a process keeps writing into it"));
                }
                level.children = self.remove_files(&level.directory)?;
            }
            let above = levels.last().map_or(self.root, |above| above.directory.as_fd());
            let Some(child) = level.children.pop() else {
                if !self.unlink(above, &level.name, AtFlags::REMOVEDIR)? {
                    // A file was added in the meantime: read it once more.
                    levels.push(level);
                }
                continue;
            };
            if levels.len() >= DEEPEST {
                moved += 1;
                if self.move_up(&level.directory, &child, &levels[0].directory, moved)? {
                    level.reads = 0;
                    levels.push(level);
                    continue;
                }
            }
            match self.enter(level.directory.as_fd(), &child)? {
                Entered::Directory(directory) => {
                    level.reads = 0;
                    levels.extend([level, self.level(directory, child)]);
                }
                Entered::NotThere => levels.push(level),
                Entered::Other => {
                    self.unlink(level.directory.as_fd(), &child, AtFlags::empty())?;
                    levels.push(level);
                }
            }
        }
        Ok(())
    }

    /// Moves a directory up; returns `false` if the disk is too full for that.
    fn move_up(&self, from: &OwnedFd, name: &CStr, top: &OwnedFd, number: u64) -> Result<bool, DirectoryError> {
        let flat = format!(".moved-{}-{number}", std::process::id());
        match files::move_into(from, name, top, &*flat) {
            // If the name is taken, the directory is found again, and the next number is tried.
            Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => Ok(true),
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(false),
            Err(Errno::BUSY) => Err(self.busy(MOUNTED)),
            Err(Errno::XDEV) => Err(self.busy("a directory in it cannot be moved, as between quota projects")),
            Err(Errno::ACCESS) => {
                make_accessible(from.as_fd(), name).map_err(|error| self.failed(error))?;
                files::move_into(from, name, top, &*flat).map_err(|error| self.failed(error))?;
                Ok(true)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Removes the files of a directory. Returns its subdirectories, or only some of them if the budget is exhausted.
    fn remove_files(&self, directory: &OwnedFd) -> Result<Names<'a>, DirectoryError> {
        let entries = Dir::read_from(directory).map_err(|error| self.failed(error))?;
        let mut children = Names::new(self.budget);
        for entry in entries {
            self.check_fencing_token()?;
            let entry = entry.map_err(|error| self.failed(error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => self.is_directory(directory.as_fd(), name)?,
                _ => false,
            };
            if !is_directory {
                self.unlink(directory.as_fd(), name, AtFlags::empty())?;
            } else if !children.push(name) {
                break;
            }
        }
        Ok(children)
    }

    /// Opens a directory for removal, never through a symlink or into another mount.
    fn enter(&self, above: BorrowedFd<'_>, name: &CStr) -> Result<Entered, DirectoryError> {
        let opened = match open_directory::open(above, name) {
            Err(Errno::ACCESS) => {
                make_accessible(above, name).map_err(|error| self.failed(error))?;
                open_directory::open(above, name)
            }
            opened => opened,
        };
        let directory = match opened {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(Entered::NotThere),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Entered::Other),
            Err(Errno::XDEV) => return Err(self.busy(MOUNTED)),
            Err(error) => return Err(self.failed(error)),
        };
        // Entries of a directory without these permissions cannot be unlinked. Ignore a failure, because the current
        // permissions may suffice.
        let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
        Ok(Entered::Directory(directory))
    }

    fn is_directory(&self, above: BorrowedFd<'_>, name: &CStr) -> Result<bool, DirectoryError> {
        match rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Unlinks an entry; returns `false` if the directory is not empty.
    fn unlink(&self, above: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<bool, DirectoryError> {
        match rustix::fs::unlinkat(above, name, flags) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(Errno::BUSY) => Err(self.busy(MOUNTED)),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn check_fencing_token(&self) -> Result<(), DirectoryError> {
        if self.fencing_token.is_valid() { Ok(()) } else { Err(DirectoryError::Interrupted(self.volume.to_owned())) }
    }

    fn busy(&self, why: &'static str) -> DirectoryError {
        DirectoryError::Busy { name: self.volume.to_owned(), why }
    }

    fn failed(&self, error: Errno) -> DirectoryError {
        failed("cannot remove", self.volume, error)
    }
}

/// Grants the owner of a directory all permissions, which entering and moving it require: a move changes the `..` entry
/// of the directory. It uses a handle, because changing a mode by name would follow a symlink that replaced the
/// directory.
pub(crate) fn make_accessible(above: BorrowedFd<'_>, name: impl Arg) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::openat(above, name, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode & 0o7777);
    rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode | Mode::RWXU)
}

enum Entered {
    Directory(OwnedFd),
    NotThere,
    Other,
}
