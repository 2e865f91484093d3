//! Scenarios: requests to a Kubernetes API, and what the real servers answered to them.
//!
//! A scenario is a file `scenarios/<topic>/<name>.yaml`; what the real servers answered is beside it in
//! `<name>.expected.yaml`, recorded and never written by hand. The format is described in `scenarios/README.md`.
//!
//! [`run`] needs nothing but a client, so the same files can be held against any server of the API.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod file;
mod kinds;
mod normal;
mod record;
mod run;
mod send;
mod value;

pub use file::{Needs, Scenario};
pub use record::{Disagreement, Verdict, judge};
pub use run::{Run, run};

/// The scenarios and the objects that they share.
pub struct Library {
    /// The scenarios, by topic and name.
    pub scenarios: Vec<Scenario>,
    /// Objects that a step's object may be `like`.
    pub objects: BTreeMap<String, Value>,
}

impl Library {
    /// Reads all scenarios of this project. With a `filter`, only those whose `<topic>/<name>` contains it.
    pub fn load(filter: Option<&str>) -> anyhow::Result<Self> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let objects = file::read_yaml(&dir.join("objects.yaml"))?;
        let mut scenarios = Vec::new();
        for path in files(&dir)? {
            let scenario = Scenario::load(&dir, &path)?;
            if filter.is_none_or(|filter| scenario.name.contains(filter)) {
                scenarios.push(scenario);
            }
        }
        Ok(Self { scenarios, objects })
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
