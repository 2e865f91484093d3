//! Locks that allow one operation at a time per path, even if two processes work on one root.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{DirectoryError, failed};
use crate::path::VolumePath;
use crate::state::{LOCKS, State, TRASH};

/// Number of locks that the paths share. They are created with the root, so that they exist even when the disk is full.
const COUNT: u32 = 64;
/// Time limit for acquiring a lock. Operations under a lock take milliseconds.
const LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// A lock that is released when it is dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Option<OwnedFd>,
}

impl State {
    /// Acquires the lock of a path. Fails after some seconds, so that a holder that hangs does not block all others.
    pub(crate) fn lock(&self, path: &VolumePath) -> Result<Lock, DirectoryError> {
        let hash = path.as_str().bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        self.lock_file(&(hash % COUNT).to_string(), path.as_str())
    }

    /// Acquires the lock of all trash entries. If both locks are needed, acquire the lock of the path first.
    pub(crate) fn lock_trash(&self) -> Result<Lock, DirectoryError> {
        self.lock_file(TRASH, TRASH)
    }

    fn lock_file(&self, name: &str, what: &str) -> Result<Lock, DirectoryError> {
        let error = |error| failed("cannot lock", what, error);
        let file = open(&self.directory(LOCKS)?, name).map_err(error)?;
        let deadline = Instant::now() + LIMIT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: Some(file) }),
                // A network file system without locks: there, the Lease ensures that only one replica works at a time.
                Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Lock { _file: None }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    return Err(DirectoryError::Busy { name: what.to_owned(), why: "another process works on it" });
                }
                Err(failure) => return Err(error(failure)),
            }
        }
    }
}

/// Creates the files of all locks.
pub(crate) fn make_all(locks: &OwnedFd) -> Result<(), Errno> {
    open(locks, TRASH)?;
    (0..COUNT).try_for_each(|number| open(locks, &number.to_string()).map(drop))
}

fn open(locks: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    // Network file systems only lock files that are open for writing.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(locks.as_fd(), name, flags, Mode::RUSR | Mode::WUSR)
}
