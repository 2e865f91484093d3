//! What CONTRIBUTING.md and ARCHITECTURE.md say about files is true.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn each_question_of_a_newcomer_leads_to_its_answer() {
    let text = read("CONTRIBUTING.md");
    let section = text.split("## Where is").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.contains("| `"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let (file, place) = (row[2].trim_matches('`'), row[3].trim_matches('`'));
        assert!(read(file).lines().any(|line| line.contains(place)), "{file} has no {place:?}");
    }
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    let mut folder = String::new();
    let mut named = 0;
    for line in text.lines() {
        if line.starts_with("| file in `") {
            folder = line.split('`').nth(1).unwrap().to_owned();
            let known =
                ["crates", "."].into_iter().map(|base| root().join(base).join(&folder)).find(|path| path.is_dir());
            folder = known.unwrap_or_else(|| panic!("there is no folder {folder}")).display().to_string();
        } else if line.starts_with("| elsewhere") {
            folder = root().join("crates/kube-provisioner/src").display().to_string();
        } else if line.is_empty() {
            folder.clear();
        } else if let (false, Some(cell)) = (folder.is_empty(), line.split('|').nth(1)) {
            // `controller/term.rs`, `adoption.rs`: the second one is beside the first.
            let mut beside = String::new();
            for name in cell.split('`').skip(1).step_by(2) {
                let paths = [format!("{folder}/{name}"), format!("{folder}/{beside}{name}")];
                assert!(
                    paths.iter().any(|path| Path::new(path).exists()),
                    "ARCHITECTURE.md names {name}, which is not in {folder}"
                );
                beside = name.rsplit_once('/').map(|(above, _)| format!("{above}/")).unwrap_or(beside);
                named += 1;
            }
        }
    }
    assert!(named > 50, "{named}");
}
