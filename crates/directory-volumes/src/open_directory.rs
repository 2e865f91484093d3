//! Single steps down the tree: from a directory to one of its children.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Opens the directory `name`, a single component, in `above`.
///
/// Returns `ELOOP` or `ENOTDIR` if it is something else, including a symlink to a directory, and `EXDEV` if a file
/// system is mounted there, even one that is mounted a second time.
pub(crate) fn open<N: Arg + Copy>(above: BorrowedFd<'_>, name: N) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(above, name, FLAGS, Mode::empty(), resolve) {
        // The kernel lacks this system call, or the sandbox of the container forbids it.
        Err(Errno::NOSYS | Errno::PERM) => open_without_openat2(above, name),
        opened => opened,
    }
}

/// Same as [`open`], without openat2(2).
pub(crate) fn open_without_openat2<N: Arg>(above: BorrowedFd<'_>, name: N) -> Result<OwnedFd, Errno> {
    let directory = rustix::fs::openat(above, name, FLAGS, Mode::empty())?;
    if mount_of(above)? == mount_of(&directory)? { Ok(directory) } else { Err(Errno::XDEV) }
}

/// Identifies the mount of a directory. Two mounts of one file system have different ids. Kernels before 5.8 report the
/// id 0.
fn mount_of(directory: impl std::os::fd::AsFd) -> Result<(u64, u32, u32), Errno> {
    let stat = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok((stat.stx_mnt_id, stat.stx_dev_major, stat.stx_dev_minor))
}

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
