//! Exclusive access to the disk. Two servers on one disk could each grant clients access to files that the other has
//! locked, and two provisioners could assign the same id twice.
//!
//! The provisioner holds a lock, and the server holds another one through its standard input, which is the locked
//! directory. Therefore a server that outlives its provisioner blocks the next server until it has ended. The kernel
//! releases a lock when its process ends.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::signal::unix::Signal;
use tokio::time::sleep;

/// Interval at which a standby replica checks if the disk is free.
const POLL: Duration = Duration::from_secs(1);

/// A lock on the disk until the process ends.
#[derive(Debug)]
pub(crate) struct DiskLock {
    _lock: File,
}

impl DiskLock {
    /// Waits until no other replica uses the disk. A waiting replica does not hold a Lease and is not ready.
    pub(crate) async fn acquire(root: &Path, terminate: &mut Signal) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut has_logged = false;
        loop {
            match try_lock(root) {
                Ok(Some(lock)) => return Ok(Self { _lock: lock }),
                Ok(None) if !has_logged => log_waiting(root),
                Ok(None) => {}
                Err(error) => return Err(format!("cannot lock {}: {error}", root.display()).into()),
            }
            has_logged = true;
            tokio::select! {
                biased;
                _ = terminate.recv() => return Err("received SIGTERM while another replica uses the disk".into()),
                () = sleep(POLL) => {}
            }
        }
    }
}

/// Locks a directory for as long as a process has the returned file open. Returns `None` if another process holds the
/// lock.
pub(super) fn try_lock(directory: &Path) -> io::Result<Option<File>> {
    let directory = File::open(directory)?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn log_waiting(root: &Path) {
    tracing::info!("another replica uses {}; this one waits until that replica ends", root.display());
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[test]
    fn a_process_holds_the_lock_through_its_standard_input() {
        let root = tempfile::tempdir().unwrap();
        let lock = try_lock(root.path()).unwrap().unwrap();
        let mut server = Command::new("sleep").arg("60").stdin(Stdio::from(lock)).spawn().unwrap();
        assert!(try_lock(root.path()).unwrap().is_none());
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(try_lock(root.path()).unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_waits_for_the_disk() {
        let root = tempfile::tempdir().unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let first = DiskLock::acquire(root.path(), &mut terminate).await.unwrap();
        let second = DiskLock::acquire(root.path(), &mut terminate);
        tokio::pin!(second);
        assert!(tokio::time::timeout(60 * POLL, &mut second).await.is_err());
        drop(first);
        second.await.unwrap();
    }
}
