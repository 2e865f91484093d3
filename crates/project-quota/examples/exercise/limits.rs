//! Writing at a limit.

use std::fs;
use std::io::{Seek, SeekFrom, Write};

use crate::child::Child;
use crate::{Disk, MIB, open};

/// A user can write up to the last block of the limit, including in subdirectories. Other projects are not affected.
pub(crate) fn bind_users(disk: &Disk) {
    let volume = disk.volume("users", 100, 8 * MIB);
    let below = volume.path.join("a/b");
    assert!(Child::user().succeeds(&["mkdir", "-p", below.to_str().unwrap()]));
    assert_eq!(volume.quota.project_of(open(&below)).unwrap(), Some(volume.id));
    assert_eq!(volume.write("a/b/half", 4 * MIB), (4 * MIB, "ok".to_owned()));
    let (written, result) = volume.write("rest", 8 * MIB);
    assert_eq!(result, disk.full());
    assert!(written > 3 * MIB && written <= 4 * MIB, "{written} bytes of 4 MiB were left");
    assert!(volume.used() <= 8 * MIB && volume.used() > 8 * MIB - 128 * 1024, "{} bytes are used", volume.used());
    // An empty file needs no space itself, but XFS reserves some for its directory.
    let empty = volume.path.join("empty");
    assert_eq!(Child::user().succeeds(&["touch", empty.to_str().unwrap()]), !disk.is_xfs);

    let other = disk.volume("others", 101, 8 * MIB);
    assert_eq!(other.write("file", 2 * MIB), (2 * MIB, "ok".to_owned()));
    other.remove();
    volume.remove();
}

/// On XFS, limits apply to root. On ext4, they apply to root only without CAP_SYS_RESOURCE, which containers do not
/// have.
pub(crate) fn bind_root(disk: &Disk) {
    let volume = disk.volume("root", 110, 4 * MIB);
    let (written, result) = volume.write_as(&Child::root(), "privileged", 6 * MIB);
    if disk.is_xfs {
        assert!(written <= 4 * MIB);
        assert_eq!(result, "ENOSPC");
    } else {
        assert_eq!((written, result.as_str()), (6 * MIB, "ok"));
    }
    fs::remove_file(volume.path.join("privileged")).unwrap();
    crate::eventually("the space is free", || volume.used() < MIB);
    let (written, result) = volume.write_as(&Child::root_with("--bounding-set=-sys_resource"), "root", 6 * MIB);
    assert_eq!(result, disk.full());
    assert!(written <= 4 * MIB);
    volume.remove();
}

/// A limit is at least as large as requested, and only slightly larger.
pub(crate) fn are_rounded_up(disk: &Disk) {
    let volume = disk.volume("rounded", 120, 0);
    for asked in [0, 1, 1024, 1025, MIB - 1, MIB + 1, 1 << 50, u64::MAX] {
        volume.quota.set_limit(volume.id, asked).unwrap();
        let limit = volume.limit().expect("even zero is a limit");
        // Larger requests are cut to the maximum, which no file system reaches.
        let expected = asked.min(i64::MAX as u64 - 1023);
        assert!(limit >= expected && limit - expected <= 4096, "{asked} became {limit}");
    }
    volume.quota.remove_limit(volume.id).unwrap();
    assert_eq!(volume.limit(), None);
    volume.remove();
}

/// Statvfs reports the directory's limit and usage, not the file system's.
pub(crate) fn show_as_size(disk: &Disk) {
    let volume = disk.volume("df", 130, 16 * MIB);
    let df = || {
        let stat = rustix::fs::fstatvfs(open(&volume.path)).unwrap();
        (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
    };
    let (size, before) = df();
    assert_eq!(size, 16 * MIB);
    volume.write("file", 4 * MIB);
    let (size, available) = df();
    assert_eq!(size, 16 * MIB);
    assert!(before - available >= 4 * MIB && available >= 11 * MIB, "{available} bytes of {before} are available");
    // This includes subdirectories.
    assert!(Child::user().succeeds(&["mkdir", volume.path.join("below").to_str().unwrap()]));
    let stat = rustix::fs::fstatvfs(open(&volume.path.join("below"))).unwrap();
    assert_eq!(stat.f_blocks * stat.f_frsize, 16 * MIB);
    volume.remove();
}

/// A writer without room continues with the same open file when the limit is raised.
pub(crate) fn can_be_raised(disk: &Disk) {
    let volume = disk.volume("raised", 140, 4 * MIB);
    let path = volume.path.join("file");
    let bytes = (12 * MIB).to_string();
    let mut writer = Child::user().start(&["write-patiently", path.to_str().unwrap(), &bytes]);
    assert_eq!(writer.line(), "full");
    volume.quota.set_limit(volume.id, 16 * MIB).unwrap();
    assert_eq!(writer.line(), format!("{bytes} ok"));
    writer.end();
    assert!(volume.used() >= 12 * MIB);
    volume.remove();
}

/// A limit below the usage removes nothing, but refuses more data.
pub(crate) fn can_be_lowered_below_usage(disk: &Disk) {
    let volume = disk.volume("lowered", 150, 16 * MIB);
    volume.write("file", 8 * MIB);
    volume.quota.set_limit(volume.id, 4 * MIB).unwrap();
    assert!(volume.used() >= 8 * MIB);
    assert_eq!(volume.limit(), Some(4 * MIB));
    let stat = rustix::fs::fstatvfs(open(&volume.path)).unwrap();
    assert_eq!((stat.f_blocks * stat.f_frsize, stat.f_bavail), (4 * MIB, 0));
    let (written, result) = volume.write("more", MIB);
    assert_eq!(result, disk.full());
    assert_eq!(written, 0);
    // Existing data can be read and overwritten.
    let path = volume.path.join("file");
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(MIB)).unwrap();
    file.write_all(&[8; 4096]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap().len() as u64, 8 * MIB);
    // Removing files frees space.
    fs::remove_file(&path).unwrap();
    crate::eventually("there is room again", || volume.used() < MIB);
    assert_eq!(volume.write("again", 2 * MIB).1, "ok");
    volume.remove();
}
