//! The directories above a volume.

use super::*;
use crate::files::Durability;

fn put(dir: &TempDir, name: &str, mode: u32) {
    fs::create_dir(dir.path().join(name)).unwrap();
    fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
}

fn create(root: &Root, path: &str) -> Result<PathBuf, DirectoryError> {
    root.create(&at(path), &owner("pvc-1"), false, &OPEN, None, &FencingToken::unlimited())
}

fn is_exposed<T: std::fmt::Debug>(result: Result<T, DirectoryError>, says: &str) {
    match result {
        Err(error @ DirectoryError::Exposed { .. }) => assert!(error.to_string().contains(says), "{error}"),
        result => panic!("{result:?}"),
    }
}

#[test]
fn refuses_directories_of_others() {
    let (dir, root) = root();
    put(&dir, "shop", 0o777);
    is_exposed(create(&root, "shop/data"), "has the mode 0777 (first run chmod go-w on it)");
    is_exposed(create(&root, "shop/deep/data"), "`adopt shop`");
    // A tenant who is root in a pod can create a directory with this owner and mode.
    fs::set_permissions(dir.path().join("shop"), fs::Permissions::from_mode(0o711)).unwrap();
    for _ in 0..2 {
        is_exposed(create(&root, "shop/data"), "was not created by this provisioner");
        is_exposed(create(&root, "shop/deep/data"), "`adopt shop`");
    }
    assert_eq!(fs::read_dir(dir.path().join("shop")).unwrap().count(), 0);
    assert!(root.survey().unwrap().marked.is_empty());
    root.remove_pv("shop", &FencingToken::unlimited()).unwrap_err();
    root.adopt_above(&at("shop")).unwrap();
    create(&root, "shop/data").unwrap();
}

#[test]
fn refuses_a_directory_owned_by_a_tenant() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, root) = root();
    put(&dir, "shop", 0o711);
    std::os::unix::fs::chown(dir.path().join("shop"), Some(1000), None).unwrap();
    is_exposed(create(&root, "shop/data"), "belongs to the user 1000 (first run chown 0 on it)");
    is_exposed(root.adopt_above(&at("shop")), "belongs to the user 1000");
}

#[test]
fn refuses_a_directory_that_became_writable_for_others() {
    let (dir, root) = root();
    create(&root, "shop/data").unwrap();
    fs::set_permissions(dir.path().join("shop"), fs::Permissions::from_mode(0o777)).unwrap();
    is_exposed(create(&root, "shop/data"), "0777");
    let other = root.create(&at("shop/other"), &owner("pvc-2"), false, &OPEN, None, &FencingToken::unlimited());
    is_exposed(other, "0777");
    // Existing volumes can still be removed.
    root.remove(&at("shop/data"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn recognizes_its_own_directories_until_they_are_removed() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    create(&root, "team/shop/data").unwrap();
    fs::write(dir.path().join("team/notes"), "x").unwrap();
    root.remove(&at("team/shop/data"), &owner("pvc-1"), &token).unwrap();
    assert!(!dir.path().join("team/shop").exists());
    create(&root, "team/shop/data").unwrap();
    root.remove(&at("team/shop/data"), &owner("pvc-1"), &token).unwrap();
    // After it is removed, a volume may take its path.
    fs::remove_file(dir.path().join("team/notes")).unwrap();
    fs::remove_dir(dir.path().join("team")).unwrap();
    create(&root, "team").unwrap();
    root.remove(&at("team"), &owner("pvc-1"), &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn removes_empty_directories_despite_a_concurrent_removal() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    create(&root, "team/shop/data").unwrap();
    // Another process has removed the last volume in it, and then the directories, but not yet their counterparts among
    // the marks.
    fs::remove_dir_all(dir.path().join("team")).unwrap();
    root.remove(&at("team/shop/data"), &owner("pvc-1"), &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn keeps_a_directory_provided_by_an_administrator() {
    let (dir, root) = root();
    put(&dir, "team", 0o755);
    root.adopt_above(&at("team")).unwrap();
    for _ in 0..2 {
        create(&root, "team/shop/data").unwrap();
        root.remove(&at("team/shop/data"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
        assert!(mode(&dir.path().join("team")) == 0o755 && !dir.path().join("team/shop").exists());
    }
    create(&root, "team/data").unwrap();
    fs::remove_dir_all(dir.path().join("team")).unwrap();
    root.remove(&at("team/data"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

/// On a full disk, there may be room for a directory, but not for a mark in it.
#[test]
fn a_failed_mark_leaves_no_directories_behind() {
    let (dir, root) = root();
    let state = root.enter().unwrap();
    fs::remove_dir(dir.path().join(".kube-provisioner/tmp")).unwrap();
    state.reserve(&at("team/shop/data"), &owner("pvc-1"), false, Durability::Immediate).unwrap_err();
    assert_eq!(entries(&dir.path().join(".kube-provisioner/volumes")), 0);
}

#[test]
fn removes_mark_directories_left_by_a_killed_process() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    create(&root, "team/shop/data").unwrap();
    root.move_to_trash(&at("team/shop/data"), &owner("pvc-1"), None, serde_json::Value::Null, &token).unwrap();
    let place = dir.path().join(".kube-provisioner/volumes/team");
    fs::create_dir_all(place.join("shop")).unwrap();
    root.finish_removals(&token).unwrap();
    assert!(!place.exists());
}

/// `orphans --delete` does not know the object of a volume, so `trash restore` restores its directory without a mark.
#[test]
fn creates_volumes_next_to_a_directory_without_a_mark() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    create(&root, "shop/data").unwrap();
    root.move_to_trash(&at("shop/data"), &owner("pvc-1"), None, serde_json::Value::Null, &token).unwrap();
    root.restore_without_mark("pvc-1").unwrap();
    assert!(dir.path().join("shop/data").exists() && root.mark_of(&at("shop/data")).unwrap().is_none());
    root.create(&at("shop/other"), &owner("pvc-2"), false, &OPEN, None, &token).unwrap();
}

#[test]
fn refuses_adoption_where_others_can_replace_the_directory() {
    let (dir, root) = root();
    put(&dir, "shop", 0o777);
    put(&dir, "shop/data", 0o700);
    is_exposed(root.adopt(&at("shop/data"), &owner("pvc-1"), false), "0777");
    is_exposed(root.adopt_above(&at("shop")), "0777");
    fs::set_permissions(dir.path().join("shop"), fs::Permissions::from_mode(0o755)).unwrap();
    root.adopt(&at("shop/data"), &owner("pvc-1"), false).unwrap();
    assert!(matches!(root.adopt_above(&at("shop/data")), Err(DirectoryError::Taken { .. })));
}

#[test]
fn refuses_to_restore_into_a_directory_of_others() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    create(&root, "shop/data").unwrap();
    root.move_to_trash(&at("shop/data"), &owner("pvc-1"), None, serde_json::Value::Null, &token).unwrap();
    put(&dir, "shop", 0o711);
    is_exposed(root.restore("pvc-1", Some(HERE)), "was not created");
    assert_eq!((root.trash().unwrap().len(), root.restoring().unwrap().len()), (1, 0));
    fs::remove_dir(dir.path().join("shop")).unwrap();
    root.restore("pvc-1", Some(HERE)).unwrap();
    assert!(dir.path().join("shop/data").exists());
}
