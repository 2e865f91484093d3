//! Small files that are there as a whole or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::descend;

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;
/// A temporary file that is older belongs to no process that writes it.
const LONGEST_WRITE: Duration = Duration::from_secs(3600);
/// Most marks and records are smaller.
const USUAL: usize = 1 << 10;

/// Creates a file, durably. `EXIST` where there is one already; the content of a file never changes.
pub(crate) fn create(
    tmp: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: impl Arg + Copy,
    content: &[u8],
) -> Result<(), Errno> {
    let written = Written::new(tmp, content)?;
    // Unlike a rename, a link replaces nothing, on every file system.
    rustix::fs::linkat(tmp, &*written.name, directory, name, AtFlags::empty())?;
    rustix::fs::fsync(directory)
}

/// Creates a file or takes the place of one, durably.
pub(crate) fn replace(
    tmp: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: impl Arg + Copy,
    content: &[u8],
) -> Result<(), Errno> {
    let written = Written::new(tmp, content)?;
    rustix::fs::renameat(tmp, &*written.name, directory, name)?;
    rustix::fs::fsync(directory)
}

/// Removes the temporary files that crashes have left.
pub(crate) fn clear(tmp: &OwnedFd, now: SystemTime) -> Result<(), Errno> {
    let now = since_epoch(now);
    for (name, _) in names(tmp)? {
        let written = name.split('-').nth(1).and_then(|nanos| nanos.parse().ok()).map(Duration::from_nanos);
        if written.is_some_and(|written| now.saturating_sub(written) > LONGEST_WRITE) {
            remove(tmp.as_fd(), &*name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Reads a file, if it is there. `INVAL` if it is larger than any that this crate writes, `LOOP` for a link.
pub(crate) fn read(directory: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error),
    };
    // With room for most files: without it the first reads are of a few bytes each.
    let mut content = Vec::with_capacity(USUAL);
    let read = file.take(LARGEST + 1).read_to_end(&mut content);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    if content.len() as u64 <= LARGEST { Ok(Some(content)) } else { Err(Errno::INVAL) }
}

/// Removes a file or an empty directory; `false` if it was not there.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: impl Arg + Copy, flags: AtFlags) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(directory, name, flags) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a directory if need be, and opens it.
pub(crate) fn make_directory(above: BorrowedFd<'_>, name: &str, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(above, name, mode) {
        Ok(()) | Err(Errno::EXIST) => descend::open(above, name),
        Err(error) => Err(error),
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

/// A file with its content on disk, without a name of its own yet. What is left of the temporary name goes with this.
struct Written<'a> {
    tmp: BorrowedFd<'a>,
    name: String,
}

impl<'a> Written<'a> {
    fn new(tmp: BorrowedFd<'a>, content: &[u8]) -> Result<Self, Errno> {
        // In containers every process may have the same id, and others may share the root.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let time = since_epoch(SystemTime::now());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}", std::process::id(), time.as_nanos());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(tmp, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        let written = Self { tmp, name };
        let mut file = File::from(file);
        let stored = file.write_all(content).and_then(|()| file.sync_all());
        stored.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(written)
    }
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(self.tmp.as_fd(), &*self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crashes_left_is_removed_an_hour_later() {
        let folder = tempfile::tempdir().unwrap();
        let tmp = OwnedFd::from(File::open(folder.path()).unwrap());
        // The name goes with its process.
        std::mem::forget(Written::new(tmp.as_fd(), b"mark").unwrap());
        std::fs::write(folder.path().join("by-hand"), "").unwrap();
        let left = || names(&tmp).unwrap().len();
        let now = SystemTime::now();
        clear(&tmp, now).unwrap();
        assert_eq!(left(), 2, "somebody may be writing it");
        clear(&tmp, now + LONGEST_WRITE + Duration::from_secs(60)).unwrap();
        assert_eq!(left(), 1);
        assert!(folder.path().join("by-hand").is_file());
    }
}
