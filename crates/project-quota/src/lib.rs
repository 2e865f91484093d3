//! Limits for directories: project quotas of XFS and ext4, through open directories.
//!
//! A *project* is a number that files and directories carry. The file system counts what all files of a project occupy, and
//! refuses to exceed the project's limit. A directory hands its project on to whatever is made in it.
//!
//! ```no_run
//! use project_quota::{ProjectId, ProjectQuota};
//!
//! let root = std::fs::File::open("/var/lib/volumes")?;
//! if let Some(quota) = ProjectQuota::of(&root)? {
//!     let id = ProjectId::new(4711).expect("not a reserved number");
//!     let volume = std::fs::File::open("/var/lib/volumes/one")?;
//!     quota.set_limit(id, 64 << 20)?;
//!     quota.assign(&volume, id)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The file system must be mounted with project quotas, the process needs `CAP_SYS_ADMIN`, and the kernel must be Linux
//! 5.14 or newer.

#![deny(missing_docs)]

mod error;
mod kernel;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

pub use error::QuotaError;
use kernel::{DiskQuota, LIMIT_OF_BYTES};

/// Block counts of the kernel's interface have this unit, whatever the file system is.
const SECTOR: u64 = 512;

/// ext4 stores limits in this unit; XFS in its blocks, which are never smaller where quotas work.
const UNIT: u64 = 1024;

/// The largest limit that ext4 takes, as whole units. No file system is that large.
const MOST: u64 = i64::MAX as u64 / UNIT * UNIT;

/// The number of a project. Zero means "no project", and the largest number is invalid to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(NonZeroU32);

impl ProjectId {
    /// The project of this number, unless it is zero or the largest.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).filter(|number| *number != NonZeroU32::MAX).map(Self)
    }

    /// Its number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What the files of a project occupy together, and what they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The space that the project's files occupy, with what is about to be written.
    pub used_bytes: u64,
    /// The limit, as the file system rounded it. `None` is no limit.
    pub limit_bytes: Option<u64>,
    /// How many files and directories the project has.
    pub used_inodes: u64,
}

/// The project quotas of one file system.
#[derive(Debug)]
pub struct ProjectQuota {
    /// Any directory of the file system.
    directory: OwnedFd,
}

impl ProjectQuota {
    /// The project quotas of the file system on which this directory is. `None` if it enforces none: another kind of file
    /// system, mounted without project quotas or with accounting alone, or a kernel before Linux 5.14.
    ///
    /// [`QuotaError::NotAllowed`] if the file system has project quotas that this process may not manage, or if the
    /// process may not even ask, as a seccomp profile can have it.
    pub fn of(directory: impl AsFd) -> Result<Option<Self>, QuotaError> {
        const DOING: &str = "cannot ask for project quotas";
        let directory =
            directory.as_fd().try_clone_to_owned().map_err(|source| QuotaError::Io { doing: DOING, source })?;
        match kernel::enforces_projects(directory.as_fd()) {
            Ok(true) => {}
            Ok(false) | Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::SRCH | Errno::NOTTY) => {
                return Ok(None);
            }
            Err(error) => return Err(QuotaError::of(DOING, error)),
        }
        // Anybody may ask what is enforced. To ask for a project takes the same right as setting its limit.
        match kernel::disk_quota(directory.as_fd(), 1) {
            Ok(_) => Ok(Some(Self { directory })),
            Err(error) => Err(QuotaError::of(DOING, error)),
        }
    }

    /// Puts an empty directory into a project: whatever is made in it belongs to the project, too.
    ///
    /// What is in the directory already stays in the project that it is in. A directory of somebody else needs
    /// `CAP_FOWNER`, unless it is in the project already.
    ///
    /// Set the limit first, and sync the directory afterwards: both survive a crash then. Without that, a directory that
    /// survives with its project has its limit, too.
    pub fn assign(&self, directory: impl AsFd, id: ProjectId) -> Result<(), QuotaError> {
        const DOING: &str = "cannot put the directory into its project";
        let directory = directory.as_fd();
        let current = kernel::file_attributes(directory).map_err(|error| QuotaError::of(DOING, error))?;
        if current.inherits() && current.project == id.get() {
            return Ok(());
        }
        kernel::set_file_attributes(directory, current.in_project(id.get()))
            .map_err(|error| QuotaError::of(DOING, error))
    }

    /// The project of a directory. `None` if it is in no project, or does not hand its project on.
    ///
    /// The directory's owner can change it, outside of user namespaces: it does not prove whose limit may be changed.
    pub fn project_of(&self, directory: impl AsFd) -> Result<Option<ProjectId>, QuotaError> {
        match kernel::file_attributes(directory.as_fd()) {
            Ok(attributes) if !attributes.inherits() => Ok(None),
            Ok(attributes) => Ok(ProjectId::new(attributes.project)),
            Err(error) => Err(QuotaError::of("cannot read the project of the directory", error)),
        }
    }

    /// Limits what the files of a project may occupy together. A limit below that takes nothing away: it refuses more.
    ///
    /// Limits are rounded up, to whole KiB and to what the file system counts in: XFS to its blocks, of 4 KiB mostly. Zero
    /// is the smallest limit, not none; [`remove_limit`](Self::remove_limit) does that.
    pub fn set_limit(&self, id: ProjectId, bytes: u64) -> Result<(), QuotaError> {
        self.write_limit(id, limit_in_sectors(bytes), "cannot set the limit of the project")
    }

    /// Lets the files of a project occupy what there is.
    pub fn remove_limit(&self, id: ProjectId) -> Result<(), QuotaError> {
        self.write_limit(id, 0, "cannot remove the limit of the project")
    }

    /// What the files of a project occupy and may.
    pub fn usage(&self, id: ProjectId) -> Result<Usage, QuotaError> {
        let quota = self.read(id)?;
        Ok(Usage {
            used_bytes: bytes(quota.blocks),
            limit_bytes: (quota.blocks_hard != 0).then(|| bytes(quota.blocks_hard)),
            used_inodes: quota.inodes,
        })
    }

    /// Whether nothing has this project and nobody has set a limit of any kind for it, so that it can be given away.
    ///
    /// XFS finishes removals in the background: a project can be in use for a moment after its last file was removed.
    pub fn is_free(&self, id: ProjectId) -> Result<bool, QuotaError> {
        Ok(self.read(id)?.is_unused())
    }

    fn read(&self, id: ProjectId) -> Result<DiskQuota, QuotaError> {
        match kernel::disk_quota(self.directory.as_fd(), id.get()) {
            Ok(quota) => Ok(quota),
            Err(error) => Err(QuotaError::of("cannot read the usage of the project", error)),
        }
    }

    fn write_limit(&self, id: ProjectId, sectors: u64, doing: &'static str) -> Result<(), QuotaError> {
        let quota = DiskQuota::new(LIMIT_OF_BYTES, id.get(), sectors);
        kernel::set_disk_quota(self.directory.as_fd(), &quota).map_err(|error| QuotaError::of(doing, error))
    }
}

fn limit_in_sectors(bytes: u64) -> u64 {
    bytes.clamp(1, MOST).next_multiple_of(UNIT) / SECTOR
}

fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR)
}
