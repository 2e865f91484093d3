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
pub(crate) struct Disk {
    _lock: File,
}

impl Disk {
    /// Waits until no other replica uses the disk. A waiting replica does not hold a Lease and is not ready.
    pub(crate) async fn wait(root: &Path, terminate: &mut Signal) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut told = false;
        loop {
            match locked(root) {
                Ok(Some(lock)) => return Ok(Self { _lock: lock }),
                Ok(None) if !told => tell(root),
                Ok(None) => {}
                Err(error) => return Err(format!("cannot lock {}: {error}", root.display()).into()),
            }
            told = true;
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
pub(super) fn locked(directory: &Path) -> io::Result<Option<File>> {
    let directory = File::open(directory)?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tell(root: &Path) {
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
        let lock = locked(root.path()).unwrap().unwrap();
        let mut server = Command::new("sleep").arg("60").stdin(Stdio::from(lock)).spawn().unwrap();
        assert!(locked(root.path()).unwrap().is_none());
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(locked(root.path()).unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_waits_for_the_disk() {
        let root = tempfile::tempdir().unwrap();
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let first = Disk::wait(root.path(), &mut terminate).await.unwrap();
        let second = Disk::wait(root.path(), &mut terminate);
        tokio::pin!(second);
        assert!(tokio::time::timeout(60 * POLL, &mut second).await.is_err());
        drop(first);
        second.await.unwrap();
    }
}
