use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const OPEN: Permissions = Permissions { mode: 0o777, uid: None, gid: None };

fn root() -> (TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn entries(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn a_directory_is_made_once_and_open_to_all() {
    let (dir, root) = root();
    let path = root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
    assert_eq!((mode(&path), path.parent()), (0o777, dir.path().canonicalize().ok().as_deref()));
    fs::write(path.join("data"), "kept").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap(), path);
    assert_eq!((mode(&path), fs::read_to_string(path.join("data")).unwrap()), (0o777, "kept".to_owned()));
}

#[test]
fn a_bad_root_is_refused_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, says) in [
        (dir.path().join("missing"), "--root"),
        (file, "not a directory"),
        ("/proc".into(), "not writable"),
        ("/".into(), "whole"),
    ] {
        let text = Root::open(&path).unwrap_err().to_string();
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn hostile_names_reach_no_system_call() {
    let (dir, root) = root();
    let long = "a".repeat(254);
    for name in ["", ".", "..", "../x", "/etc", "a/b", "a\0b", "a\nb", "A", "a_b", "-a", "a-", "a..b", "ä", &long] {
        assert!(
            matches!(root.create(name, &OPEN, &FencingToken::unlimited()), Err(RootError::InvalidName(_))),
            "{name:?}"
        );
        assert!(matches!(root.remove(name, &FencingToken::unlimited()), Err(RootError::InvalidName(_))), "{name:?}");
    }
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn what_is_in_the_way_stays() {
    let (dir, root) = root();
    fs::write(dir.path().join("file"), "x").unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    for name in ["file", "link"] {
        assert!(
            matches!(root.create(name, &OPEN, &FencingToken::unlimited()), Err(RootError::InTheWay { .. })),
            "{name}"
        );
        assert!(matches!(root.remove(name, &FencingToken::unlimited()), Err(RootError::InTheWay { .. })), "{name}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "x");
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("/etc"));
}

#[test]
fn links_are_removed_and_never_followed() {
    let (dir, root) = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let path = root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
    symlink(outside.path(), path.join("out")).unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    symlink(outside.path().join("precious"), path.join("sub/file")).unwrap();
    // One that waits for its removal may be anything by now.
    symlink(outside.path(), dir.path().join(".deleting-pvc-1")).unwrap();
    root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_eq!((entries(dir.path()), entries(outside.path())), (0, 1));
    root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
}

#[test]
fn a_step_down_follows_no_link_and_crosses_no_mount() {
    let (dir, root) = root();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("link")).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("directory")).unwrap();
    let top = rustix::fs::openat(CWD, "/", OFlags::DIRECTORY, Mode::empty()).unwrap();
    for open in [descend::open::<&str>, descend::open_by_hand::<&str>] {
        assert!(open(root.handle.as_fd(), "directory").is_ok());
        assert_eq!(open(root.handle.as_fd(), "missing").unwrap_err(), Errno::NOENT);
        for name in ["link", "file"] {
            assert!(matches!(open(root.handle.as_fd(), name), Err(Errno::LOOP | Errno::NOTDIR)), "{name}");
        }
        assert_eq!(open(top.as_fd(), "proc").unwrap_err(), Errno::XDEV);
    }
}

#[test]
fn what_belongs_to_somebody_else_is_not_taken_over() {
    let (dir, mut root) = root();
    root.owner = OnceLock::from(root.owner().unwrap() + 1);
    fs::create_dir(dir.path().join("pvc-1")).unwrap();
    fs::set_permissions(dir.path().join("pvc-1"), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(
        root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap_err().to_string(),
        format!("{:?} belongs to somebody else; move it away", root.path.join("pvc-1"))
    );
    assert_eq!(mode(&dir.path().join("pvc-1")), 0o750);
}

#[test]
fn wide_trees_go() {
    let (dir, root) = root();
    let path = root.create("wide", &OPEN, &FencingToken::unlimited()).unwrap();
    for n in 0..10_000 {
        fs::write(path.join(format!("f{n}")), "").unwrap();
        fs::create_dir(path.join(format!("d{n}"))).unwrap();
    }
    root.remove("wide", &FencingToken::unlimited()).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn ten_thousand_levels_go() {
    levels_go(10_000);
}

#[test]
fn three_hundred_levels_go() {
    levels_go(300);
}

fn levels_go(depth: usize) {
    let (dir, root) = root();
    let path = root.create("deep", &OPEN, &FencingToken::unlimited()).unwrap();
    let mut below = rustix::fs::openat(CWD, &path, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&below, "d", Mode::RWXU).unwrap();
        below = rustix::fs::openat(&below, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    root.remove("deep", &FencingToken::unlimited()).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn directories_without_rights_go() {
    let (dir, root) = root();
    let path = root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
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
        root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
        fs::create_dir_all(deep.join("inner")).unwrap();
        for directory in deep.ancestors().take(20) {
            fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
        }
        root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
        assert_eq!(entries(dir.path()), 0);
    }
}

#[test]
fn a_narrow_umask_and_few_descriptors_are_enough() {
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
    again("a_directory_is_made_once_and_open_to_all");
    again("three_hundred_levels_go");
}

#[test]
fn what_cannot_be_emptied_is_left_for_later() {
    let (dir, root) = root();
    let path = root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
    fs::write(path.join("data"), "").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let leaving = dir.path().join(".deleting-pvc-1");
    let writer = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::write(leaving.join("data"), "");
                let _ = fs::create_dir(leaving.join("directory"));
            }
        }
    });
    // Either it comes to an end between two writes, or it says that it did not. What counts is that it returns.
    match root.remove("pvc-1", &FencingToken::unlimited()) {
        Ok(()) | Err(RootError::Busy { .. }) => {}
        other => panic!("{other:?}"),
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn an_interrupted_removal_is_finished_later() {
    let (dir, root) = root();
    fs::write(root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap().join("file"), "").unwrap();
    let asked = AtomicUsize::new(0);
    let once = FencingToken::as_long_as(move || asked.fetch_add(1, Ordering::Relaxed) == 0);
    assert!(matches!(root.remove("pvc-1", &once), Err(RootError::Interrupted(_))));
    assert!(dir.path().join(".deleting-pvc-1/file").exists());
    // The same name again, before the rest is gone: both go when asked, only the rest goes at the start.
    fs::write(root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap().join("new"), "").unwrap();
    root.finish_removals(&FencingToken::unlimited()).unwrap();
    assert!(dir.path().join("pvc-1/new").exists() && !dir.path().join(".deleting-pvc-1").exists());
    root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn who_was_succeeded_makes_and_removes_nothing() {
    let (dir, root) = root();
    let ended = FencingToken::as_long_as(|| false);
    assert!(matches!(root.create("pvc-1", &OPEN, &ended), Err(RootError::CutOff(_))));
    assert_eq!(entries(dir.path()), 0);
    root.create("pvc-1", &OPEN, &FencingToken::unlimited()).unwrap();
    assert!(matches!(root.remove("pvc-1", &ended), Err(RootError::CutOff(_))));
    assert!(dir.path().join("pvc-1").exists());
}

#[test]
fn making_and_removing_at_once_ends_in_one_of_the_two() {
    let (dir, root) = root();
    let root = Arc::new(root);
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let root = root.clone();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    // Any answer will do: what counts is what is there afterwards.
                    let _ = if n % 2 == 0 {
                        root.create("pvc-1", &OPEN, &FencingToken::unlimited()).map(drop)
                    } else {
                        root.remove("pvc-1", &FencingToken::unlimited())
                    };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    root.remove("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

proptest! {
    #[test]
    fn nothing_outside_changes(name in "\\PC{0,12}|(\\.\\./){1,3}[a-z]{1,5}|/[a-z]{1,5}") {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("root")).unwrap();
        fs::create_dir(outer.path().join("abc")).unwrap();
        let root = Root::open(&outer.path().join("root")).unwrap();
        let _ = root.create(&name, &OPEN, &FencingToken::unlimited());
        prop_assert_eq!(entries(outer.path()), 2);
        let _ = root.remove(&name, &FencingToken::unlimited());
        prop_assert_eq!((entries(outer.path()), entries(&outer.path().join("root"))), (2, 0));
    }
}

#[test]
fn a_class_says_who_may_use_a_directory() {
    use std::os::unix::fs::MetadataExt;
    let (_folder, root) = root();
    let closed = Permissions { mode: 0o2750, ..OPEN };
    let path = root.create("pvc-1", &closed, &FencingToken::unlimited()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o2750);
    let given = Permissions { mode: 0o2770, uid: Some(1234), gid: Some(4321) };
    match root.create("pvc-2", &given, &FencingToken::unlimited()) {
        Ok(path) => {
            let stat = fs::metadata(&path).unwrap();
            assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (1234, 4321, 0o2770));
            assert_eq!(root.create("pvc-2", &given, &FencingToken::unlimited()).unwrap(), path, "a second attempt");
            assert!(root.create("pvc-2", &closed, &FencingToken::unlimited()).is_err(), "it is another one's now");
        }
        // Only root may give directories away.
        Err(error) => {
            assert!(matches!(error, RootError::NotAllowed { .. }) && !rustix::process::geteuid().is_root(), "{error}");
        }
    }
}
