//! Directories of running control planes.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;

use super::binaries::cache_dir;
use crate::progress::{self, SharedProgress};

/// The number of the next instance in this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The directory of an instance, and the lock that shows that its owner still runs.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) dir: PathBuf,
    _lock: File,
}

impl Instance {
    /// Creates a directory, after removing the directories of owners that have ended.
    pub(crate) fn create() -> anyhow::Result<Self> {
        let all = cache_dir()?.join("instances");
        create_private_dir(&all)?;
        // Without this lock, two runs that start together could each mistake the other's new directory for an abandoned
        // one.
        let _both = lock(&all.join("lock"))?;
        remove_abandoned_in(&all)?;
        let dir = all.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        create_private_dir(&dir)?;
        let lock = lock(&dir.join("lock"))?;
        Ok(Self { dir, _lock: lock })
    }
}

/// Creates a directory that only its owner may enter.
pub(crate) fn create_private_dir(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
}

/// Waits for the lock on a file, which is created if necessary. The lock is released when the file is closed, even by a
/// crash.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Like [`lock`], for locks that are held for minutes: reports `what` the program waits for, and does not block the
/// thread.
pub(crate) async fn wait_for_lock(path: &Path, what: &str, progress: &SharedProgress) -> anyhow::Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let locked = progress::during(progress, what, async {
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    });
    locked.await.with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Removes the directories of control planes and other servers whose owners have ended.
pub fn remove_abandoned() -> anyhow::Result<()> {
    let all = cache_dir()?.join("instances");
    create_private_dir(&all)?;
    let _both = lock(&all.join("lock"))?;
    remove_abandoned_in(&all)
}

fn remove_abandoned_in(all: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(all)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let owned = File::open(path.join("lock")).is_ok_and(|lock| lock.try_lock().is_err());
        if !owned {
            super::node::remove_traces(&path);
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_directories_of_ended_owners() {
        let all = std::env::temp_dir().join(format!("e2e-instances-{}", std::process::id()));
        for name in ["living", "crashed"] {
            fs::create_dir_all(all.join(name)).unwrap();
            File::create(all.join(name).join("lock")).unwrap();
        }
        fs::create_dir_all(all.join("never-locked")).unwrap();
        let held = lock(&all.join("living/lock")).unwrap();
        remove_abandoned_in(&all).unwrap();
        assert!(all.join("living").exists());
        assert!(!all.join("crashed").exists());
        assert!(!all.join("never-locked").exists());
        drop(held);
        fs::remove_dir_all(&all).unwrap();
    }
}
