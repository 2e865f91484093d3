//! Volumes with enforced sizes, on a file system with project quotas: `sizes MOUNT_POINT DEVICE KIND`. Panics at the
//! first violation. The tests run it inside user-mode Linux.
#![allow(clippy::print_stdout, reason = "a program talks to its user")]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use directory_volumes::{Claim, DirectoryError, Owner, Permissions, Root, VolumePath};
use kube_provisioner::FencingToken;
use project_quota::{ProjectId, ProjectQuota};

const MIB: u64 = 1 << 20;
const CLOSED: Permissions = Permissions { mode: 0o777, uid: None, gid: None };

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mount_point, device, kind] = arguments.as_slice() else { panic!("sizes MOUNT_POINT DEVICE KIND") };
    let place = Path::new(mount_point).join("volumes");
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    let root = open(&place);
    assert_eq!(root.why_unlimited().unwrap(), None);
    println!("a volume holds its size and no more");
    let path = make(&root, "pvc-1", 8 * MIB);
    assert_eq!(size_of(&path), 8 * MIB);
    fill(&path, 8 * MIB);
    println!("each volume has a size of its own");
    let other = make(&root, "pvc-2", 4 * MIB);
    fill(&other, 4 * MIB);
    println!("the file system counts what they use");
    let measured = root.usage().unwrap();
    let used = |volume: &str| measured.volumes.iter().find(|usage| usage.volume == volume).unwrap();
    assert!(
        used("pvc-1").bytes > 7 * MIB && used("pvc-2").bytes <= 4 * MIB && used("pvc-2").inodes > 1,
        "{measured:?}"
    );
    assert!(measured.free < measured.size && measured.volumes.len() == 2, "{measured:?}");
    println!("the same after a restart of the provisioner and of the node");
    drop(root);
    run(Command::new("umount").arg(mount_point));
    run(Command::new("mount").args(["-o", "prjquota", device, mount_point]));
    let root = open(&place);
    make(&root, "pvc-1", 8 * MIB);
    assert!(write(&path.join("more"), MIB).is_err(), "still full");
    assert_eq!(size_of(&path), 8 * MIB);
    println!("a full volume grows");
    assert!(root.resize(&at("pvc-1"), &owner("pvc-1"), 16 * MIB).unwrap());
    write(&path.join("grown"), 4 * MIB).unwrap();
    assert_eq!(size_of(&path), 16 * MIB);
    println!("deletion releases space and project");
    for volume in ["pvc-1", "pvc-2"] {
        root.remove(&at(volume), &owner(volume), &FencingToken::unlimited()).unwrap();
    }
    assert_eq!(fs::read_dir(place.join(".kube-provisioner/projects")).unwrap().count(), 0);
    println!("volumes in the trash stay limited and are restored with their size");
    let path = make(&root, "pvc-3", 4 * MIB);
    root.move_to_trash(&at("pvc-3"), &owner("pvc-3"), None, serde_json::Value::Null, &FencingToken::unlimited())
        .unwrap();
    root.restore("pvc-3", None).unwrap();
    root.end_restore("pvc-3").unwrap();
    assert_eq!(size_of(&path), 4 * MIB);
    fill(&path, 4 * MIB);
    let unbound = Owner { claim: None, ..owner("pvc-3") };
    assert!(root.resize(&at("pvc-3"), &unbound, 6 * MIB).unwrap());
    assert_eq!(size_of(&path), 6 * MIB);
    root.move_to_trash(&at("pvc-3"), &unbound, None, serde_json::Value::Null, &FencingToken::unlimited()).unwrap();
    root.purge("pvc-3", &FencingToken::unlimited()).unwrap();
    assert_eq!(fs::read_dir(place.join(".kube-provisioner/projects")).unwrap().count(), 0);
    println!("a volume comes back into a root that is in a project itself");
    root_in_a_project(&root, &place);
    println!("projects of other directories do not block a removal");
    other_projects(&root, &place);
    println!("a full disk loses no volumes and allows deletion");
    full(&root, &place, kind);
    println!("a disk that is read-only now is reported");
    run(Command::new("mount").args(["-o", "remount,ro", mount_point]));
    assert!(matches!(root.check(), Err(DirectoryError::NotWritable { .. })));
}

fn open(place: &Path) -> Root {
    let root = Root::open(place).unwrap();
    root.put_marker().unwrap();
    root
}

fn at(volume: &str) -> VolumePath {
    volume.to_owned().try_into().unwrap()
}

fn owner(volume: &str) -> Owner {
    let claim = Claim { namespace: "shop".to_owned(), name: volume.to_owned(), uid: format!("uid-of-{volume}") };
    Owner {
        volume: volume.to_owned(),
        uid: None,
        claim: Some(claim),
        provisioner: "example.com/p".to_owned(),
        cluster: None,
    }
}

fn make(root: &Root, volume: &str, bytes: u64) -> PathBuf {
    root.create(&at(volume), &owner(volume), false, &CLOSED, Some(bytes), &FencingToken::unlimited()).unwrap()
}

fn size_of(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_blocks * stat.f_frsize
}

/// Writes as a pod with another user does. On ext4, root would only be limited without CAP_SYS_RESOURCE.
fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let name = path.file_name().unwrap().to_string_lossy();
    let script = format!("dd if=/dev/zero of={name} bs=65536 count={} conv=fsync 2>/dev/null", bytes / 65536);
    let mut command = Command::new("setpriv");
    // Enter the directory beforehand, as for a container's volume: the root is closed to other users.
    command.args(["--reuid=1000", "--clear-groups", "sh", "-c", &script]).current_dir(path.parent().unwrap());
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::from(ErrorKind::StorageFull)) }
}

/// Checks that nearly the full size can be written, but nothing beyond.
fn fill(path: &Path, bytes: u64) {
    write(&path.join("most"), bytes - MIB).unwrap();
    assert!(write(&path.join("rest"), 2 * MIB).is_err(), "beyond the size");
}

/// Entries of the root inherit its project, and rename(2) refuses to move directories of other projects there.
fn root_in_a_project(root: &Root, place: &Path) {
    let (opened, token) = (File::open(place).unwrap(), FencingToken::unlimited());
    let quota = ProjectQuota::of(&opened).unwrap().unwrap();
    quota.assign(&opened, ProjectId::new(4712).unwrap()).unwrap();
    let path = make(root, "pvc-7", 4 * MIB);
    root.move_to_trash(&at("pvc-7"), &owner("pvc-7"), None, serde_json::Value::Null, &token).unwrap();
    root.restore("pvc-7", None).unwrap();
    root.end_restore("pvc-7").unwrap();
    assert_eq!(size_of(&path), 4 * MIB);
    fill(&path, 4 * MIB);
    root.remove(&at("pvc-7"), &Owner { claim: None, ..owner("pvc-7") }, &token).unwrap();
    ProjectQuota::end_inheritance(&opened).unwrap();
}

/// A tenant can change the projects of their own directories, and an administrator the project of the root.
fn other_projects(root: &Root, place: &Path) {
    let quota = ProjectQuota::of(File::open(place).unwrap()).unwrap().unwrap();
    let assign = |path: &Path| quota.assign(File::open(path).unwrap(), ProjectId::new(4711).unwrap()).unwrap();
    for own in ["deleting", "tmp"] {
        assign(&place.join(".kube-provisioner").join(own));
    }
    let mut below = make(root, "pvc-9", 4 * MIB);
    // Deeper directories are moved up.
    for _ in 0..80 {
        below.push("below");
        fs::create_dir(&below).unwrap();
        assign(&below);
    }
    root.remove(&at("pvc-9"), &owner("pvc-9"), &FencingToken::unlimited()).unwrap();
}

fn full(root: &Root, place: &Path, kind: &str) {
    let path = make(root, "pvc-4", 64 * MIB);
    for number in 0..200 {
        fs::create_dir(path.join(format!("d{number}"))).unwrap();
        fs::write(path.join(format!("d{number}/file")), "x").unwrap();
    }
    let mut file = OpenOptions::new().create(true).append(true).open(place.join("filler")).unwrap();
    let block = vec![1_u8; 1 << 16];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&[1_u8; 512]).is_ok() {}
    drop(file.sync_all());
    drop(file);
    // Use up the last inode and block for names.
    let mut last = 0;
    while File::create(place.join(format!("small-{last}"))).and_then(|mut file| file.write_all(&[1])).is_ok() {
        last += 1;
    }
    let made = root.create(&at("pvc-5"), &owner("pvc-5"), false, &CLOSED, None, &FencingToken::unlimited());
    assert!(matches!(made, Err(DirectoryError::Io { .. }) | Ok(_)), "{kind}: {made:?}");
    root.remove(&at("pvc-5"), &owner("pvc-5"), &FencingToken::unlimited()).unwrap();
    root.remove(&at("pvc-4"), &owner("pvc-4"), &FencingToken::unlimited()).unwrap();
    assert!(!path.exists());
    make(root, "pvc-6", 4 * MIB);
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
