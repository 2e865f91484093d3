//! The scheduler selects nodes by the storage capacity that csi-provisioner publishes.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use testbed::cluster::{self, Program, TestSpace, apply, eventually, provisioner_program};
use testbed::control_plane::kubeconfig_for_service_account;
use testbed::scenario::csi_rights;

const LIMIT: Duration = Duration::from_secs(60);
const KEY: &str = "csi-sim.example.com/zone";

/// Two nodes in different zones, and a driver with 1 GiB in `a` and 10 GiB in `b`.
struct Zones {
    class: StorageClass,
    _programs: [Program; 2],
    _folder: tempfile::TempDir,
}

impl Zones {
    async fn start(space: &TestSpace) -> anyhow::Result<Self> {
        let driver = format!("{}.csi.example.com", space.namespace());
        space
            .create_cluster_wide::<CSIDriver>(&serde_json::from_value(json!({
                "metadata": {"name": driver}, "spec": {"attachRequired": false, "storageCapacity": true},
            }))?)
            .await?;
        for zone in ["a", "b"] {
            let node = space.create_node(zone, &[(KEY, zone)]).await?;
            let name = node.name_any();
            let drivers = json!([{"name": driver, "nodeID": name, "topologyKeys": [KEY]}]);
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid()});
            space
                .create_cluster_wide::<CSINode>(&serde_json::from_value(json!({
                    "metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"drivers": drivers},
                }))?)
                .await?;
        }
        let mut class = cluster::class(&space.cluster_wide_name("class"), &driver);
        class.volume_binding_mode = Some("WaitForFirstConsumer".to_owned());
        let class = space.create_class(class).await?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("csi.sock").display().to_string();
        let pools =
            ["a", "b"].map(|zone| format!("--pool={zone}={KEY}={zone}:{}", if zone == "a" { 1_u64 } else { 10 } << 30));
        let arguments = [format!("--endpoint={socket}"), format!("--driver-name={driver}")].into_iter().chain(pools);
        let sim = space.spawn("driver", provisioner_program("csi-sim")?, arguments)?;
        apply(&space.client(), &csi_rights(space.namespace())?).await?;
        let state = space.cluster().state();
        let account =
            kubeconfig_for_service_account(&space.client(), state, space.namespace(), "csi-provisioner").await?;
        let arguments = [
            format!("NAMESPACE={}", space.namespace()),
            provisioner_program("csi-provisioner")?.display().to_string(),
            format!("--csi-address={socket}"),
            format!("--kubeconfig={}", account.display()),
            format!("--leader-election-namespace={}", space.namespace()),
            "--enable-capacity".to_owned(),
            "--capacity-ownerref-level=-1".to_owned(),
            "--strict-topology".to_owned(),
        ];
        let sidecar = space.spawn("csi-provisioner", "env", arguments)?;
        Ok(Self { class, _programs: [sidecar, sim], _folder: folder })
    }

    /// Creates a claim of this size and a pod that uses it.
    async fn ask(&self, space: &TestSpace, name: &str, size: &str) -> anyhow::Result<()> {
        let mut claim = space.claim(name, &self.class);
        let requests = claim.spec.as_mut().and_then(|spec| spec.resources.as_mut()).context("no resources")?;
        requests.requests = Some([("storage".to_owned(), Quantity(size.to_owned()))].into());
        space.create_claim(claim).await?;
        let mut pod = space.pod(name, name);
        // A node without a kubelet becomes unready after a while.
        pod.spec.as_mut().context("the pod has no spec")?.tolerations =
            Some(serde_json::from_value(json!([{"operator": "Exists"}]))?);
        space.create(&pod).await?;
        Ok(())
    }

    /// Waits until the pod is on the node of this zone.
    async fn is_in(&self, space: &TestSpace, pod: &str, zone: &str) -> anyhow::Result<()> {
        let node = space.cluster_wide_name(zone);
        let scheduled = eventually(LIMIT, async || {
            let node = space.api::<Pod>().get(pod).await?.spec.and_then(|spec| spec.node_name);
            Ok(node)
        });
        let on = scheduled.await?.with_context(|| format!("the pod {pod} is not scheduled"))?;
        ensure!(on == node, "{pod} is on {on}");
        space.wait_bound(pod).await.map(drop)
    }

    async fn published(&self, space: &TestSpace) -> anyhow::Result<Vec<String>> {
        let objects = space.api::<CSIStorageCapacity>().list(&ListParams::default()).await?;
        let mut all: Vec<_> = objects.items.into_iter().filter_map(|object| Some(object.capacity?.0)).collect();
        all.sort();
        Ok(all)
    }

    async fn publishes(&self, space: &TestSpace, expected: [&str; 2]) -> anyhow::Result<()> {
        let mut last = Vec::new();
        let published = eventually(LIMIT, async || {
            last = self.published(space).await?;
            Ok((last == expected).then_some(()))
        });
        published.await?.with_context(|| format!("published: {last:?}, expected: {expected:?}"))
    }
}

#[tokio::test]
async fn pods_are_scheduled_where_their_volumes_fit() -> anyhow::Result<()> {
    let space = TestSpace::new("csi-capacity").await?;
    let zones = Zones::start(&space).await?;
    zones.publishes(&space, ["10Gi", "1Gi"]).await?;
    zones.ask(&space, "large", "6Gi").await?;
    zones.is_in(&space, "large", "b").await?;
    zones.publishes(&space, ["1Gi", "4Gi"]).await?;
    // No zone has enough capacity for this claim, and the scheduler takes that into account.
    zones.ask(&space, "waiting", "5Gi").await?;
    zones.ask(&space, "small", "2Gi").await?;
    zones.is_in(&space, "small", "b").await?;
    let pod = space.api::<Pod>().get("waiting").await?;
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let said: Vec<_> = conditions.into_iter().filter_map(|condition| condition.message).collect();
    ensure!(said.iter().any(|text| text.contains("enough free storage")), "{said:?}");
    // The scheduler retries after the deletion of a volume.
    space.api::<Pod>().delete("large", &DeleteParams::default().grace_period(0)).await?;
    space.api::<PersistentVolumeClaim>().delete("large", &DeleteParams::default()).await?;
    zones.is_in(&space, "waiting", "b").await?;
    zones.publishes(&space, ["1Gi", "3Gi"]).await?;
    for name in ["waiting", "small"] {
        space.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        space.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await?;
    }
    zones.publishes(&space, ["10Gi", "1Gi"]).await?;
    space.done().await
}
