//! Replays the scenarios of `testbed/scenarios`, and compares the answers with the recorded ones of the real servers.
//!
//! `SCENARIOS=claim/` selects the scenarios whose name contains a text. The test bed runs the same files on a real
//! control plane. Only the modules that need none are included here, so that the test bed is not compiled.
#![allow(dead_code, unreachable_pub, reason = "the test bed uses the rest, from other crates")]

use std::path::Path;

use kube_sim::{Actors, Cluster};

use self::file::Scenario;
use self::library::Library;
use self::record::{Verdict, judge};
use self::run::{Run, run};

#[path = "../../../../testbed/src/scenario/file.rs"]
mod file;
#[path = "../../../../testbed/src/scenario/kinds.rs"]
mod kinds;
#[path = "../../../../testbed/src/scenario/library.rs"]
mod library;
#[path = "../../../../testbed/src/scenario/normal.rs"]
mod normal;
#[path = "../../../../testbed/src/scenario/record.rs"]
mod record;
#[path = "../../../../testbed/src/scenario/run.rs"]
mod run;
#[path = "../../../../testbed/src/scenario/send.rs"]
mod send;
#[path = "../../../../testbed/src/scenario/value.rs"]
mod value;

/// The driver and the sidecar of CSI scenarios, which these scenarios do not have.
mod csi {
    use kube::Client;
    use serde_json::Value;

    use super::file::{Csi, DriverStep, SidecarStep};

    pub enum Host {}

    pub(super) struct Stage<'a>(&'a Host);

    impl<'a> Stage<'a> {
        pub(super) async fn set(host: &'a Host, _: &Csi, _: &Client, _: &str) -> anyhow::Result<Self> {
            Ok(Self(host))
        }

        pub(super) fn script(&self, _: &Value) -> anyhow::Result<()> {
            match *self.0 {}
        }

        pub(super) fn driver(&mut self, _: &DriverStep) -> anyhow::Result<()> {
            match *self.0 {}
        }

        pub(super) async fn sidecar(&mut self, _: SidecarStep) -> anyhow::Result<Option<Value>> {
            match *self.0 {}
        }

        pub(super) async fn calls(&self, _: usize) -> anyhow::Result<Value> {
            match *self.0 {}
        }

        pub(super) async fn outcome(
            &mut self,
            _: &Client,
            _: (&str, &str),
            _: &Value,
            _: impl Fn(&str) -> bool,
        ) -> anyhow::Result<Value> {
            match *self.0 {}
        }

        pub(super) fn rest(&self) -> Vec<Value> {
            match *self.0 {}
        }

        pub(super) fn log(&self) -> String {
            match *self.0 {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn simulator_agrees_with_recordings() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/scenarios");
    let library = Library::load_from(&folder, "SCENARIOS", 120)?;
    let mut disagreements = Vec::new();
    for scenario in &library.scenarios {
        let cluster = Cluster::builder().cross_namespace_data_sources().build();
        let _actors = cluster.run(Actors::all());
        // A real cluster is older than its history.
        cluster.forget_history();
        let name = "run-aaaaa";
        let outcome = run(&library, scenario, &cluster.client("admin"), name).await;
        disagreements.extend(judge(scenario, &outcome, name, Verdict::Compare).err());
    }
    library.report(disagreements)
}
