//! Permissions of administrators and writers.

use std::fs;

use crate::child::Child;
use crate::{Disk, MIB, USER};

/// CAP_SYS_ADMIN is required and sufficient; directories of other users also require CAP_FOWNER.
pub(crate) fn managers_need_capabilities(disk: &Disk) {
    let path = disk.mount_point.join("managed");
    fs::create_dir(&path).unwrap();
    let manage = |child: Child| child.run(&["manage", path.to_str().unwrap(), "300"]).trim().to_owned();
    let only_admin = || Child::root_with("--bounding-set=-all,+sys_admin");
    let refused = "not allowed: cannot ask for project quotas";
    assert_eq!(manage(Child::root_with("--bounding-set=-sys_admin")), refused);
    assert_eq!(manage(Child::user()), refused);
    assert_eq!(manage(Child::namespaced_root()), refused);
    assert_eq!(manage(only_admin()), "managed");

    std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
    let theirs = "not allowed: cannot put the directory into its project";
    assert_eq!(manage(only_admin()), "managed", "the directory is already in the project");
    assert!(Child::user().succeeds(&["chattr", "-p", "0", path.to_str().unwrap()]), "owners may leave a project");
    assert_eq!(manage(only_admin()), theirs);
    assert_eq!(manage(Child::root_with("--bounding-set=-all,+sys_admin,+fowner")), "managed");
    disk.quota().remove_limit(project_quota::ProjectId::new(300).unwrap()).unwrap();
    fs::remove_dir(path).unwrap();
}

/// The owner of a file may remove it from its project, except in user namespaces: limits prevent mistakes, not intent.
pub(crate) fn owners_can_leave_a_project(disk: &Disk) {
    let volume = disk.volume("owner", 310, 8 * MIB);
    volume.write("file", 4 * MIB);
    let file = volume.path.join("file");
    let leave = ["chattr", "-p", "0", file.to_str().unwrap()];
    assert!(volume.used() >= 4 * MIB);
    std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
    assert!(!Child::namespaced_root().succeeds(&leave), "an owner in a user namespace may not");
    assert!(volume.used() >= 4 * MIB);
    std::os::unix::fs::chown(&file, Some(USER), Some(USER)).unwrap();
    assert!(Child::user().succeeds(&leave), "the kernel allows owners to do this");
    assert!(volume.used() < MIB);
    volume.remove();
}
