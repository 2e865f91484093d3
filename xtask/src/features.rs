//! Checks that the workspace's commands compile each third-party crate once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::build::{plain_cargo, workspace_root};

/// The commands of the README, of CI, and of this program.
const COMMANDS: [&[&str]; 7] = [
    &["build", "--package", "xtask", "--no-default-features", "--bin", "xtask"],
    &["build", "--package", "workspace-hack", "--package", "hostpath-provisioner", "--bin", "hostpath-provisioner"],
    &["test"],
    &["test", "--workspace", "--exclude", "e2e"],
    &["test", "--workspace", "--test", "e2e"],
    &["clippy", "--workspace", "--all-targets"],
    &["doc", "--workspace", "--no-deps"],
];

/// The crates that one command compiles, with their features.
fn units(command: &[&str]) -> Vec<(String, String)> {
    let mut cargo = plain_cargo();
    cargo.current_dir(workspace_root());
    // Clippy compiles the same units as `check`, and has no unit graph of its own.
    cargo.args(command.iter().map(|word| if *word == "clippy" { "check" } else { word }));
    cargo.args(["--locked", "--offline", "--unit-graph", "-Zunstable-options"]).env("RUSTC_BOOTSTRAP", "1");
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let graph: Value = serde_json::from_slice(&output.stdout).unwrap();
    let units = graph["units"].as_array().unwrap().iter();
    let third_party = units.filter(|unit| unit["pkg_id"].as_str().unwrap().starts_with("registry+"));
    let unit = |unit: &Value| {
        let what = [&unit["pkg_id"], &unit["target"]["kind"][0], &unit["mode"]];
        (what.map(|text| text.as_str().unwrap()).join(" "), unit["features"].to_string())
    };
    third_party.map(unit).collect()
}

#[test]
fn commands_compile_each_third_party_crate_with_one_set_of_features() {
    let mut features: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for command in COMMANDS {
        let units = units(command);
        assert!(units.len() > 100, "{command:?} compiles only {} third-party units", units.len());
        for (unit, set) in units {
            features.entry(unit).or_default().entry(set).or_default().insert(command.join(" "));
        }
    }
    features.retain(|_, sets| sets.len() > 1);
    assert!(features.is_empty(), "name the missing features in workspace-hack/Cargo.toml: {features:#?}");
}
