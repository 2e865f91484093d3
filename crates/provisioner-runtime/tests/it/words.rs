//! Checks that the sources do not mention the objects of this project's controllers: the crate runs any controller.

use std::fs;
use std::path::{Path, PathBuf};

/// Whole words to search for, regardless of case. A word consists of letters, digits and `_`.
const WORDS: &[&str] = &[
    "volume",
    "volumes",
    "claim",
    "claims",
    "claimed",
    "persistentvolume",
    "persistentvolumes",
    "pv",
    "pvs",
    "pvc",
    "pvcs",
    "storageclass",
    "storageclasses",
    "storage",
    "bucket",
    "buckets",
    "provision",
    "provisioner",
    "provisioners",
];

/// The permitted occurrences, and the reason for each.
const ALLOWED: &[(&str, &str)] = &[
    ("kube-provisioner/", "labels and annotations of objects that are stored in clusters"),
    ("\"the provisioner cannot begin", "a text that users see, and the purpose of its random pauses"),
    ("sub_registry_with_prefix(\"provisioner\")", "the prefix of the metrics that users have"),
];

#[test]
fn sources_mention_no_controlled_objects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<PathBuf> = ["src", "examples"].iter().flat_map(|folder| sources(&root.join(folder))).collect();
    assert!(files.len() > 50, "the sources are not where this test looks");
    let texts: Vec<(PathBuf, String)> =
        files.into_iter().map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect();
    let found: Vec<String> = texts.iter().flat_map(|(file, text)| problems(file, text)).collect();
    assert!(found.is_empty(), "the sources mention controlled objects:\n{}", found.join("\n"));
    for (text, reason) in ALLOWED {
        assert!(texts.iter().any(|(_, source)| source.contains(text)), "{text:?} ({reason}) is not needed any more");
    }
}

#[test]
fn finds_words_regardless_of_case_and_neighbours() {
    let found = |line: &str| problems(Path::new("a.rs"), line).len();
    assert_eq!(found("/// A PVC, and its StorageClass: \"storage\"."), 3);
    assert_eq!(found("use provisioner_runtime::Queue; // reclaim, volumetric"), 0);
    assert_eq!(found("label(\"kube-provisioner/holder\"); // of the provisioner"), 1);
}

/// Returns `FILE:LINE: WORD` for each word found.
fn problems(file: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = ALLOWED.iter().fold(line.to_owned(), |line, (allowed, _)| line.replace(allowed, " "));
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let bad = words.filter(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()));
        problems.extend(bad.map(|word| format!("{}:{number}: {word}", file.display())));
    }
    problems
}

/// Returns the Rust files below a folder, in order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let below = |entry: PathBuf| {
        if entry.is_dir() {
            sources(&entry)
        } else {
            Vec::from_iter(entry.extension().is_some_and(|kind| kind == "rs").then_some(entry))
        }
    };
    entries.into_iter().flat_map(below).collect()
}
