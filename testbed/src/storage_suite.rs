//! Kubernetes' own storage tests, the specs `External Storage` of its end-to-end suite, and the sidecars that they need
//! in addition to a provisioner.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::cached_program::Built;
use crate::control_plane::{State, Versions};
use crate::go_module::{GoProgram, Source, download};
use crate::guard::Guard;
use crate::process::output;
use crate::progress::SharedProgress;

/// The same version as in `testbed/control-plane/go.mod`.
const KUBERNETES: &str = "1.37.1";
const SNAPSHOTTER: &str = "8.6.0";

const fn of_kubernetes(name: &'static str, package: &'static str, time: &'static str) -> GoProgram {
    GoProgram { program: Built { name, version: KUBERNETES, time }, package, source: Source::Required("control-plane") }
}

const fn sidecar(name: &'static str, package: &'static str, version: &'static str) -> GoProgram {
    GoProgram { program: Built { name, version, time: "2 minutes" }, package, source: Source::Required("csi-sidecars") }
}

const SUITE: GoProgram = of_kubernetes("e2e.test", "k8s.io/kubernetes/test/e2e", "5 minutes");
const AGNHOST: GoProgram = of_kubernetes("agnhost", "k8s.io/kubernetes/test/images/agnhost", "1 minute");
const GINKGO: GoProgram = of_kubernetes("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo", "10 seconds");
const CONTROLLER: GoProgram = sidecar(
    "snapshot-controller",
    "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
    SNAPSHOTTER,
);
const SIDECAR: GoProgram =
    sidecar("csi-snapshotter", "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter", SNAPSHOTTER);
const RESIZER: GoProgram =
    sidecar("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer", "2.3.0");

/// The paths of the suite's programs.
pub struct StorageSuite {
    /// The suite, `e2e.test`.
    pub suite: PathBuf,
    /// The program that runs specs in parallel.
    pub ginkgo: PathBuf,
    /// The snapshot controller, one per cluster.
    pub snapshot_controller: PathBuf,
    /// A driver's sidecar for snapshots.
    pub csi_snapshotter: PathBuf,
    /// A driver's sidecar for expansion and attributes.
    pub csi_resizer: PathBuf,
    agnhost: PathBuf,
    definitions: PathBuf,
}

impl StorageSuite {
    /// Builds the suite once, into the user's cache.
    pub async fn build(guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Self> {
        let version = Versions::of_this_project()?.kubernetes;
        ensure!(version == KUBERNETES, "the suite is of Kubernetes {KUBERNETES}, and the control plane of {version}");
        let client = "github.com/kubernetes-csi/external-snapshotter/client/v8";
        let client = download(&format!("{client}@v{SNAPSHOTTER}"), guard, progress).await?;
        Ok(Self {
            suite: SUITE.path(guard, progress).await?,
            ginkgo: GINKGO.path(guard, progress).await?,
            snapshot_controller: CONTROLLER.path(guard, progress).await?,
            csi_snapshotter: SIDECAR.path(guard, progress).await?,
            csi_resizer: RESIZER.path(guard, progress).await?,
            agnhost: AGNHOST.path(guard, progress).await?,
            definitions: client.dir.join("config/crd"),
        })
    }

    /// Imports the suite's images into the node, and installs the snapshot CRDs.
    pub fn prepare(&self, state: &State) -> anyhow::Result<()> {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provisioners/hostpath/e2e/images.sh");
        output(Command::new(images).arg(&self.agnhost).arg(&state.kubeconfig))?;
        let kubectl = state.kubectl.as_deref().context("there is no kubectl")?;
        for entry in fs::read_dir(&self.definitions)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snapshot.")) {
                let mut apply = Command::new(kubectl);
                output(
                    apply.arg("--kubeconfig").arg(&state.kubeconfig).args(["apply", "--server-side", "-f"]).arg(path),
                )?;
            }
        }
        Ok(())
    }
}
