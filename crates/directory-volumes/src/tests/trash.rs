//! Volumes that are kept for some time after their deletion.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn filled(root: &Root, path: &str, volume: &str) {
    let made = root.create(&at(path), &owner(volume), &OPEN, None, &FencingToken::unlimited()).unwrap();
    fs::write(made.join("data"), volume).unwrap();
}

fn discard(root: &Root, path: &str, volume: &str) {
    let object = json!({"metadata": {"name": volume}});
    root.move_to_trash(&at(path), &owner(volume), Some(HOUR), object, &FencingToken::unlimited()).unwrap();
}

#[test]
fn a_volume_waits_in_the_trash_for_its_time() {
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
    root.purge_expired(soon, &FencingToken::unlimited()).unwrap();
    assert_eq!(root.trash().unwrap().len(), 1);
    root.purge_expired(later, &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn a_volume_comes_back_from_the_trash() {
    let (dir, root) = root();
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    root.restore("pvc-1").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("shop/data/data")).unwrap(), "pvc-1");
    assert_eq!(root.trash().unwrap().len(), 0);
    assert!(matches!(root.restore("pvc-1"), Err(DirectoryError::NotThere { .. })));
    root.remove(&at("shop/data"), &owner("pvc-1"), &FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn what_took_its_place_is_not_replaced() {
    let (dir, root) = root();
    filled(&root, "shop/data", "pvc-1");
    discard(&root, "shop/data", "pvc-1");
    filled(&root, "shop/data", "pvc-2");
    assert!(matches!(root.restore("pvc-1"), Err(DirectoryError::Taken { .. })));
    discard(&root, "shop/data", "pvc-2");
    fs::create_dir_all(dir.path().join("shop/data")).unwrap();
    assert!(matches!(root.restore("pvc-1"), Err(DirectoryError::NotOurs { .. })));
    assert!(root.mark_of(&at("shop/data")).unwrap().is_none());
    fs::remove_dir(dir.path().join("shop/data")).unwrap();
    root.restore("pvc-1").unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("shop/data/data")).unwrap(), "pvc-1");
    assert_eq!(root.trash().unwrap().len(), 1);
}

#[test]
fn names_that_lead_out_of_the_trash_are_nobodys() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    for name in ["", ".", "..", "../volumes", "../../pvc-1", "/etc", "a/b", "pvc-1", "a\0b", "pvc-1/"] {
        assert!(matches!(root.restore(name), Err(DirectoryError::NotThere { .. })), "{name:?}");
        let purged = root.purge(name, &FencingToken::unlimited());
        assert!(matches!(purged, Err(DirectoryError::NotThere { .. })), "{name:?}");
    }
    assert!(dir.path().join("pvc-1/data").exists());
}

#[test]
fn a_purge_that_was_cut_off_is_finished_later() {
    let (dir, root) = root();
    filled(&root, "pvc-1", "pvc-1");
    discard(&root, "pvc-1", "pvc-1");
    let none = FencingToken::as_long_as(|| false);
    assert!(matches!(root.purge("pvc-1", &none), Err(DirectoryError::Interrupted(_))));
    root.finish_removals(&FencingToken::unlimited()).unwrap();
    assert_empty(dir.path());
}

#[test]
fn a_damaged_entry_hides_no_other() {
    let (dir, root) = root();
    for volume in ["pvc-1", "pvc-2"] {
        filled(&root, volume, volume);
        discard(&root, volume, volume);
    }
    fs::write(dir.path().join(".kube-provisioner/trash/pvc-1/record"), "{").unwrap();
    let later = Timestamp::now() + 2 * HOUR;
    assert!(matches!(root.purge_expired(later, &FencingToken::unlimited()), Err(DirectoryError::Damaged { .. })));
    assert_eq!(fs::read_dir(dir.path().join(".kube-provisioner/trash")).unwrap().count(), 1);
}
