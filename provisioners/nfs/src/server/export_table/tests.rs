//! Tests of the ids and names of exports on disk.

use super::*;

fn path(text: &str) -> VolumePath {
    text.to_owned().try_into().unwrap()
}

fn reserve(table: &ExportTable, text: &str) -> u16 {
    table.reserve(&path(text), Access::default(), None, None).unwrap().id
}

#[test]
fn ids_stay_with_their_paths_and_are_not_reused() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    assert_eq!((reserve(&table, "pvc-1"), reserve(&table, "shop/data")), (1, 2));
    // A later process reads the same table.
    let table = ExportTable::new(root.path());
    assert_eq!(reserve(&table, "shop/data"), 2);
    let first = table.find(&path("pvc-1")).unwrap().unwrap();
    table.release(&first).unwrap();
    table.release(&first).unwrap();
    assert_eq!(reserve(&table, "pvc-3"), 3, "clients may still use the released id");
    assert_eq!(reserve(&table, "pvc-1"), 4);
}

#[test]
fn exports_volumes_with_the_longest_names() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    // The longest path consists of a namespace and a claim. The others differ only at the end, and are close to the
    // limit.
    let longest = format!("{}/{}", "n".repeat(63), "c".repeat(253));
    let others = [format!("{}/{}d", "n".repeat(63), "c".repeat(252)), "a".repeat(249), "b".repeat(250)];
    for (id, text) in (65_530..).zip([&longest].into_iter().chain(&others)) {
        table.reserve(&path(text), Access { root_squash: true }, Some(id), None).unwrap();
    }
    let table = ExportTable::new(root.path());
    let entries = table.entries().unwrap();
    assert!(entries.damaged.is_empty(), "{:?}", entries.damaged);
    let paths: Vec<_> = entries.exports.iter().map(|export| export.path.as_str()).collect();
    assert_eq!(paths, [&[longest.clone()][..], &others].concat());
    assert_eq!(reserve(&table, &longest), 65_530);
    let export = table.find(&path(&longest)).unwrap().unwrap();
    assert!(export.access.root_squash);
    table.release(&export).unwrap();
    assert_eq!((table.find(&path(&longest)).unwrap(), table.count().unwrap()), (None, 3));
}

#[test]
fn ids_restart_after_the_largest_one() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    assert_eq!(reserve(&table, "pvc-1"), 1);
    fs::write(table.dir.join(NEXT), "65535").unwrap();
    assert_eq!((reserve(&table, "pvc-2"), reserve(&table, "pvc-3")), (u16::MAX, 2));
}

#[test]
fn the_limit_includes_damaged_exports() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    reserve(&table, "pvc-1");
    fs::write(table.dir.join("2@pvc-2"), "{").unwrap();
    assert_eq!(reserve(&table, "pvc-3"), 3);
    assert_eq!(table.entries().unwrap().damaged.len(), 1);
    let full = table.reserve(&path("pvc-4"), Access::default(), None, Some(3));
    assert!(matches!(full, Err(ExportTableError::Full(3))), "{full:?}");
    // A path keeps its export, and does not receive a second one while the first cannot be read.
    assert!(table.reserve(&path("pvc-1"), Access::default(), None, Some(3)).is_ok());
    let damaged = table.reserve(&path("pvc-2"), Access::default(), None, None);
    assert!(matches!(damaged, Err(ExportTableError::Damaged(_))), "{damaged:?}");
}

#[test]
fn keeps_the_id_of_another_provisioner_if_it_is_free() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    assert_eq!(table.reserve(&path("pvc-9"), Access::default(), Some(1), None).unwrap().id, 1);
    assert_eq!(table.reserve(&path("b"), Access::default(), Some(1), None).unwrap().id, 2, "the id is in use");
    assert_eq!(reserve(&table, "pvc-1"), 3);
}

#[test]
fn reserves_kept_ids_for_their_paths() {
    let root = tempfile::tempdir().unwrap();
    let table = ExportTable::new(root.path());
    table.reserve_ids([(1, &path("former-1")), (3, &path("former-3"))].into_iter()).unwrap();
    let table = ExportTable::new(root.path());
    assert_eq!((reserve(&table, "pvc-1"), reserve(&table, "pvc-2")), (2, 4));
    assert_eq!(table.reserve(&path("pvc-3"), Access::default(), Some(3), None).unwrap().id, 5);
    assert_eq!(table.reserve(&path("former-1"), Access::default(), Some(1), None).unwrap().id, 1);
    table.reserve_ids([].into_iter()).unwrap();
    assert_eq!(table.reserve(&path("pvc-4"), Access::default(), Some(3), None).unwrap().id, 3);
}
