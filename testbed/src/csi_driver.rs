//! CSI drivers: `csi-sim` on a control plane's real node, registered with its kubelet, whose volumes are directories
//! and loop devices of this machine; and the mock driver of Kubernetes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::storage::v1::CSINode;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cached_program::Built;
use crate::cluster::{Program, TestSpace, eventually, provisioner_program};
use crate::control_plane::{NO_NODE, Node, State};
use crate::dependency::{Dependency, is_named};
use crate::go_module::{GoProgram, Source};
use crate::progress;

/// Long, because the kubelet retries a failed registration with increasing delays.
const LIMIT: Duration = Duration::from_secs(60);
/// The kubelet's registration directory on the node.
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";

const REGISTRAR: GoProgram = GoProgram {
    program: Built { name: "registrar", version: "1", time: "half a minute" },
    package: "kube-provisioner/csi-sidecars",
    source: Source::Required("csi-sidecars"),
};

/// The program that registers a driver with the kubelet.
pub static CSI_REGISTRAR: Dependency = Dependency {
    name: "the registration of a CSI driver",
    suits: || REGISTRAR.check(),
    needed_by: |path| is_named(path, "node_csi_"),
    program: Some(|guard, progress| Box::pin(REGISTRAR.path(guard, progress))),
    ..Dependency::NOTHING
};

const MOCK: GoProgram = GoProgram {
    program: Built { name: "csi-mock-driver", version: "1", time: "1 minute" },
    package: "kube-provisioner/csi-mock-driver",
    source: Source::Required("csi-mock-driver"),
};

/// The mock driver of Kubernetes' own end-to-end tests, a program that takes its name and its socket as arguments. It
/// keeps volumes in memory, and mounts nothing.
pub static CSI_MOCK_DRIVER: Dependency = Dependency {
    name: "the mock driver of Kubernetes",
    suits: || MOCK.check(),
    needed_by: |path| path.starts_with("csi_mock::"),
    program: Some(|guard, progress| Box::pin(MOCK.path(guard, progress))),
    ..Dependency::NOTHING
};

/// Starts this build's csi-provisioner for the driver that listens at `socket`.
pub fn start_csi_provisioner(space: &TestSpace, socket: &Path) -> anyhow::Result<Program> {
    let arguments = [
        format!("--csi-address={}", socket.display()),
        format!("--kubeconfig={}", space.cluster().state().kubeconfig.display()),
        format!("--leader-election-namespace={}", space.namespace()),
    ];
    space.spawn("csi-provisioner", provisioner_program("csi-provisioner")?, arguments)
}

/// A driver that runs until this value is dropped.
pub struct CsiDriver {
    name: String,
    node: Node,
    program: Program,
    registrar: Program,
    /// A folder with the same path on this machine and on the node.
    folder: TempDir,
}

impl CsiDriver {
    /// Starts csi-sim without support for attachment and topology.
    pub async fn start(state: &State, name: &str) -> anyhow::Result<Self> {
        let registrar = CSI_REGISTRAR.path(&state.guard(), &progress::silent()).await?;
        let node = state.node.clone().context(NO_NODE)?;
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let mut arguments = node.nsenter_mount_args();
        arguments.extend([
            provisioner_program("csi-sim")?.display().to_string(),
            format!("--endpoint={}", folder.path().join("csi.sock").display()),
            format!("--data={}", data.display()),
            format!("--driver-name={name}"),
            format!("--node-id={}", node.name),
            // The kubelet itself applies a pod's group to a volume.
            "--without=Controller.PublishUnpublishVolume,Node.VolumeMountGroup".to_owned(),
        ]);
        let program = Program::spawn(state, &format!("{name}-driver"), "nsenter", arguments)?;
        let mut arguments = node.nsenter_mount_args();
        let socket = folder.path().join("csi.sock");
        arguments.extend([registrar.display().to_string(), name.to_owned()]);
        arguments.extend([socket.display().to_string(), REGISTRY.to_owned()]);
        let registrar = Program::spawn(state, &format!("{name}-registrar"), "nsenter", arguments)?;
        Ok(Self { name: name.to_owned(), node, program, registrar, folder })
    }

    /// The driver's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// The driver's CSIDriver object.
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": self.name},
            "spec": {"attachRequired": false, "podInfoOnMount": false, "fsGroupPolicy": "File"},
        })
    }

    /// Waits until the kubelet has registered the driver.
    pub async fn wait_until_registered(&self, client: &Client) -> anyhow::Result<()> {
        let nodes: Api<CSINode> = Api::all(client.clone());
        let is_there = |node: &CSINode| node.spec.drivers.iter().any(|driver| driver.name == self.name);
        let registered = eventually(LIMIT, async || {
            if let Some(ended) = [&self.program, &self.registrar].into_iter().find(|program| !program.is_running()) {
                bail!("the driver or its registrar has ended:\n{}", ended.output());
            }
            Ok(nodes.get_opt(&self.node.name).await?.filter(is_there))
        });
        registered.await?.context("the kubelet has not registered the driver")?;
        Ok(())
    }

    /// The names of the directories and files of its volumes and snapshots.
    pub fn data(&self) -> anyhow::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.folder.path().join("data"))?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }
}
