//! Every rule in `docs/book/pages/reference/behaviour.md` has a test below a comment such as `// Rules: S1, S2.`

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
    assert!(missing.is_empty(), "no test has these ids in the comment above it: {missing:?}");
    let unknown: Vec<_> = tested.difference(&rules).collect();
    assert!(
        unknown.is_empty(),
        "tests have these ids, and docs/book/pages/reference/behaviour.md does not: {unknown:?}"
    );
}

fn ids_of_row(row: &str) -> Vec<String> {
    let first = row.split('|').next().unwrap_or_default();
    first.split_whitespace().filter(|word| is_id(word)).map(str::to_owned).collect()
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
            ids.extend(ids_of_tests(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Returns the ids in comments such as `// Rules: S1, S2.`, each of which must be above a test.
fn ids_of_tests(source: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(rules) = line.strip_prefix("// Rules: ") else { continue };
        // Only doc comments may come between the ids and the test.
        let next = lines.find(|line| !line.starts_with("///")).unwrap_or_default();
        let is_test = next.starts_with("#[test]") || next.starts_with("#[tokio::test");
        assert!(is_test, "{line:?} must be above a test, not above {next:?}");
        ids.extend(rules.trim_end_matches('.').split(", ").map(str::to_owned));
    }
    ids
}
