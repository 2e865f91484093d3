//! Every rule in `docs/book/pages/reference/behaviour.md` has a test with its id in the name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_rule_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/book/pages/reference/behaviour.md")).unwrap();
    let ids = page.lines().filter_map(|line| line.strip_prefix("| ")).flat_map(ids_of_row);
    let mut rules = BTreeSet::new();
    let twice: Vec<_> = ids.filter(|id| !rules.insert(id.clone())).collect();
    assert!(twice.is_empty(), "two rows have these ids: {twice:?}");
    assert!(rules.len() > 130, "only {} rules were found in the page", rules.len());
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    assert!(
        readme.contains(&format!("each with at least one test | {} |", rules.len())),
        "README.md: {} rules",
        rules.len()
    );
    let (_, shared) = page.split_once("## Rules that all three controllers have").unwrap();
    let cells = shared.lines().filter(|line| line.starts_with("| ")).flat_map(|row| row.split('|').skip(2));
    let named: BTreeSet<_> = cells.flat_map(ids_of_row).collect();
    assert!(named.len() > 20 && named.is_subset(&rules), "no rules: {:?}", named.difference(&rules));
    let mut tested = BTreeSet::new();
    for folder in ["crates", "e2e", "provisioners", "testbed"] {
        tests_below(&root.join(folder), &mut tested);
    }
    let missing: Vec<_> = rules.difference(&tested).collect();
    assert!(missing.is_empty(), "no test has these ids in its name: {missing:?}");
    let unknown: Vec<_> = tested.difference(&rules).collect();
    assert!(
        unknown.is_empty(),
        "these ids stand in tests but not in docs/book/pages/reference/behaviour.md: {unknown:?}"
    );
}

fn ids_of_row(row: &str) -> Vec<String> {
    let first = row.split('|').next().unwrap_or_default();
    first.split_whitespace().filter(|word| is_id(word)).map(str::to_lowercase).collect()
}

/// Returns whether the word is a capital letter followed by a number.
fn is_id(word: &str) -> bool {
    let digits = word.strip_prefix(|letter: char| letter.is_ascii_uppercase());
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn tests_below(folder: &Path, ids: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, ids);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            ids.extend(source.split("#[test]").chain(source.split("#[tokio::test")).skip(1).flat_map(ids_of_test));
        }
    }
}

/// Returns the IDs at the beginning of the first function's name.
fn ids_of_test(source: &str) -> Vec<String> {
    let Some((before, rest)) = source.split_once("fn ") else { return Vec::new() };
    if before.lines().count() > 8 {
        return Vec::new();
    }
    let name = rest.split('(').next().unwrap_or_default();
    // Tests of bucket provisioners begin with the name of their object store.
    let name = ["ceph_", "gcs_", "aws_", "versity_", "garage_", "seaweedfs_"]
        .iter()
        .find_map(|store| name.strip_prefix(store))
        .unwrap_or(name);
    name.split('_').take_while(|word| is_id(&word.to_uppercase())).map(str::to_owned).collect()
}
