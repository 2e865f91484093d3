//! Who has the disk. Two servers on one disk would each give files to clients that the other has locked, and two provisioners
//! might give one id twice.
//!
//! The provisioner holds a lock, and the server one of its own: its standard input is the directory that is locked. So a server
//! that outlives its provisioner keeps the next one away until it has ended, too. The kernel ends a lock with its process.

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::signal::unix::Signal;
use tokio::time::sleep;

/// How often a replica that stands by looks whether the disk is free.
const POLL: Duration = Duration::from_secs(1);

/// The disk is this process's until it ends.
#[derive(Debug)]
pub(crate) struct Disk {
    _lock: File,
}

impl Disk {
    /// Waits until no other replica has the disk. Until then this one has no Lease and is not ready.
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
                _ = terminate.recv() => return Err("got SIGTERM while another replica has the disk".into()),
                () = sleep(POLL) => {}
            }
        }
    }
}

/// A lock for a server: for as long as a process has this open. `None` while another one has it.
pub(super) fn locked(directory: &Path) -> io::Result<Option<File>> {
    let directory = File::open(directory)?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tell(root: &Path) {
    tracing::info!("another replica has {}; this one stands by until that one has ended", root.display());
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[test]
    fn a_process_has_the_lock_that_is_its_input() {
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
