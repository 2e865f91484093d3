//! Small files that are there as a whole or not at all.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::descend;

/// The largest file that is read.
const LARGEST: u64 = 1 << 20;
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
    match content.len() as u64 <= LARGEST {
        true => Ok(Some(content)),
        false => Err(Errno::INVAL),
    }
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
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
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

impl Drop for Written<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(self.tmp.as_fd(), &*self.name, AtFlags::empty());
    }
}
