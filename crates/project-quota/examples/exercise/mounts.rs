//! Effects of mounting.

use std::path::Path;
use std::process::Command;

use project_quota::ProjectQuota;

use crate::{Disk, MIB, open};

/// Limits and usage persist on disk, even while the file system is mounted without quotas.
pub(crate) fn limits_outlive_a_mount(disk: &Disk) {
    let volume = disk.volume("mounted", 400, 8 * MIB);
    volume.write("file", 4 * MIB);
    let (id, path) = (volume.id, volume.path.clone());
    // The handle keeps the file system busy.
    drop(volume);

    disk.mount_again("prjquota");
    let quota = disk.quota();
    assert_eq!(quota.usage(id).unwrap().limit_bytes, Some(8 * MIB));
    assert!(quota.usage(id).unwrap().used_bytes >= 4 * MIB);
    drop(quota);

    disk.mount_again("defaults");
    let child = crate::Child::user();
    child.run(&["write", path.join("more").to_str().unwrap(), &(2 * MIB).to_string()]);
    disk.mount_again("prjquota");
    let volume = crate::Volume { quota: disk.quota(), id, path };
    assert_eq!(volume.limit(), Some(8 * MIB));
    assert!(volume.used() >= 6 * MIB, "data written without quotas counts");
    assert_eq!(volume.write("rest", 4 * MIB).1, disk.full());
    volume.remove();
}

/// Synced data survives, and so does the limit that was set before.
pub(crate) fn limits_outlive_a_crash(disk: &Disk) {
    let volume = disk.volume("crashed", 420, 8 * MIB);
    open(&volume.path).sync_all().unwrap();
    let (id, path) = (volume.id, volume.path.clone());
    drop(volume);
    // From here on, nothing in memory is written to disk.
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&disk.mount_point));
    disk.mount_again("prjquota");
    let volume = crate::Volume { quota: disk.quota(), id, path };
    assert_eq!(volume.quota.project_of(open(&volume.path)).unwrap(), Some(id));
    assert_eq!(volume.limit(), Some(8 * MIB));
    volume.remove();
}

/// `ProjectQuota::of` returns `None` for file systems without project quotas, or with accounting only.
pub(crate) fn other_mounts_have_none(disk: &Disk) {
    let none = |path: &Path| ProjectQuota::of(open(path)).unwrap().is_none();
    assert!(none(Path::new("/")), "the file system of another machine");
    assert!(none(Path::new("/mnt")), "a file system in memory");
    let others: &[&str] = if disk.is_xfs { &["defaults", "pqnoenforce", "uquota"] } else { &["defaults", "usrquota"] };
    for options in others {
        disk.mount_again(options);
        assert!(none(&disk.mount_point), "{options}");
    }
    disk.mount_again("prjquota");
    assert!(!none(&disk.mount_point));
    // ext4 loads its quotas when it is mounted for writing; XFS can be queried, and reports why it accepts no changes.
    disk.mount_again("ro,prjquota");
    let quota = ProjectQuota::of(open(&disk.mount_point)).unwrap();
    assert_eq!(quota.is_some(), disk.is_xfs);
    if let Some(quota) = quota {
        let error = quota.set_limit(project_quota::ProjectId::new(410).unwrap(), MIB).unwrap_err();
        assert!(error.to_string().contains("Read-only file system"), "{error}");
    }
}

impl Disk {
    fn mount_again(&self, options: &str) {
        run(Command::new("umount").arg(&self.mount_point));
        run(Command::new("mount").args(["-o", options]).arg(&self.device).arg(&self.mount_point));
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}
