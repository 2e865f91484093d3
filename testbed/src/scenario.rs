//! Scenarios: requests to a Kubernetes API, and the real servers' responses.
//!
//! A scenario is a file `scenarios/<topic>/<name>.yaml`. The file `<name>.expected.yaml` next to it contains the
//! responses of the real servers, which are always recorded, never edited. `scenarios/README.md` describes the format.
//!
//! [`run`] needs only a client, so the same files can test any server of the API.
//!
//! The scenarios in `csi-scenarios` include a CSI driver and its sidecar; see the `README.md` there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod csi;
mod file;
mod kinds;
mod normal;
mod record;
mod run;
mod send;
mod value;

pub use csi::Host;
pub use file::{Needs, Scenario};
pub use record::{Disagreement, Verdict, judge};
pub use run::{Run, run, run_csi};

/// The scenarios and their shared objects.
pub struct Library {
    /// The scenarios, by topic and name.
    pub scenarios: Vec<Scenario>,
    /// Objects that an object of a step can refer to with `like`.
    pub objects: BTreeMap<String, Value>,
    /// The objects that each CSI scenario creates first: its sidecar's account.
    rights: Vec<Value>,
    /// The CRDs that all scenarios use.
    pub definitions: Vec<Value>,
}

impl Library {
    /// Reads all scenarios of this project. With a `filter`, reads only those whose `<topic>/<name>` contains it.
    pub fn load(filter: Option<&str>) -> anyhow::Result<Self> {
        Self::load_from(&folder("scenarios"), filter)
    }

    /// Reads all CSI scenarios.
    pub fn load_csi(filter: Option<&str>) -> anyhow::Result<Self> {
        let dir = folder("csi-scenarios");
        let rights = file::read_yaml(&dir.join("rights.yaml"))?;
        let definitions = file::read_yaml(&dir.join("definitions.yaml"))?;
        Ok(Self { rights, definitions, ..Self::load_from(&dir, filter)? })
    }

    fn load_from(dir: &Path, filter: Option<&str>) -> anyhow::Result<Self> {
        let objects = file::read_yaml(&dir.join("objects.yaml"))?;
        let mut scenarios = Vec::new();
        for path in files(dir)? {
            let scenario = Scenario::load(dir, &path)?;
            if filter.is_none_or(|filter| scenario.name.contains(filter)) {
                scenarios.push(scenario);
            }
        }
        Ok(Self { scenarios, objects, rights: Vec::new(), definitions: Vec::new() })
    }
}

/// The objects of the sidecar's account in a namespace, with exactly upstream's permissions.
pub fn csi_rights(namespace: &str) -> anyhow::Result<Vec<Value>> {
    let rights: Value = file::read_yaml(&folder("csi-scenarios").join("rights.yaml"))?;
    let mut rights: Vec<Value> = serde_json::from_str(&rights.to_string().replace("$(run)", namespace))?;
    for object in &mut rights {
        let kind = kinds::find(object["kind"].as_str().unwrap_or_default(), &BTreeMap::new())?;
        object["apiVersion"] = kind.api_version.into();
        if !kind.cluster_scoped {
            object["metadata"]["namespace"] = namespace.into();
        }
    }
    Ok(rights)
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
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
