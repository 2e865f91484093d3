//! Scenarios: requests to a Kubernetes API, and the real servers' responses.
//!
//! A scenario is a file `scenarios/<topic>/<name>.yaml`. The file `<name>.expected.yaml` next to it contains the
//! responses of the real servers, which are always recorded, never edited. `scenarios/README.md` describes the format.
//!
//! [`run`] needs only a client, so the same files can test any server of the API. The tests of kube-sim include the
//! modules other than `csi`, and run them without the rest of the test bed.
//!
//! The scenarios in `csi-scenarios` include a CSI driver and its sidecar; see the `README.md` there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

mod csi;
mod file;
mod kinds;
mod library;
mod normal;
mod record;
mod run;
mod send;
mod value;

pub use csi::Host;
pub use file::{Needs, Scenario};
pub use library::Library;
pub use record::{Disagreement, Verdict, judge};
pub use run::{Run, run, run_csi};

impl Library {
    /// Reads all scenarios of this project, or those that `SCENARIOS` selects.
    pub fn load() -> anyhow::Result<Self> {
        Self::load_from(&folder("scenarios"), "SCENARIOS", 120)
    }

    /// Reads all CSI scenarios, or those that `CSI_SCENARIOS` selects.
    pub fn load_csi() -> anyhow::Result<Self> {
        let dir = folder("csi-scenarios");
        let rights = file::read_yaml(&dir.join("rights.yaml"))?;
        let definitions = file::read_yaml(&dir.join("definitions.yaml"))?;
        Ok(Self { rights, definitions, ..Self::load_from(&dir, "CSI_SCENARIOS", 95)? })
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
