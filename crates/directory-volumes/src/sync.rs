//! Syncing of new volumes to disk, several at a time.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
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
    /// Waits until all parts are on disk. The directory must be the part that was changed last.
    pub(crate) fn sync(&self, rounds: &Rounds) -> Result<(), Errno> {
        if !has_one_log(&self.directory)? {
            return [&self.mark, &self.marks, &self.directory, &self.above].into_iter().try_for_each(rustix::fs::fsync);
        }
        // Start writing the content of the mark, so that the commit of this round includes the blocks allocated for it.
        let _ = rustix::fs::fadvise(&self.mark, 0, None, Advice::DontNeed);
        rounds.wait();
        rustix::fs::fsync(&self.directory)?;
        rustix::fs::fsync(&self.mark)
    }
}

/// The times at which the threads that work on a root sync their volumes together.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Mutex<Option<Instant>>);

impl Rounds {
    fn wait(&self) {
        std::thread::sleep(self.next(Instant::now()));
    }

    /// Returns the time until the next round. It begins at once if the last one was long ago.
    fn next(&self, now: Instant) -> Duration {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let round = match *latest {
            Some(planned) if planned > now => planned,
            Some(begun) => now.max(begun + PAUSE),
            None => now,
        };
        *latest = Some(round);
        round.duration_since(now)
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
    use super::*;

    #[test]
    fn volumes_created_soon_after_a_round_share_the_next_one() {
        let (rounds, start) = (Rounds::default(), Instant::now());
        let wait = |at| rounds.next(start + Duration::from_millis(at)).as_millis();
        assert_eq!([0, 3, 9].map(wait), [0, 7, 1]);
        assert_eq!([10, 14, 30, 31].map(wait), [10, 6, 0, 9]);
    }
}
