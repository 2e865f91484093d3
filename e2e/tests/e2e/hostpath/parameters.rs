//! The parameters of a class.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use testbed::cluster::TestSpace;

use super::fixture::*;

#[tokio::test]
async fn delayed_binding_creates_the_volume_on_the_selected_node() -> anyhow::Result<()> {
    let (space, root) = (TestSpace::new("waits").await?, tempfile::tempdir()?);
    let access = account_per_node(&space).await?;
    // On some clouds, the hostname label that volumes are bound to differs from the node's name.
    let hostname = format!("{}.internal", space.namespace());
    let node = space.create_node("node", &[("kubernetes.io/hostname", &hostname)]).await?.name_any();
    let _program = started(&space, &access, root.path(), &["--node-name", &node]).await?;
    let class = space.waiting_class_with("class", [("mode", "2750"), ("volumeType", "local")]).await?;
    space.create_claim(space.claim("claim", &class)).await?;
    space.wait_for_event("PersistentVolumeClaim", "claim", "WaitForFirstConsumer").await?;
    assert_eq!(directories(&root), BTreeSet::new());
    space.create(&space.pod("pod", "claim")).await?;
    let (claim, volume) = space.wait_bound("claim").await?;
    assert_eq!(claim.annotations()["volume.kubernetes.io/selected-node"], node);
    let spec = volume.spec.clone().unwrap();
    let affinity = serde_json::to_string(&spec.node_affinity)?;
    assert!(affinity.contains(&hostname), "{affinity}");
    let mode = std::fs::metadata(&spec.local.unwrap().path)?.permissions().mode();
    assert_eq!(mode & 0o7777, 0o2750);
    // Deletion needs the node's name, which differs from the label.
    space.api::<Pod>().delete("pod", &DeleteParams::default().grace_period(0)).await?;
    space.delete_claim("claim").await?;
    assert_eq!(directories(&root), BTreeSet::new());
    space.done().await
}

#[tokio::test]
async fn class_can_keep_the_data_of_deleted_volumes() -> anyhow::Result<()> {
    let (space, root, _access, _program) = serving("retain").await?;
    let class = space.class_with("class", [("onDelete", "retain")]).await?;
    let (_, volume) = space.bind(space.claim("claim", &class)).await?;
    // The data must be kept even after the class is deleted.
    space.cluster_api::<StorageClass>().delete(&class.name_any(), &DeleteParams::default()).await?;
    space.delete_claim("claim").await?;
    assert_eq!(directories(&root), BTreeSet::from([volume.name_any()]));
    space.done().await
}
