//! Syncing of new volumes to disk, several at a time.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

/// Minimum time between two rounds. A commit of a journal costs about the same for one volume as for ten.
const PAUSE: Duration = Duration::from_millis(10);

/// The files and directories that must be on disk before a volume is used.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) mark: OwnedFd,
    /// The directory that contains the mark.
    pub(crate) marks: OwnedFd,
    pub(crate) directory: OwnedFd,
    /// The directory that contains the volume's directory.
    pub(crate) above: OwnedFd,
}

impl Parts {
    /// Waits until all parts are on disk.
    pub(crate) fn sync(&self, rounds: &Rounds) -> Result<(), Errno> {
        if !has_one_log(&self.directory)? {
            return [&self.mark, &self.marks, &self.directory, &self.above].into_iter().try_for_each(rustix::fs::fsync);
        }
        // Start writing the content of the mark, so that the commit of this round includes the blocks allocated for it.
        let _ = rustix::fs::fadvise(&self.mark, 0, None, Advice::DontNeed);
        rounds.join(|| {
            // The log is synced up to this change, which is later than those of all volumes of the round.
            rustix::fs::futimens(&self.marks, &NOW)?;
            rustix::fs::fsync(&self.marks)
        })?;
        rustix::fs::fsync(&self.mark)
    }
}

const NOW: Timestamps = {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
};

/// Rounds in which one of the threads that work on a root syncs for all of them.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The round that threads can still join, and its result.
    next: Option<Arc<OnceLock<Result<(), Errno>>>>,
    /// The start of the latest sync.
    latest: Option<Instant>,
}

impl Rounds {
    /// Waits until a sync that begins after this call has ended, and returns its result. It begins at once if the
    /// latest one was long ago. The first thread that joins a round calls `sync` for all others.
    fn join(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.lock();
        if let Some(round) = state.next.clone() {
            drop(state);
            return *round.wait();
        }
        let round = Arc::default();
        state.next = Some(Arc::clone(&round));
        let begins = state.latest.map(|latest| latest + PAUSE);
        drop(state);
        std::thread::sleep(begins.map_or(Duration::ZERO, |begins| begins.saturating_duration_since(Instant::now())));
        *self.lock() = State { next: None, latest: Some(Instant::now()) };
        *round.get_or_init(sync)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the file system writes all changes of names and inodes to one log, in order. An fsync then also
/// persists every such change that was made before the last change of the synced file.
pub(crate) fn has_one_log(file: &OwnedFd) -> Result<bool, Errno> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    Ok(match u64::try_from(rustix::fs::fstatfs(file)?.f_type) {
        Ok(EXT4) => has_journal(rustix::fs::fstat(file)?.st_dev),
        Ok(XFS) => true,
        _ => false,
    })
}

/// Returns true if the ext4 file system on a device is known to have a journal.
fn has_journal(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    let Some(name) = device.file_name() else { return false };
    let task = std::fs::read(Path::new("/sys/fs/ext4").join(name).join("journal_task"));
    task.is_ok_and(|task| task.first().is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn threads_share_syncs_that_begin_after_their_changes() {
        const CHANGES: usize = 20;
        let (rounds, changes, synced, syncs) =
            (Rounds::default(), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            for _ in 0..CHANGES {
                let change = changes.fetch_add(1, Ordering::SeqCst) + 1;
                let sync = || {
                    syncs.fetch_add(1, Ordering::SeqCst);
                    synced.fetch_max(changes.load(Ordering::SeqCst), Ordering::SeqCst);
                    Ok(())
                };
                rounds.join(sync).unwrap();
                assert!(synced.load(Ordering::SeqCst) >= change);
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
        let syncs = syncs.into_inner();
        assert!((CHANGES..4 * CHANGES).contains(&syncs), "{syncs} syncs");
    }

    #[test]
    fn all_threads_of_a_round_receive_its_error() {
        let rounds = Rounds::default();
        rounds.join(|| Ok(())).unwrap();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| rounds.join(|| Err(Errno::IO)))).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == Err(Errno::IO)));
        });
        rounds.join(|| Ok(())).unwrap();
    }
}
