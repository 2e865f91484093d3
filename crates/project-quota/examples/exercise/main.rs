//! Checks project quotas on a real file system, and panics at the first violation.
//!
//! It mounts and unmounts file systems, so run it on a dedicated machine: `exercise all xfs|ext4 MOUNT_POINT DEVICE`.

mod child;
mod lifecycle;
mod limits;
mod mounts;
mod rights;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use project_quota::{ProjectId, ProjectQuota};

use child::Child;

const MIB: u64 = 1 << 20;

/// The user that writes, as in a pod.
const USER: u32 = 1000;

/// A requirement, and a function that panics if it is not met.
type Check = (&'static str, fn(&Disk));

/// The file system under test.
struct Disk {
    is_xfs: bool,
    mount_point: PathBuf,
    device: PathBuf,
}

#[allow(clippy::print_stdout)]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["all", kind, mount_point, device] = arguments[..] else { return child::main(&arguments) };
    let disk = Disk { is_xfs: kind == "xfs", mount_point: mount_point.into(), device: device.into() };
    let checks: [Check; 15] = [
        ("limits bind users, and sub-directories", limits::bind_users),
        ("limits and root", limits::bind_root),
        ("limits are rounded up", limits::are_rounded_up),
        ("df shows the limit", limits::show_as_size),
        ("a raised limit lets a writer continue", limits::can_be_raised),
        ("a limit below the usage", limits::can_be_lowered_below_usage),
        ("projects in use are seen", lifecycle::projects_in_use_are_seen),
        ("deletion frees the project", lifecycle::deletion_frees),
        ("renamed directories keep their project", lifecycle::renaming_keeps),
        ("files do not change projects", lifecycle::projects_are_separate),
        ("permissions of managers", rights::managers_need_capabilities),
        ("permissions of writers", rights::owners_can_leave_a_project),
        ("limits outlive a mount", mounts::limits_outlive_a_mount),
        ("limits outlive a crash", mounts::limits_outlive_a_crash),
        ("other mounts have none", mounts::other_mounts_have_none),
    ];
    for (what, check) in checks {
        let start = Instant::now();
        println!("{what}");
        check(&disk);
        println!("  holds ({:.0} ms)", start.elapsed().as_secs_f64() * 1000.0);
    }
}

impl Disk {
    fn quota(&self) -> ProjectQuota {
        ProjectQuota::of(open(&self.mount_point)).unwrap().expect("the file system enforces project quotas")
    }

    /// Creates a user's directory with a limit.
    fn volume(&self, name: &str, id: u32, bytes: u64) -> Volume {
        let path = self.mount_point.join(name);
        fs::create_dir(&path).unwrap();
        let volume = Volume { quota: self.quota(), id: ProjectId::new(id).unwrap(), path };
        assert!(volume.quota.is_free(volume.id).unwrap(), "{id} is free before it is used");
        volume.quota.set_limit(volume.id, bytes).unwrap();
        volume.quota.assign(open(&volume.path), volume.id).unwrap();
        std::os::unix::fs::chown(&volume.path, Some(USER), Some(USER)).unwrap();
        volume
    }

    /// Returns the error for writing beyond a limit.
    fn full(&self) -> &'static str {
        if self.is_xfs { "ENOSPC" } else { "EDQUOT" }
    }
}

/// A directory in a project.
struct Volume {
    quota: ProjectQuota,
    id: ProjectId,
    path: PathBuf,
}

impl Volume {
    fn used(&self) -> u64 {
        self.quota.usage(self.id).unwrap().used_bytes
    }

    fn limit(&self) -> Option<u64> {
        self.quota.usage(self.id).unwrap().limit_bytes
    }

    /// Writes a file as a user; returns the number of bytes written, and the error or "ok".
    fn write(&self, name: &str, bytes: u64) -> (u64, String) {
        self.write_as(&Child::user(), name, bytes)
    }

    fn write_as(&self, child: &Child, name: &str, bytes: u64) -> (u64, String) {
        let output = child.run(&["write", self.path.join(name).to_str().unwrap(), &bytes.to_string()]);
        let (written, result) = output.trim().split_once(' ').expect("a number and a result");
        (written.parse().unwrap(), result.to_owned())
    }

    /// Removes the directory, and waits until the project is free.
    fn remove(self) {
        fs::remove_dir_all(&self.path).unwrap();
        self.quota.remove_limit(self.id).unwrap();
        eventually("the project is free", || self.quota.is_free(self.id).unwrap());
    }
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

/// Waits until a condition holds: XFS finishes removals in the background.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
