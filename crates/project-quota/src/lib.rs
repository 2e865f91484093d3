//! Size limits for directories: project quotas of XFS and ext4, through open directories.
//!
//! A *project* is a number attached to files and directories. The file system tracks the space that all files of a
//! project occupy, and refuses to exceed the project's limit. New entries of a directory inherit its project.
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

/// The unit of block counts in the kernel's interface, whatever the file system.
const SECTOR: u64 = 512;

/// The unit in which ext4 stores limits; XFS uses its blocks, which are never smaller if quotas work.
const UNIT: u64 = 1024;

/// The largest limit that ext4 accepts, in whole units. No file system is that large.
const MAX_LIMIT: u64 = i64::MAX as u64 / UNIT * UNIT;

/// The number of a project. Zero means "no project", and the largest number is invalid to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(NonZeroU32);

impl ProjectId {
    /// Returns the project with this number, unless it is zero or the largest number.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).filter(|number| *number != NonZeroU32::MAX).map(Self)
    }

    /// Returns the number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for ProjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The usage and limit of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The space that the project's files occupy, including pending writes.
    pub used_bytes: u64,
    /// The limit, as rounded by the file system. `None` means no limit.
    pub limit_bytes: Option<u64>,
    /// The number of files and directories in the project.
    pub used_inodes: u64,
}

/// The project quotas of one file system.
#[derive(Debug)]
pub struct ProjectQuota {
    /// A directory of the file system.
    directory: OwnedFd,
}

impl ProjectQuota {
    /// Returns the project quotas of the file system that contains this directory. Returns `None` if they are not
    /// enforced: the file system does not support them, it is mounted without them or with accounting only, or the
    /// kernel is older than Linux 5.14.
    ///
    /// Fails with [`QuotaError::NotAllowed`] if the file system has project quotas that this process may not manage, or
    /// if the process may not even query them, for example because of a seccomp profile.
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
        // Any process may query what is enforced. Querying a project requires the same permission as setting its limit.
        match kernel::disk_quota(directory.as_fd(), 1) {
            Ok(_) => Ok(Some(Self { directory })),
            Err(error) => Err(QuotaError::of(DOING, error)),
        }
    }

    /// Assigns an empty directory to a project: new entries also belong to the project.
    ///
    /// Existing entries stay in their project. A directory of another user requires `CAP_FOWNER`, unless it is already
    /// in the project.
    ///
    /// Set the limit first, and sync the directory afterwards: then both survive a crash. Without the sync, if the
    /// directory survives with its project, its limit survives as well.
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

    /// Stops new entries of a directory from inheriting its project. Until then, no directory of another project can be
    /// moved into it: rename(2) fails with `EXDEV`, even if no quotas are enforced.
    pub fn end_inheritance(directory: impl AsFd) -> Result<(), QuotaError> {
        const DOING: &str = "cannot end the inheritance of the directory's project";
        let directory = directory.as_fd();
        let current = kernel::file_attributes(directory).map_err(|error| QuotaError::of(DOING, error))?;
        if !current.inherits() {
            return Ok(());
        }
        kernel::set_file_attributes(directory, current.without_inheritance())
            .map_err(|error| QuotaError::of(DOING, error))
    }

    /// Assigns a directory to the project that entries of `above` inherit, if they inherit one, so that it can be moved
    /// there. For a directory in another project, rename(2) fails with `EXDEV`, even if no quotas are enforced.
    pub fn inherit(directory: impl AsFd, above: impl AsFd) -> Result<(), QuotaError> {
        let error = |error| QuotaError::of("cannot put the directory into the project of the one above it", error);
        let directory = directory.as_fd();
        let current = kernel::file_attributes(directory).map_err(error)?;
        let above = kernel::file_attributes(above.as_fd()).map_err(error)?;
        if !above.inherits() {
            return Ok(());
        }
        kernel::set_file_attributes(directory, current.in_project(above.project)).map_err(error)
    }

    /// Returns the project of a directory. Returns `None` if it is in no project, or if entries do not inherit its
    /// project.
    ///
    /// The directory's owner can change the project, except in user namespaces, so it does not prove whose limit may be
    /// changed.
    pub fn project_of(&self, directory: impl AsFd) -> Result<Option<ProjectId>, QuotaError> {
        match kernel::file_attributes(directory.as_fd()) {
            Ok(attributes) if !attributes.inherits() => Ok(None),
            Ok(attributes) => Ok(ProjectId::new(attributes.project)),
            Err(error) => Err(QuotaError::of("cannot read the project of the directory", error)),
        }
    }

    /// Limits the space that the files of a project may occupy together. A limit below the usage removes nothing, but
    /// refuses more data.
    ///
    /// Limits are rounded up to whole KiB and to the file system's unit: XFS uses its blocks, usually of 4 KiB. Zero is
    /// the smallest limit, not the absence of one; use [`remove_limit`](Self::remove_limit) for that.
    pub fn set_limit(&self, id: ProjectId, bytes: u64) -> Result<(), QuotaError> {
        self.write_limit(id, limit_in_sectors(bytes), "cannot set the limit of the project")
    }

    /// Removes the limit of a project.
    pub fn remove_limit(&self, id: ProjectId) -> Result<(), QuotaError> {
        self.write_limit(id, 0, "cannot remove the limit of the project")
    }

    /// Returns the usage and limit of a project.
    pub fn usage(&self, id: ProjectId) -> Result<Usage, QuotaError> {
        let quota = self.read(id)?;
        Ok(Usage {
            used_bytes: bytes(quota.blocks),
            limit_bytes: (quota.blocks_hard != 0).then(|| bytes(quota.blocks_hard)),
            used_inodes: quota.inodes,
        })
    }

    /// Returns true if the project has no files and no limit of any kind, so that it can be assigned.
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
    bytes.clamp(1, MAX_LIMIT).next_multiple_of(UNIT) / SECTOR
}

fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR)
}
