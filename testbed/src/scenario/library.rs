//! The scenarios of a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde_json::Value;

use super::file::{Scenario, read_yaml};
use super::record::Disagreement;

/// The scenarios and their shared objects.
pub struct Library {
    /// The scenarios, by topic and name.
    pub scenarios: Vec<Scenario>,
    /// Objects that an object of a step can refer to with `like`.
    pub objects: BTreeMap<String, Value>,
    /// The objects that each CSI scenario creates first: its sidecar's account.
    pub(super) rights: Vec<Value>,
    /// The CRDs that all scenarios use.
    pub definitions: Vec<Value>,
}

impl Library {
    /// Reads the scenarios of a folder whose `<topic>/<name>` contains the text in a variable, or else all of them.
    /// Fewer than `at_least` would mean that some were not found.
    pub(super) fn load_from(dir: &Path, variable: &str, at_least: usize) -> anyhow::Result<Self> {
        let filter = std::env::var(variable).unwrap_or_default();
        let objects = read_yaml(&dir.join("objects.yaml"))?;
        let mut scenarios = Vec::new();
        for path in files(dir)? {
            let scenario = Scenario::load(dir, &path)?;
            if scenario.name.contains(filter.as_str()) {
                scenarios.push(scenario);
            }
        }
        let found = scenarios.len();
        ensure!(found > 0, "no scenario has such a name");
        ensure!(!filter.is_empty() || found >= at_least, "only {found} scenarios are found");
        Ok(Self { scenarios, objects, rights: Vec::new(), definitions: Vec::new() })
    }

    /// Fails if scenarios disagree.
    pub fn report(&self, mut disagreements: Vec<Disagreement>) -> anyhow::Result<()> {
        disagreements.sort_by(|one, other| one.0.cmp(&other.0));
        let texts: Vec<_> = disagreements.iter().map(|Disagreement(text)| text.as_str()).collect();
        let (all, count) = (self.scenarios.len(), texts.len());
        ensure!(texts.is_empty(), "{count} of {all} scenarios disagree\n\n{}", texts.join("\n\n"));
        Ok(())
    }
}

/// The scenario files of all topics, sorted.
fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for topic in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        files.extend(entries(&topic)?.into_iter().filter(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".yaml") && !name.ends_with(".expected.yaml")
        }));
    }
    files.sort();
    Ok(files)
}

fn entries(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}
