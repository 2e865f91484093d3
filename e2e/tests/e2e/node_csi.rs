//! Pods on a real node use the volumes of a CSI driver, which csi-provisioner provisions.

use anyhow::ensure;
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;
use testbed::cluster::{self, Program, TestSpace};
use testbed::csi_driver::{CsiDriver, start_csi_provisioner};

/// The driver of a test, with its sidecar and its class.
struct Driver {
    driver: CsiDriver,
    class: StorageClass,
    _sidecar: Program,
}

impl Driver {
    async fn start(space: &TestSpace) -> anyhow::Result<Self> {
        let name = format!("{}.csi.example.com", space.namespace());
        let driver = CsiDriver::start(space.cluster().state(), &name).await?;
        space
            .create_cluster_wide::<k8s_openapi::api::storage::v1::CSIDriver>(&serde_json::from_value(driver.object())?)
            .await?;
        driver.wait_until_registered(&space.client()).await?;
        let sidecar = start_csi_provisioner(space, &driver.socket())?;
        let class = space.create_class(cluster::class(&space.cluster_wide_name("class"), &name)).await?;
        Ok(Self { driver, class, _sidecar: sidecar })
    }
}

#[tokio::test]
async fn node_csi_clone_contains_a_copy_of_the_data() -> anyhow::Result<()> {
    let space = TestSpace::new("csi-files").await?;
    let driver = Driver::start(&space).await?;
    space.create_claim(space.claim("data", &driver.class)).await?;
    let write = space.script("writer", "data", "echo hello > /data/file; cat /data/file")?;
    assert_eq!(space.run(&write).await?, "hello");

    let mut copy = space.claim("copy", &driver.class);
    copy.spec.as_mut().unwrap().data_source =
        Some(serde_json::from_value(json!({"kind": "PersistentVolumeClaim", "name": "data"}))?);
    space.create_claim(copy).await?;
    let change = space.script("changer", "copy", "cat /data/file; echo changed > /data/file")?;
    assert_eq!(space.run(&change).await?, "hello");
    let read = space.script("reader", "data", "cat /data/file")?;
    assert_eq!(space.run(&read).await?, "hello");

    assert_eq!(driver.driver.data()?.len(), 2);
    for pod in ["writer", "changer", "reader"] {
        space.delete_pod(pod).await?;
    }
    for claim in ["data", "copy"] {
        space.delete_claim(claim).await?;
    }
    ensure!(driver.driver.data()?.is_empty(), "the driver still has {:?}", driver.driver.data()?);
    space.done().await
}

#[tokio::test]
async fn node_csi_pod_writes_to_a_block_device() -> anyhow::Result<()> {
    let space = TestSpace::new("csi-block").await?;
    let driver = Driver::start(&space).await?;
    let mut claim = space.claim("data", &driver.class);
    claim.spec.as_mut().unwrap().volume_mode = Some("Block".to_owned());
    space.create_claim(claim).await?;
    let write = "echo hello | dd of=/data bs=512 conv=sync 2>/dev/null; sync; dd if=/data bs=5 count=1 2>/dev/null";
    let mut pod = space.script("writer", "data", write)?;
    let container = &mut pod["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("volumeMounts");
    container["volumeDevices"] = json!([{"name": "data", "devicePath": "/data"}]);
    assert_eq!(space.run(&pod).await?, "hello");

    let data = driver.driver.data()?;
    ensure!(data.len() == 1, "{data:?}");
    space.delete_pod("writer").await?;
    space.delete_claim("data").await?;
    ensure!(driver.driver.data()?.is_empty(), "the driver still has {:?}", driver.driver.data()?);
    space.done().await
}
