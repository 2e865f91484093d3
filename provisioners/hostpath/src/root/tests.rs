use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

static GO: AtomicBool = AtomicBool::new(false);

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
    let path = root.create("pvc-1").unwrap();
    assert_eq!((mode(&path), path.parent()), (0o777, dir.path().canonicalize().ok().as_deref()));
    fs::write(path.join("data"), "kept").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(root.create("pvc-1").unwrap(), path);
    assert_eq!((mode(&path), fs::read_to_string(path.join("data")).unwrap()), (0o777, "kept".to_owned()));
}

#[test]
fn a_bad_root_is_refused_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    for (path, says) in
        [(dir.path().join("missing"), "--root"), (file, "not a directory"), ("/proc".into(), "not writable")]
    {
        let text = Root::open(&path).unwrap_err().to_string();
        assert!(text.contains(says) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn hostile_names_reach_no_system_call() {
    let (dir, root) = root();
    let long = "a".repeat(254);
    for name in ["", ".", "..", "../x", "/etc", "a/b", "a\0b", "a\nb", "A", "a_b", "-a", "a-", "a..b", "ä", &long] {
        assert!(matches!(root.create(name), Err(RootError::InvalidName(_))), "{name:?}");
        assert!(matches!(root.remove(name, &GO), Err(RootError::InvalidName(_))), "{name:?}");
    }
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn what_is_in_the_way_stays() {
    let (dir, root) = root();
    fs::write(dir.path().join("file"), "x").unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    for name in ["file", "link"] {
        assert!(matches!(root.create(name), Err(RootError::InTheWay(_))), "{name}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "x");
    assert_eq!(fs::read_link(dir.path().join("link")).unwrap(), Path::new("/etc"));
}

#[test]
fn links_are_removed_and_never_followed() {
    let (dir, root) = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    let path = root.create("pvc-1").unwrap();
    symlink(outside.path(), path.join("out")).unwrap();
    fs::create_dir(path.join("sub")).unwrap();
    symlink(outside.path().join("precious"), path.join("sub/file")).unwrap();
    symlink(outside.path(), dir.path().join("pvc-2")).unwrap();
    root.remove("pvc-1", &GO).unwrap();
    root.remove("pvc-2", &GO).unwrap();
    assert_eq!((entries(dir.path()), entries(outside.path())), (0, 1));
    root.remove("pvc-1", &GO).unwrap();
}

#[test]
fn deep_and_wide_trees_go() {
    let (dir, root) = root();
    let path = root.create("deep").unwrap();
    let mut below = rustix::fs::openat(CWD, &path, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..10_000 {
        rustix::fs::mkdirat(&below, "d", Mode::RWXU).unwrap();
        below = rustix::fs::openat(&below, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    root.remove("deep", &GO).unwrap();
    let path = root.create("wide").unwrap();
    for n in 0..10_000 {
        fs::write(path.join(format!("f{n}")), "").unwrap();
        fs::create_dir(path.join(format!("d{n}"))).unwrap();
    }
    root.remove("wide", &GO).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn directories_without_rights_go() {
    let (dir, root) = root();
    let path = root.create("pvc-1").unwrap();
    fs::create_dir(path.join("closed")).unwrap();
    fs::write(path.join("closed/file"), "").unwrap();
    fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
    root.remove("pvc-1", &GO).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn an_interrupted_removal_is_finished_later() {
    let (dir, root) = root();
    fs::write(root.create("pvc-1").unwrap().join("file"), "").unwrap();
    let stop = AtomicBool::new(true);
    assert!(matches!(root.remove("pvc-1", &stop), Err(RootError::Interrupted(_))));
    assert!(dir.path().join(".deleting-pvc-1/file").exists());
    // The same name again, before the rest is gone: both go when asked, only the rest goes at the start.
    fs::write(root.create("pvc-1").unwrap().join("new"), "").unwrap();
    root.finish_removals(&GO).unwrap();
    assert!(dir.path().join("pvc-1/new").exists() && !dir.path().join(".deleting-pvc-1").exists());
    root.remove("pvc-1", &GO).unwrap();
    assert_eq!(entries(dir.path()), 0);
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
                    let _ = if n % 2 == 0 { root.create("pvc-1").map(drop) } else { root.remove("pvc-1", &GO) };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    root.remove("pvc-1", &GO).unwrap();
    assert_eq!(entries(dir.path()), 0);
}

proptest! {
    #[test]
    fn nothing_outside_changes(name in "\\PC{0,12}|(\\.\\./){1,3}[a-z]{1,5}|/[a-z]{1,5}") {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("root")).unwrap();
        fs::create_dir(outer.path().join("abc")).unwrap();
        let root = Root::open(&outer.path().join("root")).unwrap();
        let _ = root.create(&name);
        prop_assert_eq!(entries(outer.path()), 2);
        let _ = root.remove(&name, &GO);
        prop_assert_eq!((entries(outer.path()), entries(&outer.path().join("root"))), (2, 0));
    }
}
