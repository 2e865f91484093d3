//! `cargo xtask package`: checks that each crate can be published, and creates the archives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use serde_json::Value;
use testbed::guard::{Guard, Running};
use testbed::process::output;

use crate::build;

pub(crate) async fn run(guard: &Guard) -> anyhow::Result<ExitCode> {
    let metadata = metadata()?;
    let crates = published(&metadata);
    let faults: Vec<_> = crates.iter().flat_map(|package| faults(package, &crates)).collect();
    ensure!(faults.is_empty(), "cannot be published:\n  {}", faults.join("\n  "));
    let order = order(&crates)?;
    // All packages at once: cargo finds their dependencies among them, and not in the registry.
    let mut package = build::cargo(guard);
    package.args(["package", "--locked", "--allow-dirty", "--no-verify"]);
    package.args(order.iter().flat_map(|name| ["--package", *name]));
    ensure!(Running::start(package)?.ended().await?.success(), "cargo cannot package them; see above");
    println!("Publish them in this order: {}", order.join(", "));
    if crates.iter().any(|package| package["repository"].is_null()) {
        println!("The repository is unknown: before publishing, set `repository` in [workspace.package].");
    }
    Ok(ExitCode::SUCCESS)
}

fn metadata() -> anyhow::Result<Value> {
    let mut cargo = build::plain_cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(build::workspace_root());
    Ok(serde_json::from_slice(&output(&mut cargo)?)?)
}

/// The packages that are to be published.
fn published(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(|package| package["publish"].is_null()).collect()
}

/// Problems that prevent a package from being published, or users from finding it.
fn faults(package: &Value, published: &[&Value]) -> Vec<String> {
    let name = text(&package["name"]);
    let folder = PathBuf::from(text(&package["manifest_path"])).parent().unwrap_or(Path::new("")).to_owned();
    let mut faults = Vec::new();
    let mut fault = |is: bool, what: &str| {
        if is {
            faults.push(format!("{name}: {what}"));
        }
    };
    for field in ["description", "license", "rust_version", "readme"] {
        fault(package[field].is_null(), &format!("no {field}"));
    }
    fault(!folder.join(text(&package["readme"])).is_file(), "its README does not exist");
    fault(!folder.join("LICENSE").is_file(), "no LICENSE");
    for (field, most, longest) in [("keywords", 5, 20), ("categories", 5, usize::MAX)] {
        let words: Vec<_> = package[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        fault(words.is_empty() || words.len() > most, &format!("it has {} {field}, of 1 to {most}", words.len()));
        fault(words.iter().any(|word| word.len() > longest), &format!("one of its {field} is too long"));
    }
    // Test dependencies without a version are left out of the archive.
    for dependency in of_workspace(package) {
        let has_version = text(&dependency["req"]) != "*";
        let is_for_tests = dependency["kind"] == "dev";
        let goes_along = published.iter().any(|other| other["name"] == dependency["name"]);
        fault(!has_version && !is_for_tests, &format!("no version of {}", dependency["name"]));
        fault(has_version && !goes_along, &format!("{} is not published", dependency["name"]));
    }
    faults
}

/// Sorts packages so that each follows its dependencies, including test dependencies: the registry must already contain
/// them.
fn order<'a>(published: &[&'a Value]) -> anyhow::Result<Vec<&'a str>> {
    let mut waiting: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in published {
        let needed = of_workspace(package).filter(|dependency| text(&dependency["req"]) != "*");
        waiting.insert(text(&package["name"]), needed.map(|dependency| text(&dependency["name"])).collect());
    }
    let mut order: Vec<&str> = Vec::new();
    while let Some(next) = waiting.iter().find(|(_, needed)| needed.is_empty()).map(|(name, _)| *name) {
        waiting.remove(next);
        waiting.values_mut().for_each(|needed| {
            needed.remove(next);
        });
        order.push(next);
    }
    ensure!(waiting.is_empty(), "these depend on one another: {waiting:?}");
    Ok(order)
}

/// The dependencies that are packages of this workspace.
fn of_workspace(package: &Value) -> impl Iterator<Item = &Value> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| !dependency["path"].is_null())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_crate_can_be_published() -> anyhow::Result<()> {
        let metadata = metadata()?;
        let crates = published(&metadata);
        let faults: Vec<_> = crates.iter().flat_map(|package| faults(package, &crates)).collect();
        assert_eq!(faults, Vec::<String>::new());
        let order = order(&crates)?;
        assert!(order.len() >= 7, "{order:?}");
        Ok(())
    }

    #[test]
    fn packages_are_published_after_their_dependencies() -> anyhow::Result<()> {
        let needs = |name: &str, other: &str| json!({"name": name, "dependencies": [{"name": other, "path": "/", "req": "^1", "kind": null}]});
        let (first, second, third) = (needs("a", "b"), needs("b", "c"), json!({"name": "c", "dependencies": []}));
        assert_eq!(order(&[&first, &second, &third])?, ["c", "b", "a"]);
        assert!(order(&[&first, &needs("b", "a")]).is_err());
        assert_eq!(faults(&first, &[&first]).last().map(String::as_str), Some("a: \"b\" is not published"));
        Ok(())
    }
}
