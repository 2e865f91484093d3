//! csi-provisioner with a third-party driver: the mock driver of Kubernetes' own end-to-end tests.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use driver_rpc::Client;
use driver_rpc::csi::Controller;
use driver_rpc::csi::ListVolumesRequest;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams};
use testbed::cluster::{self, Program, TestSpace, eventually};
use testbed::csi_driver::{CSI_MOCK_DRIVER, start_csi_provisioner};
use testbed::progress;

const CLAIMS: usize = 24;
const LIMIT: Duration = Duration::from_secs(120);

struct Mock {
    name: String,
    socket: PathBuf,
    client: Client,
    /// The volumes that the driver contains from the start.
    own: BTreeSet<String>,
    _driver: Program,
    _folder: tempfile::TempDir,
}

impl Mock {
    async fn start(space: &TestSpace) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (name, socket) = (format!("{}.csi.example.com", space.namespace()), folder.path().join("csi.sock"));
        let program = CSI_MOCK_DRIVER.path(&space.cluster().state().guard(), &progress::silent()).await?;
        let driver = space.spawn("driver", program, [name.as_ref(), socket.as_os_str()])?;
        let client = Client::new(socket.to_str().context("an odd path")?.parse()?);
        let mut mock = Self { name, socket, client, own: BTreeSet::new(), _driver: driver, _folder: folder };
        let up = eventually(LIMIT, async || Ok(mock.created_ids().await.ok())).await?;
        mock.own = up.context("the driver does not answer")?;
        Ok(mock)
    }

    fn sidecar(&self, space: &TestSpace) -> anyhow::Result<Program> {
        start_csi_provisioner(space, &self.socket)
    }

    /// The ids of the volumes that the driver created for requests.
    async fn created_ids(&self) -> anyhow::Result<BTreeSet<String>> {
        let answer = self.client.list_volumes(ListVolumesRequest::default()).await?;
        let all = answer.entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id));
        Ok(all.filter(|id| !self.own.contains(id)).collect())
    }

    /// The ids of the volumes that have a PersistentVolume.
    async fn recorded_ids(&self, space: &TestSpace) -> anyhow::Result<BTreeSet<String>> {
        let volumes = space.cluster_api::<PersistentVolume>().list(&ListParams::default()).await?;
        let sources = volumes.items.into_iter().filter_map(|volume| volume.spec?.csi);
        Ok(sources.filter(|source| source.driver == self.name).map(|source| source.volume_handle).collect())
    }
}

#[tokio::test]
async fn driver_and_cluster_have_the_same_volumes_after_kills() -> anyhow::Result<()> {
    let space = TestSpace::new("csi-mock").await?;
    let mock = Mock::start(&space).await?;
    let mut sidecar = mock.sidecar(&space)?;
    let class = space.create_class(cluster::class(&space.cluster_wide_name("class"), &mock.name)).await?;
    for number in 0..CLAIMS {
        space.create_claim(space.claim(&format!("claim-{number}"), &class)).await?;
        if number % 6 == 5 {
            sidecar.kill().await?;
            sidecar = mock.sidecar(&space)?;
        }
    }
    let claims = space.api::<PersistentVolumeClaim>();
    for number in (0..CLAIMS).step_by(2) {
        claims.delete(&format!("claim-{number}"), &DeleteParams::default()).await?;
        if number % 6 == 0 {
            sidecar.kill().await?;
            sidecar = mock.sidecar(&space)?;
        }
    }
    for number in (1..CLAIMS).step_by(2) {
        space.wait_bound(&format!("claim-{number}")).await?;
    }
    let settled = eventually(LIMIT, async || {
        let (holds, known) = (mock.created_ids().await?, mock.recorded_ids(&space).await?);
        Ok((holds == known && holds.len() == CLAIMS / 2).then_some(()))
    });
    settled.await?.with_context(|| format!("the driver does not hold {} volumes", CLAIMS / 2))?;

    space.delete_claims().await?;
    let emptied = eventually(LIMIT, async || {
        Ok((mock.created_ids().await?.is_empty() && mock.recorded_ids(&space).await?.is_empty()).then_some(()))
    });
    emptied.await?.context("the driver or the cluster still has volumes")?;
    ensure!(sidecar.is_running(), "csi-provisioner has ended:\n{}", sidecar.output());
    space.done().await
}
