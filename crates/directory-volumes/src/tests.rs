mod above;
mod marks;
mod removal;
mod trash;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tempfile::TempDir;

use kube_provisioner::FencingToken;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::*;

const HERE: &str = "cluster-1";
pub(crate) const OPEN: Permissions = Permissions { mode: 0o777, uid: None, gid: None };

pub(crate) fn root() -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    root.put_marker().unwrap();
    (dir, root)
}

pub(crate) fn at(path: &str) -> VolumePath {
    path.to_owned().try_into().unwrap()
}

pub(crate) fn owner(volume: &str) -> Owner {
    let claim = Claim { namespace: "shop".to_owned(), name: "data".to_owned(), uid: format!("uid-of-{volume}") };
    Owner {
        volume: volume.to_owned(),
        uid: None,
        claim: Some(claim),
        provisioner: "example.com/p".to_owned(),
        cluster: Some(HERE.to_owned()),
    }
}

impl Root {
    fn make(&self, name: &str, token: &FencingToken) -> Result<PathBuf, DirectoryError> {
        self.create(&at(name), &owner(name), false, &OPEN, None, token)
    }

    fn remove_pv(&self, name: &str, token: &FencingToken) -> Result<(), DirectoryError> {
        self.remove(&at(name), &owner(name), token)
    }
}

/// Asserts that the root contains neither volumes nor their metadata.
fn assert_empty(dir: &Path) {
    assert_eq!(entries(dir), 0, "{:?}", fs::read_dir(dir).unwrap().collect::<Vec<_>>());
    for own in ["volumes", "projects", "deleting", "trash", "tmp"] {
        let own = dir.join(".kube-provisioner").join(own);
        assert_eq!(entries(&own), 0, "{:?}", fs::read_dir(own).unwrap().collect::<Vec<_>>());
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().filter(|entry| entry.as_ref().unwrap().file_name() != ".kube-provisioner").count()
}

#[test]
fn creates_a_directory_once_and_open_to_all() {
    let (dir, root) = root();
    let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_eq!((mode(&path), path.parent()), (0o777, dir.path().canonicalize().ok().as_deref()));
    fs::write(path.join("data"), "kept").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(root.make("pvc-1", &FencingToken::unlimited()).unwrap(), path);
    assert_eq!((mode(&path), fs::read_to_string(path.join("data")).unwrap()), (0o777, "kept".to_owned()));
}

#[test]
fn refuses_an_unusable_root_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, says) in [
        (dir.path().join("missing"), "create it, or set another one"),
        (file, "not a directory"),
        ("/".into(), "whole"),
    ] {
        let text = Root::open(&path).unwrap_err().to_string();
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }
    let text = Root::open(Path::new("/proc")).and_then(|root| root.put_marker()).unwrap_err().to_string();
    assert!(text.contains("cannot write the marker"), "{text}");
}

#[test]
fn refuses_a_root_that_others_can_write_to() {
    let dir = tempfile::tempdir().unwrap();
    for (mode, safe, advised) in
        [(0o700, true, false), (0o711, true, true), (0o755, true, true), (0o775, false, true), (0o1777, false, true)]
    {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        match Root::open(dir.path()) {
            Ok(root) => assert_eq!(
                (safe, root.advice().iter().any(|text| text.contains("chmod 0700"))),
                (true, advised),
                "{mode:o}"
            ),
            Err(error) => assert!(!safe && error.to_string().contains("chmod 0700"), "{mode:o}: {error}"),
        }
    }
}

/// Only runs if this machine has a tmpfs.
#[test]
fn reports_a_root_in_memory() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if !mounts.lines().any(|line| line.split(' ').take(3).skip(1).eq(["/dev/shm", "tmpfs"])) {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let advice = Root::open(dir.path()).unwrap().advice();
    assert!(advice.len() == 1 && advice[0].contains("is on tmpfs, so a restart of the node loses"), "{advice:?}");
}

#[test]
fn keeps_foreign_files_at_the_path_of_a_volume() {
    let (dir, root) = root();
    fs::write(dir.path().join("file"), "x").unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    for name in ["file", "link", "directory"] {
        let makes = root.make(name, &FencingToken::unlimited());
        assert!(matches!(makes, Err(DirectoryError::NotOurs { .. })), "{name}");
        let removes = root.remove_pv(name, &FencingToken::unlimited());
        assert!(matches!(removes, Err(DirectoryError::NotOurs { .. })), "{name}");
    }
    // A symlink that replaced the directory of a volume is also kept.
    root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    fs::remove_dir(dir.path().join("pvc-1")).unwrap();
    symlink("/etc", dir.path().join("pvc-1")).unwrap();
    assert!(matches!(root.make("pvc-1", &FencingToken::unlimited()), Err(DirectoryError::InTheWay { .. })));
    assert!(matches!(root.remove_pv("pvc-1", &FencingToken::unlimited()), Err(DirectoryError::InTheWay { .. })));
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "x");
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("/etc"));
    assert_eq!(fs::read_link(dir.path().join("pvc-1")).unwrap(), Path::new("/etc"));
}

#[test]
fn removes_symlinks_without_following_them() {
    let (dir, root) = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    symlink(outside.path(), path.join("out")).unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    symlink(outside.path().join("precious"), path.join("sub/file")).unwrap();
    // A directory that waits for its removal may have been replaced with anything.
    fs::create_dir(dir.path().join(".kube-provisioner/deleting/pvc-1")).unwrap();
    symlink(outside.path(), dir.path().join(".kube-provisioner/deleting/pvc-1/data")).unwrap();
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
    assert_eq!(entries(outside.path()), 1);
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
}

#[test]
fn descends_neither_through_symlinks_nor_into_mounts() {
    let (dir, root) = root();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("link")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    let state = root.enter().unwrap();
    let top = rustix::fs::openat(CWD, "/", OFlags::DIRECTORY, Mode::empty()).unwrap();
    for open in [open_directory::open::<&str>, open_directory::open_without_openat2::<&str>] {
        assert!(open(state.root.as_fd(), "directory").is_ok());
        assert_eq!(open(state.root.as_fd(), "missing").unwrap_err(), Errno::NOENT);
        for name in ["link", "file"] {
            assert!(matches!(open(state.root.as_fd(), name), Err(Errno::LOOP | Errno::NOTDIR)), "{name}");
        }
        assert_eq!(open(top.as_fd(), "proc").unwrap_err(), Errno::XDEV);
    }
}

#[test]
fn refuses_a_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, root) = root();
    let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(
        root.make("pvc-1", &FencingToken::unlimited()).unwrap_err().to_string(),
        format!("{path:?} belongs to another owner; move it away")
    );
    assert_eq!(mode(&dir.path().join("pvc-1")), 0o750);
}

#[test]
fn removes_wide_trees() {
    let (dir, root) = root();
    let path = root.make("wide", &FencingToken::unlimited()).unwrap();
    for n in 0..10_000 {
        fs::write(path.join(format!("f{n}")), "").unwrap();
        fs::create_dir(path.join(format!("d{n}"))).unwrap();
    }
    root.remove_pv("wide", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn removes_ten_thousand_levels() {
    removes_levels(10_000);
}

#[test]
fn removes_three_hundred_levels() {
    removes_levels(300);
}

fn removes_levels(depth: usize) {
    let (dir, root) = root();
    let path = root.make("deep", &FencingToken::unlimited()).unwrap();
    let mut below = rustix::fs::openat(CWD, &path, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&below, "d", Mode::RWXU).unwrap();
        below = rustix::fs::openat(&below, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    root.remove_pv("deep", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn removes_directories_without_permissions() {
    let (dir, root) = root();
    let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    for mode in [0o000, 0o100, 0o200, 0o400, 0o500, 0o2777] {
        let closed = path.join(format!("{mode:o}"));
        fs::create_dir_all(closed.join("inner/most")).unwrap();
        fs::write(closed.join("inner/file"), "").unwrap();
        fs::set_permissions(closed.join("inner"), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
    }
    // Below the depth where directories are moved instead of entered.
    let deep = path.join("d/".repeat(80));
    for mode in [0o000, 0o500] {
        root.make("pvc-1", &FencingToken::unlimited()).unwrap();
        fs::create_dir_all(deep.join("inner")).unwrap();
        for directory in deep.ancestors().take(20) {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
        assert_empty(dir.path());
        // Moving a directory needs write permission on it.
        let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
        assert_empty(dir.path());
    }
}

#[test]
fn works_with_a_narrow_umask_and_few_descriptors() {
    let again = |test: &str| {
        let output = Command::new("sh")
            .args(["-c", r#"umask 0077 && ulimit -n 128 && exec "$0" --quiet --exact "$1""#])
            .arg(std::env::current_exe().unwrap())
            .arg(format!("{}::{test}", module_path!().split_once("::").unwrap().1))
            .output()
            .unwrap();
        let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && passed, "{output:?}");
    };
    again("creates_a_directory_once_and_open_to_all");
    again("removes_three_hundred_levels");
}

#[test]
fn removal_ends_if_a_directory_keeps_filling_up() {
    let (dir, root) = root();
    let path = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    fs::write(path.join("data"), "").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let leaving = dir.path().join(".kube-provisioner/deleting/pvc-1/data");
    let writer = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::write(leaving.join("data"), "");
                let _ = fs::create_dir(leaving.join("directory"));
            }
        }
    });
    // The removal either finishes between two writes, or reports that the directory is busy. It must not run forever.
    match root.remove_pv("pvc-1", &FencingToken::unlimited()) {
        Ok(()) | Err(DirectoryError::Busy { .. }) => {}
        other => panic!("{other:?}"),
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn an_interrupted_removal_is_finished_later() {
    let (dir, root) = root();
    fs::write(root.make("pvc-1", &FencingToken::unlimited()).unwrap().join("file"), "").unwrap();
    let asked = AtomicUsize::new(0);
    let once = FencingToken::valid_while(move || asked.fetch_add(1, Ordering::Relaxed) == 0);
    assert!(matches!(root.remove_pv("pvc-1", &once), Err(DirectoryError::Interrupted(_))));
    assert!(dir.path().join(".kube-provisioner/deleting/pvc-1/data/file").exists());
    // Create the volume again before its leftovers are removed. At the start, only the leftovers are removed; an
    // explicit removal deletes both.
    fs::write(root.make("pvc-1", &FencingToken::unlimited()).unwrap().join("new"), "").unwrap();
    root.finish_removals(&FencingToken::unlimited()).unwrap();
    assert!(
        dir.path().join("pvc-1/new").exists() && !dir.path().join(".kube-provisioner/deleting/pvc-1/data").exists()
    );
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn an_invalid_token_prevents_creation_and_removal() {
    let (dir, root) = root();
    let ended = FencingToken::valid_while(|| false);
    assert!(matches!(root.make("pvc-1", &ended), Err(DirectoryError::Fenced(_))));
    assert_empty(dir.path());
    root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    assert!(matches!(root.remove_pv("pvc-1", &ended), Err(DirectoryError::Fenced(_))));
    assert!(dir.path().join("pvc-1").exists());
}

#[test]
fn concurrent_creation_and_removal_leave_a_consistent_state() {
    let (dir, root) = root();
    let root = Arc::new(root);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let root = root.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    // Any result is acceptable: only the final state matters.
                    let _ = if n % 2 == 0 {
                        root.make("pvc-1", &FencingToken::unlimited()).map(drop)
                    } else {
                        root.remove_pv("pvc-1", &FencingToken::unlimited())
                    };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn applies_the_owner_and_mode_of_the_class() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, root) = root();
    let closed = Permissions { mode: 0o2750, ..OPEN };
    let path = root.create(&at("pvc-1"), &owner("pvc-1"), false, &closed, None, &FencingToken::unlimited()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2750);
    let given = Permissions { mode: 0o2770, uid: Some(1234), gid: Some(4321) };
    match root.create(&at("pvc-2"), &owner("pvc-2"), false, &given, None, &FencingToken::unlimited()) {
        Ok(path) => {
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1234, 4321, 0o2770));
            assert_eq!(
                root.create(&at("pvc-2"), &owner("pvc-2"), false, &given, None, &FencingToken::unlimited()).unwrap(),
                path,
                "a second attempt"
            );
            assert!(
                root.create(&at("pvc-2"), &owner("pvc-2"), false, &closed, None, &FencingToken::unlimited()).is_err(),
                "the directory has another owner now"
            );
        }
        // Only root may change the owner of directories.
        Err(error) => {
            assert!(
                matches!(error, DirectoryError::NotAllowed { .. }) && !rustix::process::geteuid().is_root(),
                "{error}"
            );
        }
    }
}
