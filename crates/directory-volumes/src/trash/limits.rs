//! Size limits of the trash. The oldest volumes that exceed them are removed early.

use std::os::fd::AsFd;

use clap::Args;
use kube_provisioner::FencingToken;
use kube_provisioner::quantity::parse_bytes;

use crate::entry::{DATA, Discarded};
use crate::error::{DirectoryError, failed};
use crate::root::Root;
use crate::state::{State, TRASH};
use crate::{open_directory, usage};

/// Limits of the trash of one root. Data that is kept until an administrator removes it does not count and is never
/// removed.
#[derive(Args, Clone, Copy, Debug)]
pub struct TrashLimits {
    /// Maximum size of the trash, such as 100Gi; beyond it, the oldest volumes expire early [default: no limit]
    #[arg(long, env, value_name = "SIZE", value_parser = parse_bytes)]
    pub trash_max_size: Option<u64>,

    /// Maximum size of the trash, in percent of the file system [default: no limit]
    #[arg(long, env, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub trash_max_percent: Option<u8>,

    /// Minimum free space, in percent of the file system; below it, the oldest trash expires early; 0 disables it
    #[arg(long, env, value_name = "PERCENT", default_value_t = Self::MIN_FREE,
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub trash_min_free_percent: u8,
}

impl Default for TrashLimits {
    fn default() -> Self {
        Self { trash_max_size: None, trash_max_percent: None, trash_min_free_percent: Self::MIN_FREE }
    }
}

/// A file system, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) size: u64,
    pub(crate) free: u64,
}

impl TrashLimits {
    const MIN_FREE: u8 = 5;

    /// Returns the number of bytes to remove from the trash. `trash`, its size, matters only if there is a maximum.
    fn excess(&self, disk: Disk, trash: u64) -> u64 {
        let percent = |percent: u8| disk.size / 100 * u64::from(percent);
        let most = self.trash_max_size.into_iter().chain(self.trash_max_percent.map(percent)).min();
        let beyond = most.map_or(0, |most| trash.saturating_sub(most));
        beyond.max(percent(self.trash_min_free_percent).saturating_sub(disk.free))
    }

    fn has_maximum(&self) -> bool {
        self.trash_max_size.is_some() || self.trash_max_percent.is_some()
    }
}

impl Root {
    /// Removes the oldest volumes that exceed the limits, except volumes of other clusters.
    ///
    /// # Errors
    /// Fails if a volume cannot be removed.
    pub fn purge_excess(
        &self,
        limits: &TrashLimits,
        cluster: Option<&str>,
        fencing_token: &FencingToken,
    ) -> Result<(), DirectoryError> {
        let (disk, mut result) = (self.disk(&self.enter()?)?, Ok(()));
        if !limits.has_maximum() && limits.excess(disk, 0) == 0 {
            return Ok(());
        }
        let mut entries: Vec<_> = self.trash()?.into_iter().filter_map(Result::ok).collect();
        entries.retain(|entry| {
            let has_time = entry.expires.is_some() || entry.keep.is_some();
            has_time && !entry.mark.owner.is_of_another_cluster(cluster)
        });
        // If the clock was not plausible, the age of an entry is unknown.
        entries.sort_by_key(|entry| (entry.keep.is_some(), entry.deleted));
        let mut trash = 0;
        if limits.has_maximum() {
            for entry in &mut entries {
                match self.measure(entry) {
                    Ok(bytes) => trash += bytes,
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        let mut excess = limits.excess(disk, trash);
        for mut entry in entries {
            if excess == 0 {
                break;
            }
            let (bytes, owner) = (self.measure(&mut entry).unwrap_or_default(), &entry.mark.owner);
            match self.purge_deleted_at(entry.deleted, &owner.volume, fencing_token) {
                Ok(()) => tracing::warn!("the trash has no room for {owner}, which was deleted at {}", entry.deleted),
                // Another operation removed it, which frees space as well.
                Err(DirectoryError::NotThere { .. }) => {}
                Err(error) => result = result.and(Err(error)),
            }
            // The file system itself may report the space as free much later.
            excess = excess.saturating_sub(bytes);
        }
        result
    }

    /// Returns the size of an entry. Records it, because it no longer changes.
    fn measure(&self, entry: &mut Discarded) -> Result<u64, DirectoryError> {
        if let Some(bytes) = entry.bytes {
            return Ok(bytes);
        }
        let (state, volume) = (self.enter()?, &*entry.mark.owner.volume);
        let data = state.open_entry(TRASH, volume).and_then(|entry| open_directory::open(entry.as_fd(), DATA));
        let measured = data.and_then(usage::disk_usage).map_err(|error| failed("cannot measure", volume, error))?;
        entry.bytes = Some(measured);
        let _trash = state.lock_trash()?;
        // Ignore a failure, because a full disk may have no room for the record.
        if let Ok(current) = self.entry(&state, TRASH, volume) {
            let _ = state.rewrite(TRASH, &Discarded { bytes: entry.bytes, ..current });
        }
        Ok(measured)
    }

    pub(crate) fn disk(&self, state: &State) -> Result<Disk, DirectoryError> {
        let stat = rustix::fs::fstatvfs(&state.root);
        let stat = stat.map_err(|error| failed("cannot inspect", self.path().to_string_lossy(), error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Disk { size: bytes(stat.f_blocks), free: bytes(stat.f_bavail) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applies_the_smallest_limit() {
        let limits = |size, percent, free| TrashLimits {
            trash_max_size: size,
            trash_max_percent: percent,
            trash_min_free_percent: free,
        };
        for (limits, free, trash, excess) in [
            (TrashLimits::default(), 60, 900, 0),
            (TrashLimits::default(), 30, 900, 20),
            (limits(None, None, 0), 0, 900, 0),
            (limits(Some(500), None, 0), 0, 500, 0),
            (limits(Some(500), None, 0), 0, 900, 400),
            (limits(None, Some(20), 0), 0, 900, 700),
            (limits(Some(100), Some(20), 0), 0, 900, 800),
            (limits(Some(100), Some(5), 0), 0, 900, 850),
            (limits(Some(800), None, 50), 0, 900, 500),
            (limits(Some(100), None, 50), 400, 900, 800),
        ] {
            assert_eq!(limits.excess(Disk { size: 1000, free }, trash), excess, "{limits:?} {free} {trash}");
        }
    }
}
