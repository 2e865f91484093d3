//! Small files that exist either completely or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use project_quota::ProjectQuota;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::open_directory;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// Maximum age of a temporary file that a process may still be writing.
const MAX_WRITE: Duration = Duration::from_secs(3600);
/// The size that most marks and records do not exceed.
const USUAL: usize = 1 << 10;

/// The time at which a new file is synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Before the file receives its final name.
    Immediate,
    /// By a later fsync. Until then, a power cut may leave an empty file.
    Deferred,
}

/// Creates a file. Returns `EXIST` if it already exists; the content of a file never changes.
pub(crate) fn create(
    tmp: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: impl Arg + Copy,
    content: &[u8],
    durable: Durability,
) -> Result<(), Errno> {
    let written = TemporaryFile::new(tmp, content, durable)?;
    // Unlike a rename, a hard link never replaces an existing file, on any file system.
    rustix::fs::linkat(tmp, &*written.name, directory, name, AtFlags::empty())?;
    if durable == Durability::Immediate { rustix::fs::fsync(directory) } else { Ok(()) }
}

/// Opens a file for reading. Returns `LOOP` for a symlink.
pub(crate) fn open(directory: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Creates or replaces a file durably.
pub(crate) fn replace(
    tmp: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: impl Arg + Copy,
    content: &[u8],
) -> Result<(), Errno> {
    let written = TemporaryFile::new(tmp, content, Durability::Immediate)?;
    rustix::fs::renameat(tmp, &*written.name, directory, name)?;
    rustix::fs::fsync(directory)
}

/// Returns a name for a temporary file or directory, which [`clear`] removes after a crash.
pub(crate) fn temporary_name() -> String {
    // In containers every process may have the same pid, and other processes may share the root.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let time = since_epoch(SystemTime::now());
    format!("{}-{}-{}", std::process::id(), time.as_nanos(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Removes temporary files and empty directories left by crashes.
pub(crate) fn clear(tmp: &OwnedFd, now: SystemTime) -> Result<(), Errno> {
    let now = since_epoch(now);
    for (name, kind) in names(tmp)? {
        let written = name.split('-').nth(1).and_then(|nanos| nanos.parse().ok()).map(Duration::from_nanos);
        if written.is_some_and(|written| now.saturating_sub(written) > MAX_WRITE) {
            let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            remove(tmp.as_fd(), &*name, flags)?;
        }
    }
    Ok(())
}

/// Reads a file if it exists. Returns `INVAL` if it is larger than any that this crate writes, `LOOP` for a symlink.
pub(crate) fn read(directory: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<Option<Vec<u8>>, Errno> {
    let file = match open(directory, name) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Reserve room for most files: otherwise the first reads are a few bytes each.
    let mut content = Vec::with_capacity(USUAL);
    let read = file.take(LARGEST + 1).read_to_end(&mut content);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if content.len() as u64 <= LARGEST { Ok(Some(content)) } else { Err(Errno::INVAL) }
}

/// Removes a file or an empty directory. Succeeds if it does not exist.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: impl Arg + Copy, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(directory, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Moves a directory into one that pods do not use. The kernel returns `XDEV` if `to` passes its project on to its
/// entries and the moved directory has another project; this ends the inheritance and tries again. The projects may
/// differ, because the owner of a directory can change its project.
pub(crate) fn move_into(
    from: &OwnedFd,
    name: impl Arg + Copy,
    to: &OwnedFd,
    target: impl Arg + Copy,
) -> Result<(), Errno> {
    match rustix::fs::renameat(from, name, to, target) {
        Err(Errno::XDEV) if ProjectQuota::end_inheritance(to).is_ok() => rustix::fs::renameat(from, name, to, target),
        moved => moved,
    }
}

/// Creates a directory if it does not exist, and opens it.
pub(crate) fn make_directory(above: BorrowedFd<'_>, name: &str, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(above, name, mode) {
        Ok(()) | Err(Errno::EXIST) => open_directory::open(above, name),
        Err(error) => Err(error),
    }
}

/// Lists the contents of a directory with their file types. Omits names that are not valid UTF-8, because no volume has
/// one.
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

/// A file that has only a temporary name. Dropping it removes that name.
struct TemporaryFile<'a> {
    tmp: BorrowedFd<'a>,
    name: String,
}

impl<'a> TemporaryFile<'a> {
    fn new(tmp: BorrowedFd<'a>, content: &[u8], durable: Durability) -> Result<Self, Errno> {
        let name = temporary_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(tmp, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        let written = Self { tmp, name };
        let mut file = File::from(file);
        let synced = |file: &File| if durable == Durability::Immediate { file.sync_all() } else { Ok(()) };
        let stored = file.write_all(content).and_then(|()| synced(&file));
        stored.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(written)
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(self.tmp.as_fd(), &*self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clear_removes_leftovers_of_crashes_after_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let tmp = OwnedFd::from(File::open(folder.path()).unwrap());
        // Leave the name behind, as a crashed process would.
        std::mem::forget(TemporaryFile::new(tmp.as_fd(), b"mark", Durability::Immediate).unwrap());
        std::fs::create_dir(folder.path().join(temporary_name())).unwrap();
        std::fs::write(folder.path().join("by-hand"), "").unwrap();
        let left = || names(&tmp).unwrap().len();
        let now = SystemTime::now();
        clear(&tmp, now).unwrap();
        assert_eq!(left(), 3, "another process may be writing it");
        clear(&tmp, now + MAX_WRITE + Duration::from_secs(60)).unwrap();
        assert_eq!(left(), 1);
        assert!(folder.path().join("by-hand").is_file());
    }
}
