//! Disk usage of a tree. Only one directory is open at a time and no name is kept, so neither depth nor width consumes
//! resources.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::open_directory;

/// The size of a block in `st_blocks`, which is independent of the file system's block size.
const BLOCK: u64 = 512;

/// A directory above the one that is being read.
struct Parent {
    device: u64,
    inode: u64,
    /// The offset where reading continues.
    offset: i64,
}

/// Returns the disk usage of the contents of a directory in bytes, except mounts and directories that cannot be opened.
///
/// Returns `AGAIN` if directories are moved in the meantime.
pub(crate) fn disk_usage(directory: OwnedFd) -> Result<u64, Errno> {
    let mut bytes = 0;
    let mut parents = Vec::new();
    let mut here = Dir::new(directory)?;
    loop {
        let Some(entry) = here.read().transpose()? else {
            let Some(above) = parents.pop() else { return Ok(bytes) };
            here = open_parent(&here, &above)?;
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let stat = match rustix::fs::statat(here.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        bytes += size(&stat);
        if is_directory(&stat)
            && let Ok(below) = open_directory::open(here.fd()?, name)
        {
            let stat = here.stat()?;
            parents.push(Parent { device: stat.st_dev, inode: stat.st_ino, offset: entry.offset() });
            here = Dir::new(below)?;
        }
    }
}

/// Opens the parent again. Fails if it is another directory than before, because `here` was moved in the meantime.
fn open_parent(here: &Dir, above: &Parent) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = Dir::new(rustix::fs::openat(here.fd()?, c"..", flags, Mode::empty())?)?;
    let stat = directory.stat()?;
    if (stat.st_dev, stat.st_ino) != (above.device, above.inode) {
        return Err(Errno::AGAIN);
    }
    directory.seek(above.offset)?;
    Ok(directory)
}

/// Returns the size of a file divided by its number of names, because it is encountered once per name.
fn size(stat: &Stat) -> u64 {
    let bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(BLOCK);
    if is_directory(stat) { bytes } else { bytes / stat.st_nlink.max(1) }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::Command;

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn reports_the_same_usage_as_du() {
        let dir = tempfile::tempdir().unwrap();
        for directory in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(dir.path().join(directory)).unwrap();
            for number in 0..40 {
                fs::write(dir.path().join(directory).join(format!("{number}")), vec![1; number * 1000]).unwrap();
            }
        }
        fs::hard_link(dir.path().join("a/d/39"), dir.path().join("linked")).unwrap();
        fs::File::create(dir.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink("/usr", dir.path().join("link")).unwrap();
        // Use more levels than a process may have open files.
        let mut below = rustix::fs::openat(CWD, dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&below, "d", Mode::RWXU).unwrap();
            below = rustix::fs::openat(&below, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let output = Command::new("du").args(["-s", "-B1"]).arg(dir.path()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let du: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
        let top = fs::metadata(dir.path()).unwrap().blocks() * BLOCK;
        let opened = rustix::fs::openat(CWD, dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(disk_usage(opened).unwrap(), du - top);
        drop(Command::new("rm").arg("-rf").arg(dir.path()).status());
    }
}
