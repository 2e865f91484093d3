//! The kernel interface: two commands of quotactl_fd(2) and two ioctls, as safe functions.
//!
//! Commands whose names begin with `Q_X` originate from XFS. Since Linux 4.1 the kernel translates between them and the
//! others, so they also work on ext4.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::from_mut;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `FS_XFLAG_PROJINHERIT`: new entries of the directory inherit its project and this flag.
const INHERIT: u32 = 0x200;

/// `FS_DQ_BHARD`: when a [`DiskQuota`] is written, only the hard block limit applies.
pub(crate) const LIMIT_OF_BYTES: u16 = 1 << 3;

/// `PRJQUOTA`
const PROJECT: u32 = 2;

const X: u32 = (b'X' as u32) << 8;
const Q_XGETQUOTA: u32 = X + 3;
const Q_XSETQLIM: u32 = X + 4;
const Q_XGETQSTATV: u32 = X + 8;

/// `FS_QUOTA_PDQ_ACCT` and `FS_QUOTA_PDQ_ENFD`: project usage is tracked, and limits are enforced.
const COUNTED_AND_ENFORCED: u16 = 1 << 4 | 1 << 5;

const FS_IOC_FSGETXATTR: Opcode = opcode::read::<FileAttributes>(b'X', 31);
const FS_IOC_FSSETXATTR: Opcode = opcode::write::<FileAttributes>(b'X', 32);

/// `struct fsxattr`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    pub(crate) project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

impl FileAttributes {
    /// Returns true if new entries of the directory inherit its project.
    pub(crate) fn inherits(&self) -> bool {
        self.flags & INHERIT != 0
    }

    /// Returns these attributes with an inheritable project. The other attributes stay as they were read.
    pub(crate) fn in_project(self, project: u32) -> Self {
        Self { flags: self.flags | INHERIT, project, ..self }
    }

    /// Returns these attributes with a project that new entries do not inherit.
    pub(crate) fn without_inheritance(self) -> Self {
        Self { flags: self.flags & !INHERIT, ..self }
    }
}

/// `struct fs_disk_quota`. All block counts are in sectors of 512 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DiskQuota {
    version: i8,
    kind: i8,
    fields: u16,
    id: u32,
    pub(crate) blocks_hard: u64,
    blocks_soft: u64,
    inodes_hard: u64,
    inodes_soft: u64,
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
    inode_timer: i32,
    block_timer: i32,
    inode_warnings: u16,
    block_warnings: u16,
    timers_high: [i8; 4],
    realtime_hard: u64,
    realtime_soft: u64,
    realtime_blocks: u64,
    realtime_timer: i32,
    realtime_warnings: u16,
    padding: [u8; 10],
}

impl DiskQuota {
    /// Creates a record of a hard limit; `fields` selects the members that apply.
    pub(crate) fn new(fields: u16, id: u32, blocks_hard: u64) -> Self {
        /// `FS_DQUOT_VERSION`
        const VERSION: i8 = 1;
        /// `FS_PROJ_QUOTA`
        const OF_PROJECT: i8 = 1 << 1;
        Self { version: VERSION, kind: OF_PROJECT, fields, id, blocks_hard, ..Self::default() }
    }

    pub(crate) fn is_unused(&self) -> bool {
        let counts = [self.blocks, self.inodes, self.realtime_blocks];
        let hard = [self.blocks_hard, self.inodes_hard, self.realtime_hard];
        let soft = [self.blocks_soft, self.inodes_soft, self.realtime_soft];
        [counts, hard, soft].iter().flatten().all(|number| *number == 0)
    }
}

/// `struct fs_quota_statv`
#[repr(C)]
struct QuotaState {
    version: i8,
    padding: u8,
    flags: u16,
    in_core: u32,
    rest: [u64; 19],
}

// The kernel writes structures of these sizes.
const _: () = assert!(size_of::<FileAttributes>() == 28);
const _: () = assert!(size_of::<DiskQuota>() == 112);
const _: () = assert!(size_of::<QuotaState>() == 160);

/// Returns true if the file system tracks projects and enforces their limits.
pub(crate) fn enforces_projects(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    /// `FS_QSTATV_VERSION1`
    const VERSION: i8 = 1;
    let mut state = QuotaState { version: VERSION, padding: 0, flags: 0, in_core: 0, rest: [0; 19] };
    // SAFETY: the command writes one `fs_quota_statv`, which `state` is.
    unsafe { quotactl_fd(directory, Q_XGETQSTATV, 0, from_mut(&mut state).cast())? };
    Ok(state.flags & COUNTED_AND_ENFORCED == COUNTED_AND_ENFORCED)
}

/// Returns usage and limits of a project. All are zero for an unknown project.
pub(crate) fn disk_quota(directory: BorrowedFd<'_>, id: u32) -> Result<DiskQuota, Errno> {
    let mut quota = DiskQuota::default();
    // SAFETY: the command writes one `fs_disk_quota`, which `quota` is.
    match unsafe { quotactl_fd(directory, Q_XGETQUOTA, id, from_mut(&mut quota).cast()) } {
        Ok(()) => Ok(quota),
        // XFS has no record of the project.
        Err(Errno::NOENT) => Ok(DiskQuota::default()),
        Err(error) => Err(error),
    }
}

/// Changes the limits selected in the record.
pub(crate) fn set_disk_quota(directory: BorrowedFd<'_>, quota: &DiskQuota) -> Result<(), Errno> {
    let mut quota = *quota;
    // SAFETY: the command reads one `fs_disk_quota`, which `quota` is.
    unsafe { quotactl_fd(directory, Q_XSETQLIM, quota.id, from_mut(&mut quota).cast()) }
}

/// Returns the attributes of a file or directory, including its project.
pub(crate) fn file_attributes(file: BorrowedFd<'_>) -> Result<FileAttributes, Errno> {
    // SAFETY: the ioctl writes one `fsxattr`, which `FileAttributes` is.
    unsafe { ioctl(file, Getter::<FS_IOC_FSGETXATTR, FileAttributes>::new()) }
}

/// Writes all attributes at once; pass unchanged ones as they were read.
pub(crate) fn set_file_attributes(file: BorrowedFd<'_>, attributes: FileAttributes) -> Result<(), Errno> {
    // SAFETY: the ioctl reads one `fsxattr`, which `FileAttributes` is.
    unsafe { ioctl(file, Setter::<FS_IOC_FSSETXATTR, FileAttributes>::new(attributes)) }
}

/// Calls quotactl_fd(2) for projects.
///
/// # Safety
///
/// `data` must point to the structure that `command` reads or writes.
unsafe fn quotactl_fd(directory: BorrowedFd<'_>, command: u32, id: u32, data: *mut c_void) -> Result<(), Errno> {
    let command = command << 8 | PROJECT;
    // SAFETY: the descriptor is open while it is borrowed; the caller guarantees that `data` is valid.
    let result = unsafe { libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, id, data) };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
