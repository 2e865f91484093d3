//! The root's marker and the volumes' marks.

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::files::Durability;

#[test]
fn a_root_keeps_its_first_marker() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open(dir.path()).unwrap();
    assert!(!root.has_marker().unwrap() && root.id().is_none());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "opening creates nothing");
    assert!(matches!(root.make("pvc-1", &FencingToken::unlimited()), Err(DirectoryError::Unmarked(_))));
    root.put_marker().unwrap();
    root.put_marker().unwrap();
    let again = Root::open(dir.path()).unwrap();
    assert_eq!((again.id(), again.id().map(str::len)), (root.id(), Some(16)));
    assert_eq!(mode(&dir.path().join(".kube-provisioner")), 0o700);
}

#[test]
fn refuses_work_while_the_file_system_is_not_mounted() {
    let outer = tempfile::tempdir().unwrap();
    let (disk, away) = (outer.path().join("disk"), outer.path().join("away"));
    fs::create_dir(&disk).unwrap();
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o700)).unwrap();
    let root = Root::open(&disk).unwrap();
    root.put_marker().unwrap();
    root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    // Simulate an unmount: the path is an empty directory.
    fs::rename(&disk, &away).unwrap();
    assert!(matches!(root.check(), Err(DirectoryError::Unusable { .. })));
    fs::create_dir(&disk).unwrap();
    for result in [
        root.check(),
        root.make("pvc-2", &FencingToken::unlimited()).map(drop),
        root.remove_pv("pvc-1", &FencingToken::unlimited()),
        root.finish_removals(&FencingToken::unlimited()),
        root.trash().map(drop),
        root.survey().map(drop),
    ] {
        assert!(matches!(result, Err(DirectoryError::Unmarked(_))), "{result:?}");
    }
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    // Another disk is mounted.
    let other = Root::open(&disk).unwrap();
    other.put_marker().unwrap();
    assert!(matches!(root.remove_pv("pvc-1", &FencingToken::unlimited()), Err(DirectoryError::OtherRoot { .. })));
    // The disk is back.
    fs::rename(&disk, outer.path().join("other")).unwrap();
    fs::rename(&away, &disk).unwrap();
    root.check().unwrap();
    root.remove_pv("pvc-1", &FencingToken::unlimited()).unwrap();
    assert_empty(&disk);
}

#[test]
fn refuses_to_change_directories_of_other_volumes() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let path = root.make("pvc-1", &token).unwrap();
    fs::write(path.join("data"), "x").unwrap();
    let mut strangers = [owner("pvc-1"), owner("pvc-1"), owner("pvc-2"), owner("pvc-1")];
    strangers[3].cluster = Some("cluster-2".to_owned());
    strangers[0].provisioner = "example.com/other".to_owned();
    strangers[1].claim.as_mut().unwrap().uid = "another".to_owned();
    for stranger in &strangers {
        let closed = Permissions { mode: 0o700, ..OPEN };
        let results = [
            root.create(&at("pvc-1"), stranger, false, &closed, None, &token).map(drop),
            root.remove(&at("pvc-1"), stranger, &token),
            root.move_to_trash(&at("pvc-1"), stranger, None, serde_json::Value::Null, &token),
            root.adopt(&at("pvc-1"), stranger, false),
            root.remove_mark(&at("pvc-1"), stranger),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, DirectoryError::Taken { .. }), "{error}");
            assert!(error.to_string().contains("the volume pvc-1 of the claim shop/data"), "{error}");
        }
    }
    assert_eq!((mode(&path), fs::read_to_string(path.join("data")).unwrap()), (0o777, "x".to_owned()));
    root.remove_pv("pvc-1", &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn refuses_nested_volumes() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let make = |path: &str| root.create(&at(path), &owner("pvc-1"), false, &OPEN, None, &token).map(drop);
    root.create(&at("shop/data"), &owner("pvc-2"), false, &OPEN, None, &token).unwrap();
    for path in ["shop", "shop/data/inner", "shop/data/in/ner"] {
        let error = make(path).unwrap_err();
        assert!(matches!(error, DirectoryError::Taken { .. } | DirectoryError::NotOurs { .. }), "{path}: {error}");
    }
    make("shop/other").unwrap();
    root.remove(&at("shop/other"), &owner("pvc-1"), &token).unwrap();
    assert!(dir.path().join("shop/data").exists());
    root.remove(&at("shop/data"), &owner("pvc-2"), &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn removes_only_empty_directories_above_volumes() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    root.create(&at("team/shop/data"), &owner("pvc-1"), false, &OPEN, None, &token).unwrap();
    assert_eq!(mode(&dir.path().join("team")), 0o711);
    fs::write(dir.path().join("team/notes"), "x").unwrap();
    root.remove(&at("team/shop/data"), &owner("pvc-1"), &token).unwrap();
    assert_eq!(fs::read_dir(dir.path().join("team")).unwrap().count(), 1);
}

#[test]
fn does_not_follow_a_symlink_above_a_volume() {
    let (dir, root) = root();
    let (token, outside) = (FencingToken::unlimited(), tempfile::tempdir().unwrap());
    root.create(&at("shop/data"), &owner("pvc-1"), false, &OPEN, None, &token).unwrap();
    fs::create_dir(outside.path().join("data")).unwrap();
    fs::write(outside.path().join("data/precious"), "x").unwrap();
    fs::rename(dir.path().join("shop"), dir.path().join("moved")).unwrap();
    symlink(outside.path(), dir.path().join("shop")).unwrap();
    for result in [
        root.create(&at("shop/data"), &owner("pvc-1"), false, &OPEN, None, &token).map(drop),
        root.create(&at("shop/new"), &owner("pvc-2"), false, &OPEN, None, &token).map(drop),
        root.remove(&at("shop/data"), &owner("pvc-1"), &token),
    ] {
        assert!(matches!(result, Err(DirectoryError::InTheWay { .. })), "{result:?}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(outside.path().join("data/precious").exists());
}

#[test]
fn survey_lists_marked_unmarked_and_damaged_entries() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    for (path, volume) in [("pvc-1", "pvc-1"), ("shop/data", "pvc-2"), ("gone", "pvc-3"), ("old", "pvc-4")] {
        root.create(&at(path), &owner(volume), false, &OPEN, None, &token).unwrap();
    }
    fs::remove_dir(dir.path().join("gone")).unwrap();
    root.move_to_trash(&at("old"), &owner("pvc-4"), None, serde_json::Value::Null, &token).unwrap();
    fs::create_dir(dir.path().join("stranger")).unwrap();
    fs::create_dir(dir.path().join("shop/stranger")).unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    fs::write(dir.path().join(".kube-provisioner/volumes/bad"), "{").unwrap();
    let survey = root.survey().unwrap();
    let marked: Vec<_> = survey.marked.iter().map(|found| (found.path.as_str(), found.has_directory)).collect();
    assert_eq!(marked, [("gone", false), ("pvc-1", true), ("shop/data", true)]);
    assert_eq!(survey.unmarked, ["shop/stranger", "link", "stranger"]);
    assert_eq!((survey.trash.len(), survey.deleting.len(), survey.damaged.len()), (1, 0, 1));
}

#[test]
fn adoption_does_not_change_the_directory() {
    let (dir, root) = root();
    fs::create_dir(dir.path().join("old")).unwrap();
    fs::set_permissions(dir.path().join("old"), fs::Permissions::from_mode(0o705)).unwrap();
    symlink("/etc", dir.path().join("link")).unwrap();
    assert!(matches!(root.adopt(&at("link"), &owner("pvc-1"), false), Err(DirectoryError::InTheWay { .. })));
    assert!(matches!(root.adopt(&at("missing"), &owner("pvc-1"), false), Err(DirectoryError::NotThere { .. })));
    root.adopt(&at("old"), &owner("pvc-1"), false).unwrap();
    root.adopt(&at("old"), &owner("pvc-1"), false).unwrap();
    assert_eq!(mode(&dir.path().join("old")), 0o705);
    root.remove(&at("old"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
    assert!(!dir.path().join("old").exists());
}

#[test]
fn recovers_from_a_crash_during_creation() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    // Only the mark exists, and then the mark with a directory that no pod may use yet.
    let state = root.enter().unwrap();
    state.reserve(&at("pvc-1"), &owner("pvc-1"), false, Durability::Deferred).unwrap();
    root.make("pvc-1", &token).unwrap();
    fs::set_permissions(dir.path().join("pvc-1"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(mode(&root.make("pvc-1", &token).unwrap()), 0o777);
    root.remove_pv("pvc-1", &token).unwrap();
    state.reserve(&at("pvc-1"), &owner("pvc-1"), false, Durability::Deferred).unwrap();
    root.remove_pv("pvc-1", &token).unwrap();
    assert_empty(dir.path());
}

/// On XFS and ext4, the fsync of the directory then persists all earlier changes.
#[test]
fn the_directory_of_a_volume_is_changed_last() {
    let (dir, root) = root();
    let directory = root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    let mark = dir.path().join(".kube-provisioner/volumes/pvc-1");
    let changed = |path: &Path| fs::metadata(path).map(|stat| (stat.ctime(), stat.ctime_nsec())).unwrap();
    assert!(changed(&directory) >= changed(&mark));
    // The file system's clock ticks every few milliseconds.
    while changed(&mark) <= changed(&directory) {
        fs::set_permissions(&mark, fs::Permissions::from_mode(0o600)).unwrap();
    }
    root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    assert!(changed(&directory) >= changed(&mark), "an earlier attempt has created the directory");
}

#[test]
fn recovers_from_a_mark_that_a_power_cut_left_empty() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let mark = dir.path().join(".kube-provisioner/volumes/pvc-1");
    let cut = |has_directory: bool| {
        root.make("pvc-1", &token).unwrap();
        fs::write(&mark, if has_directory { &b""[..] } else { &[0; 300] }).unwrap();
        if !has_directory {
            fs::remove_dir(dir.path().join("pvc-1")).unwrap();
        }
    };
    for has_directory in [true, false] {
        cut(has_directory);
        assert!(!root.is_marked_for(&at("pvc-1"), &owner("pvc-1")).unwrap());
        root.make("pvc-1", &token).unwrap();
        fs::write(&mark, "").unwrap();
        // Any volume may use the path, because no volume was completely created there.
        root.create(&at("pvc-1"), &owner("pvc-2"), false, &OPEN, None, &token).unwrap();
        root.remove(&at("pvc-1"), &owner("pvc-2"), &token).unwrap();
        assert_empty(dir.path());
        cut(has_directory);
        root.remove_pv("pvc-1", &token).unwrap();
        assert_empty(dir.path());
        cut(has_directory);
        root.move_to_trash(&at("pvc-1"), &owner("pvc-1"), None, serde_json::Value::Null, &token).unwrap();
        assert_empty(dir.path());
    }
    // A directory with data had a complete mark before.
    cut(true);
    fs::write(dir.path().join("pvc-1/data"), "x").unwrap();
    assert!(matches!(root.make("pvc-1", &token), Err(DirectoryError::Damaged { .. })));
    assert!(matches!(root.remove_pv("pvc-1", &token), Err(DirectoryError::Damaged { .. })));
    assert_eq!(fs::read_to_string(dir.path().join("pvc-1/data")).unwrap(), "x");
    // A mark that is damaged in another way does not prove that its directory is unused.
    fs::remove_file(dir.path().join("pvc-1/data")).unwrap();
    fs::write(&mark, "{").unwrap();
    assert!(matches!(root.remove_pv("pvc-1", &token), Err(DirectoryError::Damaged { .. })));
}

/// A mark of an earlier version names no cluster.
#[test]
fn accepts_marks_of_earlier_versions() {
    let (dir, root) = root();
    let (token, before) = (FencingToken::unlimited(), Owner { cluster: None, ..owner("pvc-1") });
    root.create(&at("pvc-1"), &before, false, &OPEN, None, &token).unwrap();
    let mark = fs::read_to_string(dir.path().join(".kube-provisioner/volumes/pvc-1")).unwrap();
    assert!(!mark.contains("cluster") && !mark.contains("retain"), "{mark}");
    root.make("pvc-1", &token).unwrap();
    root.remove_pv("pvc-1", &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn transfers_a_directory_to_the_restored_volume() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let path = root.make("pvc-1", &token).unwrap();
    fs::write(path.join("data"), "x").unwrap();
    let (former, mut restored) = (owner("pvc-1"), owner("pvc-1"));
    restored.claim.as_mut().unwrap().uid = "new".to_owned();
    restored.cluster = Some("cluster-2".to_owned());
    restored.uid = Some("uid of the new volume".to_owned());
    let refused = root.remove(&at("pvc-1"), &restored, &token).unwrap_err().to_string();
    assert!(refused.contains("`adopt --volume pvc-1`"), "{refused}");
    let stranger = root.transfer(&at("pvc-1"), &restored, &former, false);
    assert!(matches!(stranger, Err(DirectoryError::Taken { .. })), "{stranger:?}");
    root.transfer(&at("pvc-1"), &former, &restored, true).unwrap();
    assert!(root.mark_of(&at("pvc-1")).unwrap().unwrap().retain);
    assert!(matches!(root.remove(&at("pvc-1"), &former, &token), Err(DirectoryError::Taken { .. })));
    root.remove(&at("pvc-1"), &restored, &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn marks_record_which_volumes_are_retained() {
    let (_dir, root) = root();
    let token = FencingToken::unlimited();
    for name in ["pvc-1", "pvc-2"] {
        root.make(name, &token).unwrap();
    }
    let other = Owner { cluster: Some("cluster-2".to_owned()), ..owner("pvc-2") };
    let policies = [("pvc-1", owner("pvc-1")), ("pvc-2", other)];
    root.note_volumes(&policies.map(|(name, owner)| (name.to_owned(), (owner, true))).into()).unwrap();
    let retained = |name: &str| root.mark_of(&at(name)).unwrap().unwrap().retain;
    assert_eq!((retained("pvc-1"), retained("pvc-2")), (true, false));
}

/// Simulates an administrator who binds a retained volume to another claim: the PersistentVolume is the same, but its
/// claim is not.
#[test]
fn a_volume_that_is_bound_to_another_claim_keeps_its_directory() {
    let (dir, root) = root();
    let (token, at) = (FencingToken::unlimited(), at("pvc-1"));
    let saved = |claim: &str, uid: &str| {
        let mut owner = Owner { uid: Some(uid.to_owned()), ..owner("pvc-1") };
        owner.claim.as_mut().unwrap().uid = claim.to_owned();
        owner
    };
    let first = saved("uid-of-pvc-1", "volume-uid");
    root.make("pvc-1", &token).unwrap();
    let again = saved("second claim", "volume-uid");
    let unknown = root.resize(&at, &again, 1 << 20).unwrap_err().to_string();
    assert!(unknown.contains("`adopt --volume pvc-1`"), "{unknown}");
    // An unrelated volume is not recorded.
    root.note_volume(&at, &again, false).unwrap();
    assert_eq!(root.mark_of(&at).unwrap().unwrap().volume_uid, None);
    root.note_volume(&at, &first, false).unwrap();
    root.resize(&at, &again, 1 << 20).unwrap();
    assert!(root.is_marked_for(&at, &again).unwrap());
    // A recreated object of this name is another volume, unless it names the claim.
    for stranger in
        [saved("second claim", "another uid"), Owner { cluster: Some("cluster-2".to_owned()), ..again.clone() }]
    {
        assert!(matches!(root.remove(&at, &stranger, &token), Err(DirectoryError::Taken { .. })));
    }
    root.note_volume(&at, &saved("uid-of-pvc-1", "created again"), true).unwrap();
    let mark = root.mark_of(&at).unwrap().unwrap();
    assert_eq!((mark.volume_uid.as_deref(), mark.retain), (Some("created again"), true));
    root.note_volume(&at, &first, false).unwrap();
    root.remove(&at, &again, &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn the_mark_of_an_adopted_kept_directory_no_longer_records_the_deletion() {
    let (_dir, root) = root();
    let path = at("pvc-1");
    root.make("pvc-1", &FencingToken::unlimited()).unwrap();
    root.keep(&path, &owner("pvc-1")).unwrap();
    root.adopt(&path, &owner("pvc-1"), false).unwrap();
    root.note_uid(&path, &Owner { uid: Some("uid".to_owned()), ..owner("pvc-1") }).unwrap();
    assert!(root.mark_of(&path).unwrap().unwrap().kept.is_none());
}

/// Simulates GitOps recreating a claim whose class keeps the data.
#[test]
fn tells_a_recreated_claim_how_to_use_the_kept_data() {
    let (_dir, root) = root();
    let token = FencingToken::unlimited();
    root.create(&at("shop/data"), &owner("pvc-1"), false, &OPEN, None, &token).unwrap();
    root.keep(&at("shop/data"), &owner("pvc-1")).unwrap();
    let again = |namespace: &str| {
        let mut again = owner("pvc-2");
        again.claim.as_mut().unwrap().namespace = namespace.to_owned();
        let error = root.create(&at("shop/data"), &again, false, &OPEN, None, &token).unwrap_err();
        error.for_claim_of(&again).to_string()
    };
    assert!(again("shop").contains("`adopt` with the directory, --claim and --name pvc-1"), "{}", again("shop"));
    assert!(!again("evil").contains("pvc-1"), "{}", again("evil"));
}

/// The log contains all details.
#[test]
fn hides_volumes_of_other_namespaces_from_a_tenant() {
    let (_dir, root) = root();
    let token = FencingToken::unlimited();
    root.create(&at("shared"), &owner("pvc-1"), false, &OPEN, None, &token).unwrap();
    let told = |namespace: &str| {
        let mut other = owner("pvc-2");
        other.claim.as_mut().unwrap().namespace = namespace.to_owned();
        let error = root.create(&at("shared"), &other, false, &OPEN, None, &token).unwrap_err();
        error.for_claim_of(&other).to_string()
    };
    assert!(told("shop").contains("the claim shop/data"), "{}", told("shop"));
    assert_eq!(told("evil"), "\"shared\" is the directory of another volume, and is not changed for this volume");
}
