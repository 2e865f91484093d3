//! Interactions between directories, files and projects.

use std::fs;

use project_quota::ProjectId;
use rustix::io::Errno;

use crate::{Disk, MIB, eventually, open};

/// A project is in use with a limit, with an empty directory, or with a file.
pub(crate) fn projects_in_use_are_seen(disk: &Disk) {
    let quota = disk.quota();
    let id = ProjectId::new(200).unwrap();
    assert!(quota.is_free(id).unwrap());
    quota.set_limit(id, MIB).unwrap();
    assert!(!quota.is_free(id).unwrap(), "a project with a limit is in use");
    quota.remove_limit(id).unwrap();
    assert!(quota.is_free(id).unwrap());

    let path = disk.mount_point.join("seen");
    fs::create_dir(&path).unwrap();
    assert_eq!(quota.project_of(open(&path)).unwrap(), None);
    quota.assign(open(&path), id).unwrap();
    assert_eq!(quota.project_of(open(&path)).unwrap(), Some(id));
    assert!(!quota.is_free(id).unwrap(), "a project with an empty directory is in use");
    // Assigning it again changes nothing.
    quota.assign(open(&path), id).unwrap();
    fs::remove_dir(&path).unwrap();
    eventually("the project of the removed directory is free", || quota.is_free(id).unwrap());
    // The whole range can be used.
    let largest = ProjectId::new(u32::MAX - 1).unwrap();
    quota.set_limit(largest, MIB).unwrap();
    assert!(!quota.is_free(largest).unwrap());
    quota.remove_limit(largest).unwrap();
}

/// Deleted files are not counted, unless they are held open.
pub(crate) fn deletion_frees(disk: &Disk) {
    let volume = disk.volume("deleted", 210, 8 * MIB);
    volume.write("file", 4 * MIB);
    let held = open(&volume.path.join("file"));
    fs::remove_file(volume.path.join("file")).unwrap();
    assert!(volume.used() >= 4 * MIB, "an open file still counts");
    drop(held);
    eventually("the deleted file does not count", || volume.used() < MIB);
    assert_eq!(volume.limit(), Some(8 * MIB));
    assert!(!volume.quota.is_free(volume.id).unwrap());
    volume.remove();
}

/// A provisioner renames a directory before it removes it.
pub(crate) fn renaming_keeps(disk: &Disk) {
    let mut volume = disk.volume("renamed", 220, 8 * MIB);
    volume.write("file", MIB);
    let used = volume.used();
    let elsewhere = disk.mount_point.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let renamed = elsewhere.join("renamed");
    fs::rename(&volume.path, &renamed).unwrap();
    volume.path = renamed;
    assert_eq!(volume.quota.project_of(open(&volume.path)).unwrap(), Some(volume.id));
    assert_eq!(volume.used(), used);
    assert_eq!(volume.write("rest", 8 * MIB).1, disk.full());
    volume.remove();
    fs::remove_dir(elsewhere).unwrap();
}

/// Hard links and renames cannot move a file into another project's directory. A file that is moved into a directory
/// without a project keeps its project.
pub(crate) fn projects_are_separate(disk: &Disk) {
    let one = disk.volume("one", 230, 8 * MIB);
    let two = disk.volume("two", 231, 8 * MIB);
    one.write("file", MIB);
    let file = one.path.join("file");
    let outside = disk.mount_point.join("outside");
    fs::write(&outside, "in no project").unwrap();

    let error = |result: std::io::Result<()>| result.err().and_then(|error| Errno::from_io_error(&error));
    let crossing = Some(Errno::XDEV);
    assert_eq!(error(fs::hard_link(&file, two.path.join("link"))), crossing);
    assert_eq!(error(fs::rename(&file, two.path.join("file"))), crossing);
    assert_eq!(error(fs::hard_link(&outside, two.path.join("link"))), crossing);
    assert_eq!(error(fs::rename(&outside, two.path.join("outside"))), crossing);
    assert_eq!(error(fs::rename(&one.path, two.path.join("one"))), crossing);
    fs::hard_link(&file, one.path.join("link")).unwrap();

    let kept = disk.mount_point.join("kept");
    fs::rename(&file, &kept).unwrap();
    assert!(one.used() >= MIB, "a file that was moved out still counts");
    fs::remove_file(kept).unwrap();
    fs::remove_file(outside).unwrap();
    two.remove();
    one.remove();
}
