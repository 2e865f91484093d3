//! Volumes that are kept for some time after their deletion.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn filled(root: &Root, path: &str, volume: &str) {
    let made = root.create(&at(path), &owner(volume), false, &OPEN, None, &FencingToken::unlimited()).unwrap();
    fs::write(made.join("data"), volume).unwrap();
}

fn discard(root: &Root, path: &str, volume: &str) {
    let object = json!({"metadata": {"name": volume}});
    root.move_to_trash(&at(path), &owner(volume), Some(HOUR), object, &FencingToken::unlimited()).unwrap();
}

#[test]
fn keeps_a_volume_in_the_trash_until_it_expires() {
    let (dir, root) = root();
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    assert_eq!(entries(dir.path()), 0, "the name is free for the next claim");
    let trash = root.trash().unwrap();
    let [Ok(discarded)] = &trash[..] else { panic!("{trash:?}") };
    assert_eq!((discarded.path.as_str(), &discarded.object["metadata"]["name"]), ("shop/data", &json!("pvc-1")));
    let (soon, later) = (Timestamp::now(), Timestamp::now() + 2 * HOUR);
    assert!(!discarded.has_expired(soon) && discarded.has_expired(later));
    root.purge_expired(soon, Some(HERE), &FencingToken::unlimited()).unwrap();
    assert_eq!(root.trash().unwrap().len(), 1);
    root.purge_expired(later, Some(HERE), &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

/// A purge may use a list that is hours old, because it removes other volumes first.
#[test]
fn a_second_deletion_starts_the_retention_again() {
    let (_dir, root) = root();
    let token = FencingToken::unlimited();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let listed = root.trash().unwrap().remove(0).unwrap();
    root.restore("pvc-1", Some(HERE)).unwrap();
    root.end_restore("pvc-1").unwrap();
    discard(&root, "pvc-1", "pvc-1");
    let purged = root.purge_deleted_at(listed.deleted, "pvc-1", &token);
    assert!(matches!(purged, Err(DirectoryError::NotThere { .. })), "{purged:?}");
    let again = root.trash().unwrap().remove(0).unwrap();
    assert!(again.deleted > listed.deleted);
    root.purge_deleted_at(again.deleted, "pvc-1", &token).unwrap();
    assert!(root.trash().unwrap().is_empty());
}

#[test]
fn an_interrupted_restore_does_not_prevent_a_later_one() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    for _ in 0..2 {
        discard(&root, "pvc-1", "pvc-1");
        root.restore("pvc-1", Some(HERE)).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("pvc-1/data")).unwrap(), "pvc-1");
    }
}

#[test]
fn restores_a_volume_from_the_trash() {
    let (dir, root) = root();
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    root.restore("pvc-1", Some(HERE)).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("shop/data/data")).unwrap(), "pvc-1");
    assert_eq!((root.trash().unwrap().len(), root.restoring().unwrap().len()), (0, 1));
    // Until the volume exists, the restore can be repeated, and no other operation can use the entry.
    root.restore("pvc-1", Some(HERE)).unwrap();
    let purged = root.purge("pvc-1", &FencingToken::unlimited());
    assert!(matches!(purged, Err(DirectoryError::NotThere { .. })), "{purged:?}");
    root.end_restore("pvc-1").unwrap();
    assert!(matches!(root.restore("pvc-1", Some(HERE)), Err(DirectoryError::NotThere { .. })));
    root.remove(&at("shop/data"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn restore_does_not_replace_an_existing_directory() {
    let (dir, root) = root();
    filled(&root, "shop/other", "pvc-3");
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    filled(&root, "shop/data", "pvc-2");
    assert!(matches!(root.restore("pvc-1", Some(HERE)), Err(DirectoryError::Taken { .. })));
    discard(&root, "shop/data", "pvc-2");
    fs::create_dir_all(dir.path().join("shop/data")).unwrap();
    assert!(matches!(root.restore("pvc-1", Some(HERE)), Err(DirectoryError::NotOurs { .. })));
    assert!(root.mark_of(&at("shop/data")).unwrap().is_none());
    fs::remove_dir(dir.path().join("shop/data")).unwrap();
    root.restore("pvc-1", Some(HERE)).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("shop/data/data")).unwrap(), "pvc-1");
    assert_eq!(root.trash().unwrap().len(), 1);
}

#[test]
fn refuses_names_that_lead_out_of_the_trash() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    for name in ["", ".", "..", "../volumes", "../../pvc-1", "/etc", "a/b", "pvc-1", "a\0b", "pvc-1/"] {
        assert!(matches!(root.restore(name, Some(HERE)), Err(DirectoryError::NotThere { .. })), "{name:?}");
        let purged = root.purge(name, &FencingToken::unlimited());
        assert!(matches!(purged, Err(DirectoryError::NotThere { .. })), "{name:?}");
    }
    assert!(dir.path().join("pvc-1/data").exists());
}

#[test]
fn an_interrupted_purge_is_finished_later() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let none = FencingToken::valid_while(|| false);
    assert!(matches!(root.purge("pvc-1", &none), Err(DirectoryError::Interrupted(_))));
    root.finish_removals(&FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn purges_the_other_entries_despite_a_damaged_one() {
    let (dir, root) = root();
    for volume in ["pvc-1", "pvc-2"] {
        filled(&root, volume, volume);
        discard(&root, volume, volume);
    }
    fs::write(dir.path().join(".kube-provisioner/trash/pvc-1/record"), "{").unwrap();
    let later = Timestamp::now() + 2 * HOUR;
    assert!(matches!(
        root.purge_expired(later, Some(HERE), &FencingToken::unlimited()),
        Err(DirectoryError::Damaged { .. })
    ));
    assert_eq!(fs::read_dir(dir.path().join(".kube-provisioner/trash")).unwrap().count(), 1);
}

#[test]
fn purge_does_not_continue_a_later_removal() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let own = dir.path().join(".kube-provisioner");
    fs::rename(own.join("trash/pvc-1"), own.join("deleting/pvc-1")).unwrap();
    let begun = root.purgeable("pvc-1").unwrap();
    let earlier = root.purge_deleted_at(begun.deleted - HOUR, "pvc-1", &token);
    assert!(matches!(earlier, Err(DirectoryError::NotThere { .. })), "{earlier:?}");
    assert_eq!(root.deleting().unwrap().len(), 1);
    root.purge_deleted_at(begun.deleted, "pvc-1", &token).unwrap();
    assert_empty(dir.path());
}

/// Both operations either take the whole entry, or report that it does not exist.
#[test]
fn restore_and_purge_never_both_succeed() {
    let (dir, root) = root();
    let (mut restored, mut purged) = (0, 0);
    for round in 0..300 {
        filled(&root, "pvc-1", "pvc-1");
        discard(&root, "pvc-1", "pvc-1");
        let (brought, gone) = std::thread::scope(|scope| {
            let purge = scope.spawn(|| match round % 2 {
                0 => root.purge("pvc-1", &FencingToken::unlimited()),
                _ => root.purge_expired(Timestamp::now() + 2 * HOUR, Some(HERE), &FencingToken::unlimited()),
            });
            (root.restore("pvc-1", Some(HERE)), purge.join().unwrap())
        });
        let is_there = dir.path().join("pvc-1/data").exists();
        assert_eq!(brought.is_ok(), is_there, "{brought:?} {gone:?}");
        assert_eq!(root.mark_of(&at("pvc-1")).unwrap().is_some(), is_there);
        if is_there {
            restored += 1;
            root.end_restore("pvc-1").unwrap();
            root.remove(&at("pvc-1"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
        } else {
            purged += 1;
            gone.unwrap();
        }
        assert_empty(dir.path());
    }
    assert!(restored + purged == 300, "{restored} {purged}");
}

#[test]
fn undo_restore_returns_the_entry_to_the_trash() {
    let (dir, root) = root();
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    let before = root.trash().unwrap().remove(0).unwrap();
    let restored = root.restore("pvc-1", Some(HERE)).unwrap();
    root.undo_restore(&restored).unwrap();
    assert_eq!((entries(dir.path()), root.trash().unwrap().remove(0).unwrap()), (0, before));
    root.restore("pvc-1", Some(HERE)).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("shop/data/data")).unwrap(), "pvc-1");
}

/// A process may have ended after it took the entry, or after it moved the data.
#[test]
fn continues_an_interrupted_restore() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let own = dir.path().join(".kube-provisioner");
    fs::rename(own.join("trash/pvc-1"), own.join("restoring/pvc-1")).unwrap();
    root.purge_expired(Timestamp::now() + 2 * HOUR, Some(HERE), &FencingToken::unlimited()).unwrap();
    root.restore("pvc-1", Some(HERE)).unwrap();
    root.restore("pvc-1", Some(HERE)).unwrap();
    root.end_restore("pvc-1").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("pvc-1/data")).unwrap(), "pvc-1");
    assert_eq!(fs::read_dir(own.join("restoring")).unwrap().count(), 0);
}

#[test]
fn refuses_to_restore_an_entry_without_data() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    fs::remove_dir_all(dir.path().join(".kube-provisioner/trash/pvc-1/data")).unwrap();
    assert!(matches!(root.restore("pvc-1", Some(HERE)), Err(DirectoryError::NotThere { .. })));
    assert!(root.mark_of(&at("pvc-1")).unwrap().is_none() && !dir.path().join("pvc-1").exists());
}

#[test]
fn data_does_not_expire_while_the_clock_is_implausible() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    filled(&root, "pvc-1", "pvc-1");
    root.move_to_trash(&at("pvc-1"), &owner("pvc-1"), Some(Duration::ZERO), json!({}), &token).unwrap();
    let set = |key: &str, time: Timestamp| {
        let record = dir.path().join(".kube-provisioner/trash/pvc-1/record");
        let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        value[key] = json!(time);
        fs::write(&record, value.to_string()).unwrap();
    };
    let left = || root.trash().unwrap().len();
    let now = Timestamp::now();
    // The clock's battery is empty. The entry appears to be older than that.
    let reset: Timestamp = "1970-01-01T00:10:00Z".parse().unwrap();
    set("deleted", "1970-01-01T00:00:00Z".parse().unwrap());
    set("expires", "1970-01-01T00:01:00Z".parse().unwrap());
    assert!(matches!(root.purge_expired(reset, Some(HERE), &token), Err(DirectoryError::Clock { .. })));
    // The entry is dated in the future.
    set("deleted", now + HOUR);
    root.purge_expired(now, Some(HERE), &token).unwrap();
    assert_eq!(left(), 1);
    // Another volume was created later than now.
    set("deleted", now - HOUR);
    filled(&root, "pvc-2", "pvc-2");
    let before = now - HOUR / 2;
    let error = root.purge_expired(before, Some(HERE), &token).unwrap_err();
    assert!(error.to_string().contains("pvc-2 was created at"), "{error}");
    assert!(error.to_string().contains("correct the time in .kube-provisioner/volumes/pvc-2"), "{error}");
    assert_eq!(left(), 1);
    root.purge_expired(Timestamp::now(), Some(HERE), &token).unwrap();
    assert_eq!(left(), 0);
}

#[test]
fn starts_the_retention_when_the_clock_becomes_plausible() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    filled(&root, "pvc-1", "pvc-1");
    let mut leaving = Discarded::new(root.mark_of(&at("pvc-1")).unwrap().unwrap(), at("pvc-1"));
    leaving.deleted = "1970-01-01T00:10:00Z".parse().unwrap();
    (leaving.expires, leaving.keep) = clock::expiry(&leaving, Some(HOUR));
    assert_eq!((leaving.expires, leaving.keep), (None, Some(3600)));
    root.discard(&root.enter().unwrap(), state::TRASH, &leaving).unwrap();
    let now = Timestamp::now();
    root.purge_expired(now, Some(HERE), &token).unwrap();
    let expires = root.trash().unwrap().remove(0).unwrap().expires;
    assert_eq!(expires, Some(now + HOUR));
    root.purge_expired(now + HOUR, Some(HERE), &token).unwrap();
    assert_empty(dir.path());
}

#[test]
fn does_not_purge_entries_of_another_cluster() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let later = Timestamp::now() + 2 * HOUR;
    root.purge_expired(later, Some("cluster-2"), &token).unwrap();
    assert_eq!(root.trash().unwrap().len(), 1);
    root.purge_expired(later, Some(HERE), &token).unwrap();
    assert_empty(dir.path());
}

/// Two clusters may have volumes with the same name.
#[test]
fn refuses_a_second_entry_with_the_same_name() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    for path in ["one", "two"] {
        root.create(&at(path), &owner("pvc-1"), false, &OPEN, None, &token).unwrap();
    }
    discard(&root, "one", "pvc-1");
    let second = root.move_to_trash(&at("two"), &owner("pvc-1"), Some(HOUR), json!({}), &token);
    assert!(matches!(second, Err(DirectoryError::Busy { .. })), "{second:?}");
    assert!(dir.path().join("two").exists());
    let [Ok(entry)] = &root.trash().unwrap()[..] else { panic!() };
    assert_eq!(entry.path, at("one"));
}

/// The retention starts when the volume is deleted.
#[test]
fn replaces_the_record_of_an_interrupted_call() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    let entry = dir.path().join(".kube-provisioner/trash/pvc-1");
    fs::create_dir(&entry).unwrap();
    let mut begun = Discarded::new(root.mark_of(&at("pvc-1")).unwrap().unwrap(), at("pvc-1"));
    begun.deleted -= 48 * HOUR;
    begun.expires = Some(begun.deleted + HOUR);
    fs::write(entry.join("record"), serde_json::to_vec(&begun).unwrap()).unwrap();
    discard(&root, "pvc-1", "pvc-1");
    assert!(!root.trash().unwrap().remove(0).unwrap().has_expired(Timestamp::now()));
}

/// Data without an expiry stays, and so does data of another cluster.
#[test]
fn removes_the_oldest_entries_that_exceed_the_limits() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let large = |volume: &str, owner: &Owner, keep| {
        let path = root.create(&at(volume), owner, false, &OPEN, None, &token).unwrap();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/file"), vec![1; 1 << 20]).unwrap();
        root.move_to_trash(&at(volume), owner, keep, json!({}), &token).unwrap();
    };
    large("kept", &owner("kept"), None);
    large("other", &Owner { cluster: Some("cluster-2".to_owned()), ..owner("other") }, Some(HOUR));
    for volume in ["pvc-3", "pvc-1", "pvc-2"] {
        large(volume, &owner(volume), Some(HOUR));
    }
    let purged = |size: Option<u64>, free| {
        let limits = TrashLimits { trash_max_size: size, trash_min_free_percent: free, ..TrashLimits::default() };
        root.purge_excess(&limits, Some(HERE), &token).unwrap();
        let left = root.trash().unwrap().into_iter().map(|entry| entry.unwrap());
        left.map(|entry| (entry.mark.owner.volume, entry.bytes.is_some())).collect::<Vec<_>>()
    };
    let left = |names: &[(&str, bool)]| names.iter().map(|(name, is)| ((*name).to_owned(), *is)).collect::<Vec<_>>();
    let all = [("kept", false), ("other", false), ("pvc-1", false), ("pvc-2", false), ("pvc-3", false)];
    assert_eq!(purged(None, 0), left(&all));
    let measured = all.map(|(name, _)| (name, name.starts_with("pvc")));
    assert_eq!(purged(Some(10 << 20), 0), left(&measured));
    assert_eq!(purged(Some(5 << 19), 0), left(&measured[..4]));
    assert_eq!(purged(Some(5 << 19), 0), left(&measured[..4]), "there is room now");
    // A disk is never entirely free.
    assert_eq!(purged(None, 100), left(&measured[..2]));
    assert!(!dir.path().join(".kube-provisioner/deleting/pvc-1").exists());
}

/// A power cut may bring back the mark of a volume that was moved, because its removal is not synced.
#[test]
fn removes_a_mark_that_reappeared_after_a_power_cut() {
    let (dir, root) = root();
    let token = FencingToken::unlimited();
    let mark = |path: &str| dir.path().join(".kube-provisioner/volumes").join(path);
    for volume in ["pvc-1", "pvc-2", "pvc-3"] {
        root.create(&at(&format!("shop/{volume}")), &owner(volume), false, &OPEN, None, &token).unwrap();
        fs::copy(mark(&format!("shop/{volume}")), dir.path().join(volume)).unwrap();
    }
    let came_back = |volume: &str| {
        fs::create_dir_all(mark("shop")).unwrap();
        fs::rename(dir.path().join(volume), mark(&format!("shop/{volume}"))).unwrap();
    };
    root.move_to_trash(&at("shop/pvc-1"), &owner("pvc-1"), None, serde_json::Value::Null, &token).unwrap();
    came_back("pvc-1");
    // The removal of pvc-2 was interrupted.
    root.move_to_trash(&at("shop/pvc-2"), &owner("pvc-2"), None, serde_json::Value::Null, &token).unwrap();
    came_back("pvc-2");
    let own = dir.path().join(".kube-provisioner");
    fs::rename(own.join("trash/pvc-2"), own.join("deleting/pvc-2")).unwrap();
    // The path of pvc-3 now belongs to another volume.
    root.move_to_trash(&at("shop/pvc-3"), &owner("pvc-3"), None, serde_json::Value::Null, &token).unwrap();
    let next = root.create(&at("shop/pvc-3"), &owner("pvc-4"), false, &OPEN, None, &token).unwrap();
    root.finish_removals(&token).unwrap();
    let marked: Vec<_> = root.survey().unwrap().marked.into_iter().map(|found| found.mark.owner.volume).collect();
    assert_eq!((marked, next.exists(), root.trash().unwrap().len()), (vec!["pvc-4".to_owned()], true, 2));
    assert_eq!(entries(&own.join("deleting")), 0);
}
