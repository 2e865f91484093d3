//! Checks statements about files in CONTRIBUTING.md and ARCHITECTURE.md.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn where_is_table_names_existing_places() {
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
fn architecture_names_existing_files_and_all_crates() {
    let text = read("ARCHITECTURE.md");
    let controllers = root().join("crates/kube-provisioner/src/controller");
    let bases = [root(), controllers.join("volume"), controllers.join("bucket"), controllers];
    let prose = text.split("```").step_by(2);
    let quoted: Vec<&str> =
        prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)).filter(|name| !name.contains(' ')).collect();
    let files: Vec<&&str> = quoted.iter().filter(|name| name.ends_with(".rs")).collect();
    assert!(files.len() > 20, "{files:?}");
    for name in files {
        assert!(
            bases.iter().any(|base| base.join(name).exists()),
            "ARCHITECTURE.md names {name}, which does not exist"
        );
    }
    let folders = ["crates/", "provisioners/", "e2e/", "testbed/", "docs/", "xtask/"];
    for name in quoted.iter().filter(|name| folders.iter().any(|folder| name.starts_with(folder))) {
        assert!(root().join(name).exists(), "ARCHITECTURE.md names {name}, which does not exist");
    }
    for folder in ["crates", "provisioners"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = format!("`{folder}/{}`", entry.unwrap().file_name().display());
            assert!(text.contains(&name), "ARCHITECTURE.md does not name {name}");
        }
    }
}

/// A controller runs on one thread, which also renews its Lease.
#[test]
fn examples_do_not_block_the_controllers_thread() {
    let library =
        ["README.md", "src/lib.rs", "src/provisioner.rs"].map(|file| format!("crates/kube-provisioner/{file}"));
    for page in library.into_iter().chain(["README.md".to_owned()]) {
        assert!(!read(&page).contains("std::fs::"), "{page}: use tokio::fs in methods of a provisioner");
    }
}

/// A tag can be moved to another commit, but a commit cannot change.
#[test]
fn workflow_actions_are_pinned_to_commits() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join(".github/workflows")).unwrap() {
        let workflow = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for action in workflow.lines().filter_map(|line| line.split_once("uses: ")).map(|(_, action)| action) {
            let (commit, version) =
                action.split_once('@').and_then(|(_, pin)| pin.split_once(" # v")).unwrap_or_default();
            assert!(
                commit.len() == 40 && !version.is_empty(),
                "{action}: name the commit, and the version in a comment"
            );
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn every_source_file_states_its_purpose() {
    let mut unstated = Vec::new();
    for folder in ["crates", "provisioners", "simulation", "testbed/src", "xtask/src", "bench"] {
        purposes_below(&root().join(folder), &mut unstated);
    }
    assert!(unstated.is_empty(), "these files do not begin with `//!`: {unstated:?}");
}

/// Collects the source files without a description. Tests and examples do not need one.
fn purposes_below(folder: &Path, unstated: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if !["tests", "examples", "target", "generated"].iter().any(|skipped| name == *skipped) {
                purposes_below(&path, unstated);
            }
        } else if name != "tests.rs" && path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            if !["//!", "#![doc"].iter().any(|purpose| text.starts_with(purpose)) {
                unstated.push(path);
            }
        }
    }
}
